"""Generated documentation must be what the data says."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from bundle import errors
from bundle.backends import BACKENDS
from bundle.docs import BEGIN, END, markdown_table, with_table, write_generated
from bundle.errors import MalformedError
from bundle.selection import build_environment

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "backends.md"


def table_of(path, start):
    """Return the rows of a document's first Markdown table that begins with `start`, as tuples of cells."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(start))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


def test_the_readme_must_say_what_the_backends_are():
    rows = table_of(ROOT / "README.md", "| backend |")
    assert [row[0] for row in rows] == list(BACKENDS)
    for (_, label, python, built, bundle), backend in zip(rows, BACKENDS.values(), strict=True):
        assert label == (f"`+{backend.label}`" if backend.label else "none")
        assert python == backend.python
        assert built.startswith(f"`{' '.join(f'{key}={value}' for key, value in build_environment(backend))}`")
        # The image that dcu was built from had seventeen grafted libraries.
        files = backend.bundle_files or len(backend.libraries) + 17 + int(backend.version_file)
        assert bundle.startswith(f"{files} files")


def test_both_tables_of_exit_codes_must_list_the_same_codes():
    documented = [code for row in table_of(ROOT / "docs" / "design.md", "| code |") for code in row[0].split(", ")]
    assert documented == re.findall(r"^\| (\d+) \|", errors.__doc__ or "", re.MULTILINE)


def test_hooks_must_run_the_tools_that_the_lint_session_installs():
    pinned = set(re.findall(r"additional_dependencies: \[(\S+)\]", (ROOT / ".pre-commit-config.yaml").read_text()))
    assert pinned
    assert all(f'"{tool}"' in (ROOT / "pyproject.toml").read_text() for tool in pinned)


def test_docs_backends_must_hold_the_generated_table():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_table(text) == text, "run `python -m bundle docs`"


def test_the_table_must_have_a_column_per_backend_and_no_broken_row():
    rows = markdown_table().splitlines()
    assert rows[0] == "|  | metax | ppu | dcu | cuda |"
    assert {row.count(" | ") for row in rows} == {len(BACKENDS)}


def test_every_variable_that_is_read_must_be_documented():
    table = markdown_table()
    for backend in BACKENDS.values():
        for variable in (*backend.sdk_variables, backend.vendor_lib_variable):
            assert f"`{variable}`" in table


def test_a_document_without_marks_must_be_refused():
    with pytest.raises(MalformedError, match=r"no place for the table; expected <!-- begin: .* and <!-- end -->"):
        with_table(BEGIN)
    assert with_table(BEGIN + "old\n" + END) == BEGIN + markdown_table() + END


def test_writing_must_change_only_what_is_stale(tmp_path):
    path = tmp_path / "docs" / "backends.md"
    path.parent.mkdir()
    path.write_text("before\n" + BEGIN + "stale\n" + END + "after\n")
    assert write_generated(tmp_path) == (path,)
    assert path.read_text() == "before\n" + BEGIN + markdown_table() + END + "after\n"
    assert write_generated(tmp_path) == ()
