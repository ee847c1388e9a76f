"""`python -m bundle`: arguments to a request, a request to a stage, and every refusal to its exit code."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bundle import commands
from bundle.backends import BACKENDS, CoreSource
from bundle.errors import UnknownBackendError
from bundle.guard import guarded
from bundle.interpreters import SUPPORTED
from bundle.pipeline import Request
from bundle.reports import STRATEGIES
from bundle.selection import describe_choices
from bundle.ui import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

_STAGE_COMMAND = re.compile(r"`(inv \w+ --backend [\w-]+)`")


def _path(text: str) -> Path:
    if not text:
        # An unset variable of the caller's; Path("") would be the current directory.
        raise argparse.ArgumentTypeError("an empty text; expected a path")
    return Path(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number of at least 0")
    return int(text)


def _backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", default="", metavar="NAME", help=f"one of {', '.join(BACKENDS)}")
    parser.add_argument("--python", choices=SUPPORTED, help="Python to build for (default: the backend's)")
    parser.add_argument("--forged", action="store_true", help="use a vendor-shaped torch made from stock torch")


def _inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vendor-torch", type=_path, metavar="DIR", help="the vendor's torch package or its lib folder"
    )
    parser.add_argument("--vendor-version", metavar="V", help="version of a vendor torch that has no version.py")
    parser.add_argument("--sdk-root", type=_path, metavar="DIR", help="root of the vendor's SDK on this machine")
    parser.add_argument("--target-sdk-root", type=_path, metavar="DIR", help="root of the SDK on the target machines")
    parser.add_argument(
        "--core", choices=[core.value for core in CoreSource], help="override where the core comes from"
    )


def _label(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label", help="local version label; empty for none (default: the backend's)")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _tests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wheel", type=_path, metavar="FILE", help="the wheel to verify (default: the one in dist/)")
    parser.add_argument(
        "--workers", type=_count, default=0, metavar="N", help="test processes (default: one per CPU, 8 at most)"
    )
    parser.add_argument("--strategy", choices=STRATEGIES, help="FLAGOS_CORE of the tests (default: the wheel's own)")
    parser.add_argument(
        "--suite",
        choices=("core", "full"),
        default="full",
        help="core: one operator of each family, and nothing of the plugin alone (default: full)",
    )
    parser.add_argument("pytest_arguments", nargs="*", help="handed to pytest, after --")


def _audited(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", type=_path, nargs="?", help="path of a wheel (default: the one of --backend in dist/)")


def _reported(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--forged", action="store_true", help="those of forged vendors alone")


COMMANDS = {
    "compile": (commands.compile_command, "compile the plugin: a thin wheel", (_backend,)),
    "plan": (commands.plan_command, "show what the bundle stage would do", (_backend, _inputs, _json)),
    "bundle": (commands.bundle_command, "collect the vendor's libraries", (_backend, _inputs)),
    "repack": (commands.repack_command, "join thin wheel and bundle", (_backend, _label)),
    "wheel": (commands.wheel_command, "compile, bundle, repack and audit", (_backend, _inputs, _label)),
    "audit": (commands.audit_command, "check a finished wheel", (_audited, _backend, _json)),
    "verify": (commands.verify_command, "install the wheel beside stock torch and test it", (_backend, _tests, _json)),
    "forge": (commands.forge_command, "make a vendor-shaped torch from stock torch", (_backend,)),
    "report": (commands.report_command, "show the table of all verifications", (_reported,)),
    "clean": (commands.clean_command, "remove a backend's build folders", (_backend,)),
    "docs": (commands.docs_command, "write the generated parts of docs/", ()),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bundle", description="Build self-contained torch_fl wheels.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (run, title, parts) in COMMANDS.items():
        sub = subparsers.add_parser(name, help=title, description=title)
        sub.set_defaults(run=run)
        for part in parts:
            part(sub)
        sub.add_argument("-v", "--verbose", action="store_true", help="echo every command that is run")
        sub.add_argument("--traceback", action="store_true", help="show the traceback of a refusal")
    return parser


def _request(arguments: argparse.Namespace, environ: dict[str, str]) -> Request | None:
    given = vars(arguments)
    # The audit of a wheel needs no backend: the wheel says which it is.
    if "backend" not in given or (given["command"] == "audit" and given["wheel"] and not given["backend"]):
        return None
    if given["backend"] not in BACKENDS:
        missing = "neither a wheel nor --backend" if given["command"] == "audit" else "no --backend"
        found = f"unknown backend {given['backend']!r}" if given["backend"] else missing
        raise UnknownBackendError(f"{found}; there are\n{describe_choices()}")
    label = given.get("label")
    core = given.get("core")
    return Request(
        backend=BACKENDS[given["backend"]],
        forged=given["forged"],
        python=given["python"],
        vendor_torch=given.get("vendor_torch"),
        vendor_version=given.get("vendor_version") or environ.get("TORCH_FL_VENDOR_TORCH_VERSION") or None,
        sdk_root=given.get("sdk_root"),
        target_sdk_root=given.get("target_sdk_root"),
        core=CoreSource(core) if core else None,
        label=environ.get("FLAGOS_WHEEL_LOCAL") if label is None else label,
        wheel=given.get("wheel"),
        workers=given.get("workers", 0),
        strategy=given.get("strategy"),
        suite=given.get("suite", "full"),
        pytest_arguments=tuple(given.get("pytest_arguments", ())),
    )


def _hint_for(hint: str, arguments: argparse.Namespace) -> str:
    """Return a refusal's hint for this run: the commands in it are about the same kind of vendor."""
    return _STAGE_COMMAND.sub(r"`\1 --forged`", hint) if vars(arguments).get("forged") else hint


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (bundle/errors.py lists them)."""
    arguments = _parser().parse_args(argv)
    ui = Reporter(verbose=arguments.verbose)
    environ = dict(os.environ)

    def work() -> int:
        request = _request(arguments, environ)
        code: int = arguments.run(commands.Call(arguments=arguments, asked=request, environ=environ, ui=ui))
        return code

    return guarded(work, ui, show_traceback=arguments.traceback, reworded=lambda hint: _hint_for(hint, arguments))
