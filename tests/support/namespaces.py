"""Programs in a mount namespace of their own, where a file system may be as small as a test wants it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2]
_NAMESPACE = ("unshare", "--map-root-user", "--mount")


def in_tmpfs(folder: Path, program: str, *, size: str) -> list[str]:
    """Run a program in a fresh tmpfs of this size, mounted in a namespace of its own; return the texts it prints."""
    command = [
        *_NAMESPACE,
        "sh",
        "-c",
        f'mount -t tmpfs -o size={size} none "$1" && cd "$1" && shift && exec "$@"',
        "sh",
    ]
    probe = subprocess.run([*command, folder, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespace to be had here: {probe.stderr.strip()}")
    imports = "import json, os, subprocess\nfrom pathlib import Path\n"
    done = subprocess.run(
        [*command, folder, sys.executable, "-c", imports + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert isinstance(said, list)
    return said
