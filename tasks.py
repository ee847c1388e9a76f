"""Chores on an existing environment: single stages, and what looks at their results. `inv -l` lists them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import task

# invoke may be started from another folder with --search-root.
sys.path.insert(0, str(Path(__file__).parent))

from bundle.backends import BACKENDS
from bundle.cli import main

if TYPE_CHECKING:
    from invoke.context import Context


def _refuse_words_alone(words: list[str]) -> None:
    """Name the option that a wheel or a backend wants: invoke knows no optional argument without, and says so badly."""
    for before, word in zip(["", *words], words):  # noqa: B905 - the first is longer by the word before the first
        option = "--wheel" if word.endswith(".whl") else "--backend" if word in BACKENDS else ""
        taken = word.startswith("-") or (before.startswith("-") and before != "--forged")
        if option and not taken:
            raise Exit(f"inv: {word!r} stands alone; write {option} {word}", code=2)


_refuse_words_alone(sys.argv[1:])

# Optional for invoke, which would end with exit code 1 and without the names; bundle.cli refuses its absence.
BACKEND = f"One of: {', '.join(BACKENDS)}"
STAGE = {
    "backend": BACKEND,
    "forged": "Use a vendor-shaped torch made from stock torch",
    "vendor-torch": "The vendor's torch package, or its lib folder",
    "sdk-root": "Root of the vendor's SDK",
    "options": "Further options of `python -m bundle <stage>`, as one string",
}
PLAIN = {key: text for key, text in STAGE.items() if key not in {"vendor-torch", "sdk-root"}}


def _run(command: str, *arguments: str, forged: bool = False, options: str = "", **values: str) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value]
    try:
        further = shlex.split(options)
    except ValueError as err:
        raise Exit(f"--options {options!r}: {err}", code=2) from err
    code = main([command, *arguments, *(["--forged"] if forged else []), *flags, *further])
    if code:
        raise Exit(code=code)


@task(name="compile", help=PLAIN)
def compile_(_: Context, backend: str = "", forged: bool = False, options: str = "") -> None:
    """Compile the plugin against stock torch: sources in, a thin wheel out."""
    _run("compile", "--backend", backend, forged=forged, options=options)


@task(help=STAGE)
def bundle(
    _: Context, backend: str = "", forged: bool = False, vendor_torch: str = "", sdk_root: str = "", options: str = ""
) -> None:
    """Collect the vendor's libraries: vendor torch in, a bundle folder out."""
    _run("bundle", "--backend", backend, forged=forged, options=options, vendor_torch=vendor_torch, sdk_root=sdk_root)


@task(help=PLAIN)
def repack(_: Context, backend: str = "", forged: bool = False, options: str = "") -> None:
    """Join thin wheel and bundle into the self-contained wheel."""
    _run("repack", "--backend", backend, forged=forged, options=options)


@task(help=STAGE)
def wheel(
    _: Context, backend: str = "", forged: bool = False, vendor_torch: str = "", sdk_root: str = "", options: str = ""
) -> None:
    """Run compile, bundle, repack and audit."""
    _run("wheel", "--backend", backend, forged=forged, options=options, vendor_torch=vendor_torch, sdk_root=sdk_root)


@task(help=STAGE)
def plan(
    _: Context, backend: str = "", forged: bool = False, vendor_torch: str = "", sdk_root: str = "", options: str = ""
) -> None:
    """Show what the bundle stage would do; nothing is written."""
    _run("plan", "--backend", backend, forged=forged, options=options, vendor_torch=vendor_torch, sdk_root=sdk_root)


@task(help={**PLAIN, "wheel": "Path of a wheel (default: the one of the backend in dist/)"})
def audit(_: Context, backend: str = "", wheel: str = "", forged: bool = False, options: str = "") -> None:
    """Check a finished wheel; exit 1 on any finding."""
    _run("audit", *([wheel] if wheel else []), backend=backend, forged=forged, options=options)


@task(help={"backend": BACKEND, "options": STAGE["options"]})
def forge(_: Context, backend: str = "", options: str = "") -> None:
    """Make a vendor-shaped torch and SDK from stock torch, for machines without the vendor's."""
    _run("forge", "--backend", backend, options=options)


@task(help=PLAIN)
def verify(_: Context, backend: str = "", forged: bool = False, options: str = "") -> None:
    """Install the wheel beside stock torch in a fresh environment and run the integration suite there."""
    _run("verify", "--backend", backend, forged=forged, options=options)


@task(help={"backend": BACKEND})
def clean(_: Context, backend: str = "") -> None:
    """Remove a backend's build folders."""
    _run("clean", "--backend", backend)


ns = Collection(compile_, bundle, repack, wheel, plan, audit, forge, verify, clean)
