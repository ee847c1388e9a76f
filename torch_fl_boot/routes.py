"""Which kernel an operator gets: routing files and variables as data; `torch_fl.flagos.routing` applies it.

A routing file has one `operator = target` per line. `#` starts a comment anywhere, later lines win, `include <path>`
reads another file in its place, relative to the one that includes it. docs/routing.md tells the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIG_VARIABLE = "FLAGOS_BACKEND_CONFIG"
OPERATOR_PREFIX = "FLAGOS_OP_"
INCLUDE_DEPTH = 8
"""Files that may be open at once: the first one and seven that it includes, one within the other."""

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_INCLUDE = re.compile(r"include(?:\s+(?P<path>[^=\s].*))?")


class Target(Enum):
    """Where an operator's kernel comes from; the values are what files and log lines say."""

    CUDA = "cuda"
    PYTHON = "flagos_python"
    CPU = "cpu"


_TARGETS = {target.value: target for target in Target} | {"flaggems_python": Target.PYTHON}
_CPP_TARGETS = ("flagos", "flaggems")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: where it stands, what was found there, what would be right."""

    where: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.where}: {self.found}; expected {self.expected}"


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operator's kernel. `function` is `module:function` for a Python callable that was named, else None."""

    operator: str
    target: Target
    where: str
    function: str | None = None


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What files and variables say, in order; `ignored` are lines that say nothing."""

    routes: tuple[Route, ...] = ()
    problems: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()

    def __add__(self, other: Parsed) -> Parsed:
        return Parsed(
            routes=self.routes + other.routes,
            problems=self.problems + other.problems,
            ignored=self.ignored + other.ignored,
        )


def qualified(operator: str) -> str:
    """Return an operator's full name; names without a namespace are ATen's."""
    return operator if "::" in operator else f"aten::{operator}"


def short(operator: str) -> str:
    """Return an operator's name as files and log lines write it: ATen's without the namespace."""
    return operator.removeprefix("aten::")


def variable_of(operator: str) -> str:
    """Return the environment variable that routes an ATen operator: `add.Tensor` has FLAGOS_OP_add__Tensor."""
    return OPERATOR_PREFIX + short(operator).replace(".", "__")


def parse_route(operator: str, value: str, where: str) -> Parsed:
    """Read one target: `cuda`, `cpu`, `flagos_python`, or `flagos_python module:function`."""
    name, function = (*value.split(maxsplit=1), "", "")[:2]
    function = function.strip()
    choices = f"one of {', '.join(target.value for target in Target)}"
    if not operator:
        return _problem(where, f"no operator before '= {value.strip()}'", "an operator such as add.Tensor")
    if name in _CPP_TARGETS:
        choices += " (this plugin has no C++ operators of FlagGems)"
    if name not in _TARGETS:
        found = f"target '{name}' for {operator}" if name else f"no target for {operator}"
        return _problem(where, found, choices)
    target = _TARGETS[name]
    if function and target is not Target.PYTHON:
        return _problem(where, f"'{function}' after target '{name}' for {operator}", "nothing more")
    if function and not _CALLABLE.fullmatch(function):
        return _problem(where, f"Python callable '{function}' for {operator}", "module:function")
    route = Route(operator=qualified(operator), target=target, where=where, function=function or None)
    return Parsed(routes=(route,))


def parse_file(path: Path, *, named_at: str, including: tuple[Path, ...] = ()) -> Parsed:
    """Read a routing file and all it includes. What is wrong comes back as problems, all at once; nothing is raised.

    `named_at` says who named the file, `including` are the files that are open already, outermost first.
    """
    resolved = path.resolve()
    if resolved in including:
        chain = " -> ".join(str(file) for file in (*including[including.index(resolved) :], resolved))
        return _problem(named_at, f"include cycle: {chain}", "files that do not include themselves")
    if len(including) >= INCLUDE_DEPTH:
        return _problem(named_at, f"include of {path} is level {len(including) + 1}", f"at most {INCLUDE_DEPTH} levels")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as err:
        return _problem(named_at, f"cannot read {path}: {err.strerror}", "a routing file")
    except UnicodeDecodeError as err:
        return _problem(str(path), f"byte {err.object[err.start]:#04x} at offset {err.start}", "UTF-8 text")
    parsed = Parsed()
    for number, line in enumerate(text.split("\n"), start=1):
        parsed += _parse_line(line.partition("#")[0].strip(), path, number, (*including, resolved))
    return parsed


def _parse_line(line: str, path: Path, number: int, including: tuple[Path, ...]) -> Parsed:
    where = f"{path}:{number}"
    if not line:
        return Parsed()
    if include := _INCLUDE.fullmatch(line):
        if include["path"] is None:
            return _problem(where, "include without a file", "include <path>")
        return parse_file(path.parent / include["path"].strip(), named_at=where, including=including)
    operator, equals, value = line.partition("=")
    if not equals:
        return Parsed(ignored=(f"{where}: '{line}' is no 'operator = target'",))
    return parse_route(operator.strip(), value, where)


def parse_variables(environ: Mapping[str, str], operators: Iterator[str] | frozenset[str]) -> Parsed:
    """Read FLAGOS_OP_<name>; `operators` are the full names of those that exist. Empty values count as unset."""
    asked = {key: value for key, value in environ.items() if key.startswith(OPERATOR_PREFIX) and value.strip()}
    parsed = Parsed()
    if not asked:
        return parsed
    known = {variable_of(operator): operator for operator in operators if operator.startswith("aten::")}
    for variable, value in sorted(asked.items()):
        # An unknown one keeps its spelling; it is refused with all other operators that do not exist.
        name = known.get(variable) or variable.removeprefix(OPERATOR_PREFIX).replace("__", ".")
        parsed += parse_route(short(name), value, f"environment variable {variable}")
    return parsed


def read_routes(environ: Mapping[str, str], operators: frozenset[str]) -> Parsed:
    """Read all that the environment asks for; of two routes for an operator the later one stays, a variable is last."""
    parsed = Parsed()
    if config := environ.get(CONFIG_VARIABLE, "").strip():
        parsed += parse_file(Path(config), named_at=f"environment variable {CONFIG_VARIABLE}")
    parsed += parse_variables(environ, operators)
    last = {route.operator: route for route in parsed.routes}
    return Parsed(routes=tuple(last.values()), problems=parsed.problems, ignored=parsed.ignored)


def _problem(where: str, found: str, expected: str) -> Parsed:
    return Parsed(problems=(Problem(where=where, found=found, expected=expected),))
