"""Which backend an environment asks for, and what CMake is told of it. Standard library only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from bundle.backends import BACKENDS, CoreSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bundle.backends import Backend


def describe_choices() -> str:
    """One line per backend: the variables that select it, for messages."""
    lines = []
    for backend in BACKENDS.values():
        variables = " ".join(f"{key}={value}" for key, value in build_environment(backend))
        needs = f" with {backend.sdk_variables[0]} set" if backend.told_by_sdk else ""
        lines.append(f"  {backend.name:<6} {backend.title:<12} {variables}{needs}")
    return "\n".join(lines)


def build_environment(backend: Backend) -> tuple[tuple[str, str], ...]:
    """Return the variables that a compile of this backend sets, ACCELERATOR first."""
    return (("ACCELERATOR", backend.accelerator), *backend.build_variables)


def selecting_variables() -> frozenset[str]:
    """Return the names of all variables that take part in the choice of a backend, but for those of SDKs."""
    backends = BACKENDS.values()
    return frozenset(name for one in backends for name, _ in (*build_environment(one), *one.settled_variables))


def from_environment(environ: Mapping[str, str]) -> Backend:
    """Return the backend that ACCELERATOR and its companions ask for.

    Of two backends with one ACCELERATOR value, the one that is told by its SDK is meant where its SDK variable is set.

    Raises:
        LookupError: no or an unknown ACCELERATOR (the text lists the choices), or a variable that would be overruled.
    """
    accelerator = environ.get("ACCELERATOR", "")
    known = sorted({backend.accelerator for backend in BACKENDS.values()})
    if not accelerator:
        raise LookupError(
            f"ACCELERATOR is not set, so there is nothing to build for; choose one of\n{describe_choices()}"
        )
    matching = [backend for backend in BACKENDS.values() if backend.accelerator == accelerator]
    if not matching:
        raise LookupError(
            f"ACCELERATOR={accelerator!r} is unknown; expected one of {', '.join(known)}:\n{describe_choices()}"
        )
    for backend in matching:
        _refuse_overruled(backend, environ)
    named = [
        backend
        for backend in matching
        if backend.told_by_sdk and any(environ.get(variable) for variable in backend.sdk_variables)
    ]
    return (named or [backend for backend in matching if not backend.told_by_sdk])[0]


def _refuse_overruled(backend: Backend, environ: Mapping[str, str]) -> None:
    deciding = [f"{name}={value}" for name, value in backend.build_variables if environ.get(name) != value]
    for name, value in backend.settled_variables:
        if deciding and name in environ:
            raise LookupError(
                f"{name}={environ[name]!r} alone has no effect: {' '.join(deciding)} is what sets -D{name}={value}; "
                "set that instead"
            )


def cmake_settings(backend: Backend, environ: Mapping[str, str]) -> str:
    """Return `set()` commands that hand this backend's data to CMake."""
    flaggems = environ.get("FLAGGEMS_KERNEL", dict(backend.build_variables).get("FLAGGEMS_KERNEL", "OFF"))
    values = {
        "FLAGOS_BACKEND": backend.name,
        "FLAGOS_ACCELERATOR": backend.accelerator,
        "FLAGOS_BUNDLE_DIR": backend.bundle_dir,
        "FLAGOS_DRIVER_DIRS": ";".join(target_driver_dirs(backend)),
        "FLAGOS_STOCK_CORE": "ON" if backend.core is CoreSource.STOCK else "OFF",
        "FLAGOS_RUNTIME_PREFIX": backend.runtime_prefix,
        "FLAGOS_RUNTIME_LIBRARIES": ";".join(backend.runtime_libraries),
        "FLAGOS_FLAGGEMS_PYTHON": "OFF" if flaggems.upper() in {"", "0", "OFF", "FALSE", "NO"} else "ON",
        "FLAGOS_SETTLED": " ".join(f"{name}={value}" for name, value in backend.settled_variables),
    }
    return "\n".join(f'set({key} "{value}")' for key, value in values.items()) + "\n"


def target_driver_dirs(backend: Backend) -> tuple[str, ...]:
    """Return the driver directories under the SDK's default root, as they are on a target machine.

    Entries with a wildcard are left out: only an SDK at hand can expand them.
    """
    if not backend.sdk_defaults:
        return ()
    root = backend.sdk_defaults[0]
    return tuple(
        entry if entry.startswith("/") else f"{root}/{entry}" for entry in backend.driver_dirs if "*" not in entry
    )


def main() -> int:
    """Print the CMake settings of the backend that the environment asks for; exit 2 if it asks for none."""
    try:
        backend = from_environment(os.environ)
    except LookupError as err:
        print(f"torch_fl: error: {err}", file=sys.stderr)  # noqa: T201 - CMake reads this script's output
        return 2
    print(cmake_settings(backend, os.environ), end="")  # noqa: T201 - as above
    return 0
