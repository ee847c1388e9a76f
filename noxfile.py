"""Sessions: everything that needs an environment. `nox -l` lists them; README.md says which to start with."""

from __future__ import annotations

import sys
from itertools import chain, repeat
from pathlib import Path

import nox

# nox does not put the noxfile's folder on sys.path when it is started as a program.
sys.path.insert(0, str(Path(__file__).parent))

from bundle.backends import BACKENDS, Backend, CoreSource
from bundle.errors import FileAccessError
from bundle.space import DEMO, TESTS, Undertaking, outlook

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "typecheck"]
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")


def install(session: nox.Session, *groups: str) -> None:
    """Install dependency groups of pyproject.toml, and nothing of the project itself."""
    session.install(*nox.project.dependency_groups(PROJECT, *groups))


def ask_for_space(session: nox.Session, undertaking: Undertaking) -> None:
    """Say what disk space a long session needs and what is free; end it at once where that is clearly too little."""
    try:
        session.log(outlook(undertaking, Path(__file__).parent))
    except FileAccessError as err:
        session.error(f"{err}; {err.hint}")


def wheel_session(backend: Backend) -> None:
    """Register `wheel-<backend>`."""

    @nox.session(name=f"wheel-{backend.name}", tags=["wheel"])
    def wheel(session: nox.Session) -> None:
        install(session, "bundle")
        session.run("python", "-m", "bundle", "wheel", "--backend", backend.name, *session.posargs)

    wheel.__doc__ = (
        f"Self-contained {backend.title} wheel: compile, bundle, repack, audit (-- --forged without hardware)."
    )


def verify_session(backend: Backend) -> None:
    """Register `verify-<backend>`."""

    @nox.session(name=f"verify-{backend.name}", tags=["verify"])
    def verify(session: nox.Session) -> None:
        install(session, "bundle")
        session.run("python", "-m", "bundle", "verify", "--backend", backend.name, *session.posargs)

    verify.__doc__ = (
        f"The {backend.title} wheel in a fresh environment with stock torch: the integration suite, from /tmp."
    )


for _backend in BACKENDS.values():
    wheel_session(_backend)
    verify_session(_backend)


@nox.session
def demo(session: nox.Session) -> None:
    """All four wheels, built and verified against forged vendors, preloaded and relinked; ends with the table."""
    ask_for_space(session, DEMO)
    install(session, "bundle")
    # The plugin is the same for all backends: PyTorch's whole operator database is gone through on the first.
    for backend, suite in zip(BACKENDS.values(), chain(["full"], repeat("core"))):  # noqa: B905 - the second never ends
        session.run("python", "-m", "bundle", "wheel", "--backend", backend.name, "--forged", *session.posargs)
        strategies = {"preload": suite}
        if backend.core is CoreSource.VENDOR:
            # A stock core stays what it is when its extras are linked: there is nothing to see in a second run.
            strategies["relink"] = "core"
        for strategy, extent in strategies.items():
            verify = ["python", "-m", "bundle", "verify", "--backend", backend.name, "--forged"]
            # 1 means findings: the table below shows them, and fails.
            session.run(*verify, "--strategy", strategy, "--suite", extent, success_codes=[0, 1])
    session.run("python", "-m", "bundle", "report", "--forged")


@nox.session
def tests(session: nox.Session) -> None:
    """Unit tests, spread over processes, then end-to-end tests (-- arguments start one pytest with just these)."""
    if not session.posargs:
        ask_for_space(session, TESTS)
    install(session, "tests")
    if session.posargs:
        session.run("python", "-m", "pytest", *session.posargs)
        return
    session.run("python", "-m", "pytest", "tests/unit", "--numprocesses=auto", "--maxprocesses=4")
    # In two: tests/e2e/conftest.py keeps together what shares wheels, or vendors, that take minutes to build.
    session.run("python", "-m", "pytest", "tests/e2e", "--numprocesses=2", "--dist=loadgroup")


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, clang-format and codespell over everything, without changing anything."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    sources = [str(path) for suffix in ("h", "c", "cpp") for path in Path().glob(f"t*/**/*.{suffix}")]
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    session.run("codespell")


@nox.session
def typecheck(session: nox.Session) -> None:
    """Mypy, strict, over everything."""
    install(session, "typecheck")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated parts of docs/ anew."""
    install(session, "bundle")
    session.run("python", "-m", "bundle", "docs")


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks that need no device, as ratios (-- names of scripts in benchmarks/)."""
    install(session, "bundle")
    for name in session.posargs or ["repack"]:
        session.run("python", f"benchmarks/{name}.py")
