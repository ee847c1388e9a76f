"""JSON objects as dataclasses, each value of the type that its field declares: what is read is never guessed at."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from typing import TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class ShapeError(ValueError):
    """A value of another shape than declared; the text names the key, what it is and what was expected."""


def load_json(text: str) -> object:
    """Parse JSON.

    Raises:
        ShapeError: not JSON, or nested deeper than any record of this project.
    """
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ShapeError(f"not JSON: {err}") from err
    return data


def read_record(kind: type[T], data: object, *, where: str = "") -> T:
    """Make a dataclass of a JSON object, which must have exactly its fields; arrays become tuples.

    Fields may be str, int, float, bool, a dataclass, `X | None`, `tuple[X, ...]` or `dict[str, X]`.

    Raises:
        ShapeError: a key is missing or unknown, or a value is of another type; `where` is the path of keys so far.
    """
    if not isinstance(data, dict):
        raise ShapeError(_mismatch(data, where or "the record", "an object"))
    hints = get_type_hints(kind)
    prefix = f"{where}." if where else ""
    faults = [f"{prefix}{key} is missing" for key in sorted(hints.keys() - data.keys())]
    faults += [f"{prefix}{key} is unknown" for key in sorted(data.keys() - hints.keys())]
    if faults:
        raise ShapeError(", ".join(faults))
    return kind(**{name: _value(hint, data[name], f"{prefix}{name}") for name, hint in hints.items()})


def _value(kind: object, value: object, where: str) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return read_record(kind, value, where=where)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if type(None) in arguments:
        return None if value is None else _value(arguments[0], value, where)
    # Exactly: a bool is an int to Python, but not to a reader.
    if type(value) is kind:
        return value
    names: dict[object, str] = {str: "text", int: "a whole number", float: "a fraction", bool: "true or false"}
    raise ShapeError(_mismatch(value, where, names.get(kind, "an array" if origin is tuple else "an object")))


def _mismatch(value: object, where: str, expected: str) -> str:
    return f"{where} is {json.dumps(value)[:80]}, expected {expected}"
