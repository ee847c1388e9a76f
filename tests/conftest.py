"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from bundle.scratch import temporary_variables

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """Take SIGINT again: a shell ignores it in what it starts in the background, and whatever that starts inherits it.

    The tests that send it would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_of_children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the programs that tests start a temporary folder below pytest's, which goes with it.

    Killed ones remove nothing themselves, and torchrun never does.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in temporary_variables(tmp_path_factory.mktemp("tmp")).items():
            patch.setenv(name, value)
        patch.setattr("tempfile.tempdir", None)
        yield
