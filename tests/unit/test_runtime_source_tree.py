"""A source tree in the working directory that hides the installed wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.support.fake_torch import SOURCE, TRY, hooked_site


@pytest.fixture
def in_tree(tmp_path):
    """Start the interpreter of an environment with the wheel, in a source tree."""
    site = hooked_site(tmp_path)
    for package in ("torch_fl", "torch_fl_boot"):
        shutil.copytree(SOURCE / package, tmp_path / "tree" / package, ignore=shutil.ignore_patterns("__pycache__"))

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": os.environ["PATH"]}
        command = [str(site.python), *arguments]
        return subprocess.run(command, env=environ, cwd=tmp_path / "tree", capture_output=True, text=True, check=False)

    return start


@pytest.fixture
def words(tmp_path):
    return f"torch_fl was imported from its source tree {tmp_path}/tree/torch_fl, which is not built"


def test_plain_import_must_say_that_the_source_tree_hides_the_wheel(in_tree, words):
    done = in_tree("-c", "import torch; print(torch.version.hip)")
    hint = "hint: run from another directory, so that the installed wheel is found"
    said = f"torch_fl: warning: torch runs without flagos: {words}; {hint}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "6.3.0\n", said)


@pytest.mark.parametrize("first", ["", "import torch\n"], ids=["torch_fl-first", "torch-first"])
def test_import_of_torch_fl_must_say_the_same(in_tree, words, first):
    assert in_tree("-c", first + TRY).stdout.startswith(f"MissingIdentityError\n{words}\n")


@pytest.mark.parametrize("name", ["status", "doctor"])
def test_commands_must_say_that_another_torch_fl_comes_first(in_tree, tmp_path, name):
    content = json.loads(in_tree("-m", "torch_fl", name, "--json").stdout)
    findings = content["problems"] if name == "status" else content["findings"]
    found = [(item["severity"], item["found"]) for item in findings if item["code"] == "R053"]
    assert found == [("error", f"{tmp_path}/tree/torch_fl")]
