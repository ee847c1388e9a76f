"""The one place that runs other programs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from bundle.errors import PassedOnError, ToolError
from bundle.ui import read_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bundle.ui import Reporter

TAIL_LINES = 60
GRACE_SECONDS = 10


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _HeldSignals:
    """SIGINT and SIGTERM wait from the making of this object until `release`, which delivers what came meanwhile.

    A program that has been started, but is not known yet, could not be stopped. Signals are not blocked, since the
    program would inherit that; it does not inherit handlers.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before: dict[int, object] = {}
        if _in_main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, lambda came, _: self._came.append(came))

    def release(self) -> None:
        """Put the handlers back and raise the signals that came."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned
        while self._came:
            signal.raise_signal(self._came.pop())


def _failure(argv: Sequence[str], returncode: int, output: str) -> ToolError:
    """Return what a program's failure means: its refusal if it is one of ours, else a quotation."""
    if returncode > 0 and (said := read_refusal(output)):
        text, hint = said
        return PassedOnError(text, hint=hint, exit_code=returncode)
    ending = f"was killed by {signal.Signals(-returncode).name}" if returncode < 0 else f"exited with {returncode}"
    tail = "\n".join("  " + line for line in output.splitlines()[-TAIL_LINES:])
    return ToolError(f"{argv[0]} {ending}: {' '.join(argv)}\n{tail}".rstrip(), output=output)


def _stop(child: subprocess.Popen[str]) -> None:
    """End the child and all its children, politely first; of a child in our own group, itself alone."""
    if not _in_main_thread():
        child.kill()
        child.wait()
        return
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=GRACE_SECONDS)
        # Whatever of the group is left after the child itself ended is orphaned otherwise.
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _start(words: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None) -> subprocess.Popen[str]:
    try:
        # A process group of its own, so that an interrupt can be passed on to the children of the child as well. No
        # interrupt reaches a thread: what it starts stays in our group, and ends with whatever ends that.
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            encoding="utf-8",
            errors="replace",
            start_new_session=_in_main_thread(),
            # Only what was made inheritable on purpose is passed on: the locks of bundle.locks.
            close_fds=False,
        )
    except OSError as err:
        raise ToolError(f"{words[0]} could not be started: {err.strerror or err}") from err


def _output_of(child: subprocess.Popen[str], on_line: Callable[[str], None] | None) -> str:
    """Read what the program says, until it ends."""
    lines = []
    for line in child.stdout or ():
        lines.append(line)
        if on_line is not None:
            on_line(line.rstrip("\n"))
    child.wait()
    return "".join(lines)


def run(
    argv: Sequence[str | Path],
    *,
    ui: Reporter | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, capture stdout and stderr together, and stop it if we are stopped.

    `on_line` is handed each line as it comes. A return code below zero is the signal that killed the program.

    Raises:
        ToolError: the program is missing, or exited non-zero while `check`; its last lines are quoted, or, where they
            are a refusal as `bundle.ui` writes it, passed on as they are.
    """
    words = [str(word) for word in argv]
    if ui is not None:
        ui.command(words)
    held = _HeldSignals()
    try:
        child = _start(words, env=env, cwd=cwd)
    except ToolError:
        held.release()
        raise
    with child:
        try:
            held.release()
            output = _output_of(child, on_line)
        except BaseException:
            _stop(child)
            raise
    if check and child.returncode:
        raise _failure(words, child.returncode, output)
    return subprocess.CompletedProcess(words, child.returncode, output, "")
