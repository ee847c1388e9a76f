"""Finding Python interpreters, and making environments from them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.errors import InputNotFoundError, RefusedError, ToolError
from bundle.proc import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bundle.ui import Reporter

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")

# What a caller's shell may hold that would change a fresh environment's packages or imports.
LEAKS = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PIP_NO_DEPS",
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
)


def without_leaks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what would reach into a fresh one; pip's choice of index stays."""
    return {key: value for key, value in environ.items() if key not in LEAKS}


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        yield sys.executable
    found = shutil.which(f"python{version}", path=environ.get("PATH"))
    if found:
        yield found
    # pyenv's shims refuse versions that are installed but not activated.
    root = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True))


def find_interpreter(version: str, environ: Mapping[str, str]) -> Path:
    """Return an interpreter that really is Python `version` ("3.12").

    Raises:
        InputNotFoundError: none is installed; the text lists what was tried.
    """
    tried = []
    for candidate in _candidates(version, environ):
        asked = run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            check=False,
            env=without_leaks(environ),
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return Path(candidate)
        tried.append(f"{candidate} ({asked.stdout.strip() or f'exit {asked.returncode}'})")
    places = "; ".join(tried) or "PATH and pyenv's versions"
    error = InputNotFoundError(f"no Python {version} found; tried {places}")
    error.hint = f"install Python {version} so that python{version} is on PATH"
    raise error


def installed_versions(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of the supported versions that have an interpreter here."""
    found = []
    for version in SUPPORTED:
        try:
            find_interpreter(version, environ)
        except InputNotFoundError:
            continue
        found.append(version)
    return tuple(found)


def environment_python(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def create_environment(folder: Path, version: str, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Make a fresh environment of Python `version`, replacing whatever was there, and return its interpreter.

    Raises:
        RefusedError: the environment turned out to be of another version or prefix.
    """
    interpreter = find_interpreter(version, environ)
    clean = without_leaks(environ)
    run([sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--python", interpreter, folder], ui=ui, env=clean)
    python = environment_python(folder)
    asked = run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix)"], env=clean)
    found, prefix = asked.stdout.strip().split(" ", 1)
    if found != version or Path(prefix).resolve() != folder.resolve():
        raise RefusedError(f"environment {folder}: Python is {found} at {prefix}, expected {version} at {folder}")
    return python


def pip_install(python: Path, arguments: Sequence[str | Path], environ: Mapping[str, str], ui: Reporter) -> None:
    """Run `pip install` of an environment; ToolError quotes pip when it fails.

    Bytecode is left to the interpreter, which writes that of what is imported: pip would write that of all of torch.
    """
    run([python, "-m", "pip", "install", "--quiet", "--no-compile", *arguments], ui=ui, env=without_leaks(environ))


def check_compilers(environ: Mapping[str, str]) -> None:
    """Look for the C and C++ compilers that a build will want: those of CC and CXX, else gcc and g++.

    Raises:
        ToolError: one is missing, so that a build would fail after a minute, in CMake's words.
    """
    for variable, usual in (("CC", "gcc"), ("CXX", "g++")):
        program = (environ.get(variable) or usual).split()[0]
        if shutil.which(program, path=environ.get("PATH")) is None:
            error = ToolError(f"no compiler {program!r} on PATH, needed to compile the plugin")
            error.hint = f"install {usual}, or name another compiler with {variable}"
            raise error


def package_folder(python: Path, package: str) -> Path:
    """Return where an environment holds a package, without importing it."""
    code = f"import importlib.util as u; print(next(iter(u.find_spec({package!r}).submodule_search_locations)))"
    return Path(run([python, "-I", "-c", code], env=without_leaks(os.environ)).stdout.strip())
