"""What a torch package's `version.py` assigns, read without importing it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from bundle.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LEADING_NUMBERS = re.compile(r"\d+\.\d+\.\d+")


def read_assigned(path: Path) -> Mapping[str, str]:
    """Return the top-level names that are bound to a string, annotated (`hip: Optional[str] = '6.3'`) or bare.

    Names bound to None are left out: every torch, stock too, has `hip`, `rocm` and `cuda` in its text.

    Raises:
        MalformedError: the file is not Python.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, ValueError) as err:
        raise MalformedError(f"{path}: not a readable version.py: {err}") from err
    return dict(_assignments(tree))


def _assignments(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))


def base_version(version: str, *, origin: str) -> str:
    """Return the release part: "2.10.0" of "2.10.0+das.opt1.dtk2604".

    Raises:
        MalformedError: the text does not start with a version; `origin` says where it came from.
    """
    try:
        return Version(version).base_version
    except InvalidVersion:
        # Vendors are free to write what PEP 440 forbids ("2.10.0-metax.3"); its release part is what counts.
        found = _LEADING_NUMBERS.match(version)
    if found is None:
        raise MalformedError(f"{origin}: {version!r} is not a version of torch; expected something like 2.10.0")
    return found[0]
