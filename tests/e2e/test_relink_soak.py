"""The two long proofs of relink with a small count: `python -m tests.soak.kills` and `... .crowd` run the real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    """In a process of its own: it forks, and pytest has threads and pipes of its own."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_killed_relink_and_restore_must_never_break_or_mix_torch():
    assert run("tests.soak.kills", "--count", "10").endswith("problems: 0\n")


def test_many_first_imports_at_once_must_all_succeed():
    said = run("tests.soak.crowd", "--rounds", "2", "--size", "16")
    assert "good: {'preload': 40, 'relink': 40}" in said
    assert said.endswith("problems: 0\n")
