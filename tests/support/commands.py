"""Runs the commands of torch_fl in a fake site, and in a process that gave up root's privileges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.fake_torch import FakeSite

# Root may read everything until it gives up its capabilities; version 3 of capset, all sets empty.
WITHOUT_PRIVILEGES = """
import ctypes
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
"""


def interpreter(
    site: FakeSite, *arguments: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start Python with these arguments and the site in front."""
    env = {"PYTHONPATH": str(site.root), "PATH": os.environ["PATH"], **(environ or {})}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=site.root.parent)


def command(site: FakeSite, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Start `python -m torch_fl` with these arguments."""
    return interpreter(site, "-m", "torch_fl", *arguments, environ=environ)


def answer(site: FakeSite, *arguments: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command with `--json` and return the object; nothing may be on stderr."""
    done = command(site, *arguments, "--json", environ=environ)
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content
