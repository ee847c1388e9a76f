"""The outermost frame of each program of the build tool: whatever goes wrong inside is told once, and has its code."""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bundle.errors import BundleError, FileAccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from bundle.ui import Reporter

INTERRUPTED = 130
TERMINATED = 143
BUG = 70
_AGAIN = "run the same command again; unfinished output is made anew"


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that running programs are stopped and partial output is left to the next run."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def guarded(
    work: Callable[[], int], ui: Reporter, *, show_traceback: bool = False, reworded: Callable[[str], str] = str
) -> int:
    """Run a program's body and return its exit code (bundle/errors.py lists them); what it raises is told, once.

    An OSError is a refusal of the system's, wherever it comes from. `reworded` makes a hint fit this start.
    """
    try:
        with _sigterm_raises():
            return work()
    except (BundleError, OSError) as err:
        if show_traceback:
            traceback.print_exc(file=sys.stderr)
        refusal = FileAccessError(err) if isinstance(err, OSError) else err
        code, text, hint = refusal.exit_code, str(refusal), reworded(refusal.hint)
    except KeyboardInterrupt:
        code, text, hint = INTERRUPTED, "interrupted", _AGAIN
    except _Terminated:
        code, text, hint = TERMINATED, "terminated", _AGAIN
    except Exception:  # noqa: BLE001 - the outermost frame: whatever arrives here is a bug, and is shown whole
        traceback.print_exc(file=sys.stderr)
        code, text, hint = BUG, "unexpected error, a bug in this tool", BundleError.hint
    # Stdout or stderr themselves may be files on the full disk; the code tells even then.
    with suppress(OSError):
        ui.error(text, hint=hint)
    return code
