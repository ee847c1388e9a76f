"""The one place that runs other programs."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from bundle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bundle.ui import Reporter

TAIL_LINES = 60


def _explain(argv: Sequence[str], returncode: int, output: str) -> str:
    if returncode < 0:
        ending = f"was killed by {signal.Signals(-returncode).name}"
    else:
        ending = f"exited with {returncode}"
    tail = "\n".join("  " + line for line in output.splitlines()[-TAIL_LINES:])
    return f"{argv[0]} {ending}: {' '.join(argv)}\n{tail}".rstrip()


def run(
    argv: Sequence[str | Path],
    *,
    ui: Reporter | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    live: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program, capture what it says (or pass it on when `live`), and stop it if we are stopped.

    Raises:
        ToolError: the program is missing, or exited non-zero while `check`; its last lines are quoted.
    """
    words = [str(word) for word in argv]
    if ui is not None:
        ui.command(words)
    pipe = None if live else subprocess.PIPE
    try:
        # A process group of its own, so that an interrupt reaches the children of the child as well.
        child = subprocess.Popen(
            words,
            stdout=pipe,
            stderr=None if live else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            text=True,
            start_new_session=True,
        )
    except OSError as err:
        raise ToolError(f"{words[0]} could not be started: {err.strerror or err}") from err
    try:
        output, _ = child.communicate()
    except BaseException:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise
    if check and child.returncode:
        raise ToolError(_explain(words, child.returncode, output or ""))
    return subprocess.CompletedProcess(words, child.returncode, output or "", "")
