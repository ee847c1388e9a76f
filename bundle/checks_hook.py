"""Check B014: what makes plain `import torch` suffice, and nothing beside it that runs unasked."""

from __future__ import annotations

from configparser import ConfigParser
from configparser import Error as ConfigError
from typing import TYPE_CHECKING

from bundle.checks import PACKAGE, Check, Pairs

if TYPE_CHECKING:
    from bundle.checks import Subject

HOOK_FILE = f"{PACKAGE}.pth"
HOOK = "import torch_fl_boot.hook\n"
"""What every interpreter runs at its start, in each environment that the wheel is installed in."""

_CUSTOMIZERS = ("sitecustomize", "usercustomize")
"""Modules or packages that Python imports at its start wherever they lie on its path."""

ENTRY_POINTS_FILE = "entry_points.txt"
ENTRY_POINTS = {
    "console_scripts": {"torch-fl": "torch_fl_boot.cli:main"},
    # How torch finds the plugin at the end of its own import.
    "torch.backends": {PACKAGE: "torch_fl_boot.autoload:load"},
}


def _hook(subject: Subject) -> Pairs:
    if HOOK_FILE not in subject.texts:
        yield HOOK_FILE, "is missing"
    elif subject.texts[HOOK_FILE] != HOOK:
        yield HOOK_FILE, f"says {subject.texts[HOOK_FILE]!r}, expected {HOOK!r}"
    for name in sorted(subject.digests):
        if name != HOOK_FILE and (name.endswith(".pth") or name.partition("/")[0].partition(".")[0] in _CUSTOMIZERS):
            yield name, f"runs at every interpreter's start, as {HOOK_FILE} alone may"


def _entry_points(subject: Subject) -> Pairs:
    where = f"{subject.dist_info}/{ENTRY_POINTS_FILE}"
    if where not in subject.texts:
        yield where, "is missing"
        return
    parser = ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of entry points keep their case
    try:
        parser.read_string(subject.texts[where])
    except ConfigError as err:
        yield where, f"cannot be read: {str(err).splitlines()[0]}"
        return
    found = {name: dict(parser[name]) for name in parser.sections()}
    if found != ENTRY_POINTS:
        yield where, f"says {found}, expected {ENTRY_POINTS}"


def _both(subject: Subject) -> Pairs:
    yield from _hook(subject)
    yield from _entry_points(subject)


CHECKS: tuple[Check, ...] = (
    Check(
        code="B014",
        title="The hook of `import torch` is missing or not ours",
        cause="The wheel was compiled before there was one, or holds a file that runs at every interpreter's start.",
        fix="Run `inv compile` again, then the other stages.",
        find=_both,
    ),
)
