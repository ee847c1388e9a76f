"""The commands of torch_fl: `python -m torch_fl COMMAND`, or `torch-fl COMMAND`. None of them imports torch."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.cli_maps import describe_maps, maps_of_child, maps_of_process
from torch_fl_boot.cli_relink import relink_torch, restore_torch
from torch_fl_boot.doctor import examine
from torch_fl_boot.doctor_install import read_installation
from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.report import to_json
from torch_fl_boot.start import package_folder
from torch_fl_boot.status import read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DONE, PROBLEM, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES: Mapping[int, str] = {
    DONE: "done, and nothing is wrong",
    PROBLEM: "`status`: not usable; `doctor`: findings of severity error; `maps`: a mixed core",
    USAGE: "wrong usage",
    REFUSED: "the command could not do its work; the error says why and what to do",
    INTERRUPTED: "interrupted from the keyboard",
}
_BAR_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: its name and help, how its options are declared, and what runs it; `run` returns an exit code."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], int]
    declare: Callable[[argparse.ArgumentParser], None] = lambda _: None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, one of EXIT_CODES."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.command.run(arguments)
        sys.stdout.flush()
    except FlagosImportError as err:
        sys.stderr.write(f"torch_fl: error: {err}\n")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader had enough. What Python flushes at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
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


def say(lines: Iterable[str]) -> None:
    """Print to stdout."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _status(arguments: argparse.Namespace) -> int:
    status = read_status(package_folder(), os.environ)
    say([to_json("status", status)] if arguments.json else status.lines())
    return DONE if status.usable else PROBLEM


def _doctor(arguments: argparse.Namespace) -> int:
    found = examine(package_folder(), os.environ, None if arguments.quick else progress_bar())
    say([to_json("doctor", found)] if arguments.json else found.lines(libraries=arguments.libraries))
    return DONE if found.ok else PROBLEM


def _declare_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not read the bundle to check its sha256 sums")
    parser.add_argument("--libraries", action="store_true", help="print where each DT_NEEDED entry resolves")


def progress_bar() -> Callable[[str, int, int], None]:
    """Return what shows how far the hashing is, on a terminal; elsewhere it does nothing."""
    if not sys.stderr.isatty():
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


def _maps(arguments: argparse.Namespace) -> int:
    pid: int | None = arguments.pid
    text = maps_of_child(os.environ) if pid is None else maps_of_process(pid)
    installation, _ = read_installation(package_folder())
    found = describe_maps(text, installation, pid)
    say([to_json("maps", found)] if arguments.json else found.lines())
    return PROBLEM if found.problems else DONE


def _relink(arguments: argparse.Namespace) -> int:
    changed = relink_torch(package_folder(), arguments.torch)
    say([to_json("relink", changed)] if arguments.json else changed.lines())
    return DONE


def _restore(arguments: argparse.Namespace) -> int:
    changed = restore_torch(arguments.torch)
    say([to_json("restore", changed)] if arguments.json else changed.lines())
    return DONE


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
