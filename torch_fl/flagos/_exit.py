"""The end of the process: PyTorch's autograd threads end before the interpreter does.

A backward pass over device tensors runs on a thread of PyTorch's autograd engine, one per device. The thread may let go
of the pass after the caller has gone on: it then drops the caller's thread-local state, Python objects included, and
takes the GIL to do so. PyTorch ends these threads in a static destructor, after the interpreter. A thread that asks for
the GIL once finalisation has begun is ended by Python (3.10 to 3.13) through `pthread_exit`, whose unwinding meets
PyTorch's `noexcept` functions: "terminate called without an active exception", SIGABRT.
"""

from __future__ import annotations

import atexit
import time
from pathlib import Path

from torch_fl._C import _stop_autograd

_NAME_PREFIX = b"pt_autograd_"
"""How `torch::autograd::Engine::thread_init` names its threads."""

_LIMIT_S = 2.0
"""How long to wait for threads that the engine has counted as ended, or has given up."""

_POLL_S = 0.0005


def _thread_name(task: str) -> bytes:
    try:
        return Path("/proc/self/task", task, "comm").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it ended after it was listed


def _has_autograd_threads() -> bool:
    return any(_thread_name(task.name).startswith(_NAME_PREFIX) for task in Path("/proc/self/task").iterdir())


def _end_autograd() -> None:
    """Stop the engine, then wait for its threads.

    The engine waits for its threads itself, at most TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT seconds, but counts a thread as
    ended before it has taken the GIL for the last time. Hence the second wait.
    """
    _stop_autograd()
    deadline = time.monotonic() + _LIMIT_S
    while _has_autograd_threads() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def end_autograd_at_exit() -> None:
    """Have the autograd engine's threads end when the process does, before the interpreter is finalised.

    Handlers that were registered earlier run later, and find no thread for a backward pass over device tensors.
    """
    atexit.register(_end_autograd)
