"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT again: a shell ignores it in what it starts in the background, and whatever that starts inherits it.

    The tests that send it would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
