"""Auditing wheels that were made with exactly one fault."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bundle.audit import audit
from tests.support.wheels import RawEntry, WheelSpec, entries, write_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LIB = "torch_fl/lib/libtorch_fl.so"
FLAGOS = "torch_fl/lib/libflagos.so"
SHM = "torch_fl/lib_maca/libshm.so"
C10 = "torch_fl/lib_maca/libc10.so"
CPU = "torch_fl/lib_maca/libtorch_cpu.so"
MANIFEST = "torch_fl/_bundle.json"
INFO = "torch_fl-0.1.0+metax.dist-info"
RECORD = f"{INFO}/RECORD"
NAME = "torch_fl-0.1.0+metax-cp312-cp312-linux_x86_64.whl"


def found(path: Path, **options: Any) -> list[tuple[str, str, str]]:
    """Audit a wheel and return code, place and detail of each finding."""
    return [(finding.code, finding.where, finding.detail) for finding in audit(path, **options).findings]


def raw_audit(tmp_path: Path, change: Callable[[RawEntry], Iterable[RawEntry]]) -> list[tuple[str, str, str]]:
    """Audit a clean wheel whose zip entries were changed one by one; `change` returns entries for an entry."""
    clean = WheelSpec().write(tmp_path)
    raw = [result for entry in entries(clean) for result in change(entry)]
    return found(write_raw(clean, raw))


def changed_elf(path: str, spec: WheelSpec | None = None, **changes: Any) -> WheelSpec:
    """Return a clean spec in which one library is another; the manifest follows."""
    spec = spec or WheelSpec()
    spec.elves[path] = replace(spec.elves[path], **changes)
    return spec


def changed_members(spec: WheelSpec, **changes: Any) -> dict[str, bytes]:
    """Return the members of a wheel with JSON keys of its manifest changed afterwards, hashes and SBOM left alone."""
    members = spec.members()
    manifest = json.loads(members[MANIFEST])
    members[MANIFEST] = json.dumps({**manifest, **changes}).encode()
    return members
