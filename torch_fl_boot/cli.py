"""The commands of torch_fl: `python -m torch_fl COMMAND`, or `torch-fl COMMAND`. None of them imports torch."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.cli_maps import describe_maps, maps_of_child, maps_of_process
from torch_fl_boot.cli_relink import relink_torch, restore_torch
from torch_fl_boot.doctor import examine
from torch_fl_boot.doctor_install import read_installation
from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.notice import say
from torch_fl_boot.report import INTERRUPTION, Failure, to_json, write_answer
from torch_fl_boot.start import package_folder
from torch_fl_boot.status import read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch_fl_boot.report import DataclassInstance

DONE, PROBLEM, USAGE, REFUSED, BUG, INTERRUPTED = 0, 1, 2, 3, 70, 130
EXIT_CODES: Mapping[int, str] = {
    DONE: "done, and nothing is wrong",
    PROBLEM: "`status`: not usable; `doctor`: findings of severity error; `maps`: a mixed core",
    USAGE: "wrong usage",
    REFUSED: "the command could not do its work; the error says why and what to do",
    BUG: "a fault of torch_fl itself; the traceback is on stderr",
    INTERRUPTED: "interrupted from the keyboard",
}
_BAR_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command found: the object for `--json`, the same as lines of text, and the exit code."""

    content: DataclassInstance
    lines: Iterable[str]
    code: int = DONE


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: its name and help, how its options are declared, and what runs it."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], Answer]
    declare: Callable[[argparse.ArgumentParser], None] = lambda _: None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, one of EXIT_CODES; the only place that makes codes of errors."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        answer = command.run(arguments)
        text = to_json(command.name, answer.content) if arguments.json else "\n".join(answer.lines)
        return answer.code if write_answer(text) else REFUSED
    except FlagosImportError as err:
        code, failure = REFUSED, Failure(error=type(err).__name__, what=err.what, hint=err.hint)
    except OSError as err:
        names = " -> ".join(str(name) for name in (err.filename, err.filename2) if name is not None)
        what = f"{names or 'a file or process'}: {err.strerror or err}"
        hint = "look at the path, its permissions, the free space and the limits of this process, then run it again"
        code, failure = REFUSED, Failure(error="OSError", what=what, hint=hint)
    except KeyboardInterrupt:
        code, failure = INTERRUPTED, INTERRUPTION
    except Exception as err:  # noqa: BLE001 - whatever is not a refusal is a mistake, and says so
        say(traceback.format_exc())
        what, hint = f"{type(err).__name__}: {err}", "this is a fault of torch_fl, please report it"
        code, failure = BUG, Failure(error=type(err).__name__, what=what, hint=hint)
    say(f"error: {failure.what}\nhint: {failure.hint}")
    if arguments.json:
        write_answer(to_json(command.name, failure))
    return code


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = argparse.ArgumentParser(
        prog="torch_fl",
        description="Look at torch_fl and the torch it runs on, without importing torch.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.help, description=command.help)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        command.declare(sub)
        sub.set_defaults(command=command)
    return parser


def _status(_: argparse.Namespace) -> Answer:
    status = read_status(package_folder(), os.environ)
    return Answer(content=status, lines=status.lines(), code=DONE if status.usable else PROBLEM)


def _doctor(arguments: argparse.Namespace) -> Answer:
    found = examine(package_folder(), os.environ, None if arguments.quick else progress_bar())
    lines = found.lines(libraries=arguments.libraries)
    return Answer(content=found, lines=lines, code=DONE if found.ok else PROBLEM)


def _declare_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not read the bundle to check its sha256 sums")
    parser.add_argument("--libraries", action="store_true", help="print where each DT_NEEDED entry resolves")


def progress_bar() -> Callable[[str, int, int], None]:
    """Return what shows how far the hashing is, on a terminal; elsewhere it does nothing."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _name, _done, _total: None
    return partial(_show, [0])


def _show(shown: list[int], name: str, done: int, total: int) -> None:
    """Rewrite one line, at each new file and every 16 MiB."""
    if name and done // _BAR_BYTES == shown[0]:
        return
    shown[0] = done // _BAR_BYTES
    text = f"sha256 {done / 1e6:.0f} of {total / 1e6:.0f} MB {name}" if name else ""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def _maps(arguments: argparse.Namespace) -> Answer:
    pid: int | None = arguments.pid
    text = maps_of_child(os.environ) if pid is None else maps_of_process(pid)
    installation, _ = read_installation(package_folder())
    found = describe_maps(text, installation, pid)
    return Answer(content=found, lines=found.lines(), code=PROBLEM if found.problems else DONE)


def _relink(arguments: argparse.Namespace) -> Answer:
    changed = relink_torch(package_folder(), arguments.torch)
    return Answer(content=changed, lines=changed.lines())


def _restore(arguments: argparse.Namespace) -> Answer:
    changed = restore_torch(arguments.torch)
    return Answer(content=changed, lines=changed.lines())


def _declare_torch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--torch", type=Path, help="the torch package (default: the one that `import torch` takes)")


def _declare_maps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", nargs="?", type=int, help="a running process (default: a child that imports torch)")


COMMANDS = (
    Command(name="status", help="which state holds: versions, backend, hook, variables", run=_status),
    Command(name="doctor", help="check everything and say what to do", run=_doctor, declare=_declare_doctor),
    Command(name="relink", help="make torch/lib lead to the bundle", run=_relink, declare=_declare_torch),
    Command(name="restore", help="give torch its own libraries back", run=_restore, declare=_declare_torch),
    Command(name="maps", help="which file each library of torch comes from", run=_maps, declare=_declare_maps),
)
