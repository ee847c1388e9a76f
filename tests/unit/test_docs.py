"""Generated documentation must be what the data says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle.backends import BACKENDS
from bundle.docs import BEGIN, END, markdown_table, with_table, write_generated
from bundle.errors import MalformedError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "backends.md"


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
