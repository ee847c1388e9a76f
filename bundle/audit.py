"""The audit of a wheel: everything is read once, then every check runs over what was read."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bundle import checks_bundle, checks_container, checks_elf, checks_hook
from bundle.checks import PACKAGE, Check, Finding, Subject, is_plugin_library
from bundle.elf import ElfInfo, read_elf
from bundle.errors import MalformedError, about
from bundle.manifest import BUILD_FILE, BUNDLE_FILE, BuildRecord, Manifest
from bundle.record import RECORD, Digest
from bundle.sbom import sbom_path
from bundle.scratch import scratch_folder
from bundle.space import require_temporary
from bundle.wheelfile import is_shared_object, open_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bundle.wheelfile import Entry, WheelView

SCHEMA = 1
CHECKS: tuple[Check, ...] = (
    *checks_container.CHECKS,
    *checks_hook.CHECKS,
    *checks_bundle.CHECKS,
    *checks_elf.CHECKS,
)

BUILD_ROOTS = (
    *("home", "root", "tmp", "build", "work", "Users", "mnt", "var/tmp"),
    *("opt/hostedtoolcache", "github"),
)
"""Top directories that exist on build machines and that no target's library should name."""

_INTRODUCTION = (
    "`inv audit` reads a wheel and reports what is wrong with it, each finding under a code that keeps its meaning.\n"
    "Exit status: 0 for a clean wheel, 1 for any finding, 4 where there is no such file, 8 for a file that is no wheel."
)
_CHUNK = 1 << 20
_THREADS = 2
_PATH_CHARACTER = rb"[\w.+\-/@~]"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit found; empty `findings` mean a clean wheel. `facts` are pairs of name and text, for information."""

    wheel: str
    findings: tuple[Finding, ...]
    facts: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """Return the report as JSON with sorted keys; `schema` numbers its form."""
        titles = {check.code: check.title for check in CHECKS}
        return json.dumps(
            {
                "schema": SCHEMA,
                "wheel": self.wheel,
                "findings": [{**asdict(finding), "title": titles[finding.code]} for finding in self.findings],
                "facts": dict(self.facts),
            },
            indent=2,
            sort_keys=True,
        )

    def lines(self) -> tuple[str, ...]:
        """Return the report as text: the wheel, facts, findings, and one line that counts them."""
        count = len(self.findings)
        return (
            f"wheel: {self.wheel}",
            *(f"{name}: {text}" for name, text in self.facts),
            *map(str, self.findings),
            f"{self.wheel}: {count or 'no'} finding{'' if count == 1 else 's'}",
        )


def audit(wheel: Path, *, forbidden: tuple[str, ...] = ()) -> AuditReport:
    """Run every check over a wheel.

    `forbidden` are path prefixes of this build machine which, besides the usual ones, no compiled file may hold.

    Raises:
        InputNotFoundError: no such wheel.
        MalformedError: the file is no wheel, or its data is damaged so that it cannot be read at all.
    """
    with open_wheel(wheel) as view:
        subject = read_subject(view, forbidden=forbidden)
    findings = tuple(finding for check in CHECKS for finding in check.findings(subject))
    size = wheel.stat().st_size
    return AuditReport(wheel=wheel.name, findings=findings, facts=_facts(subject, size))


@dataclass(frozen=True, kw_only=True)
class _Member:
    """What was read of one member."""

    name: str
    digest: Digest
    text: str | None = None
    elf: ElfInfo | None = None
    damage: str = ""
    paths: tuple[str, ...] = ()


def read_subject(view: WheelView, *, forbidden: tuple[str, ...] = ()) -> Subject:
    """Read all that checks look at: every member once, one shared object per thread unpacked at a time."""
    texts = {
        f"{PACKAGE}/{BUILD_FILE}",
        f"{PACKAGE}/{BUNDLE_FILE}",
        sbom_path(view.dist_info),
        checks_hook.HOOK_FILE,
        *(f"{view.dist_info}/{name}" for name in ("METADATA", "WHEEL", RECORD, checks_hook.ENTRY_POINTS_FILE)),
    }
    pattern = build_path_pattern(forbidden)
    stop = threading.Event()

    def read(entry: Entry) -> _Member:
        if entry.name in texts:
            return _read_text(view, entry.name, pattern)
        if is_shared_object(entry.name):
            return _read_library(view, entry.name, pattern, scratch, stop)
        return _Member(name=entry.name, digest=_copy(view, entry.name, None, stop))

    # The largest first, so that the threads end together.
    entries = {entry.name: entry for entry in view.files}
    by_size = sorted(entries.values(), key=lambda entry: (-entry.size, entry.name))
    libraries = [entry.size for entry in by_size if is_shared_object(entry.name)]
    with scratch_folder("torch_fl-audit-") as scratch, ThreadPoolExecutor(_THREADS) as pool:
        require_temporary(f"{view.path.name}: the audit", sum(libraries[:_THREADS]))
        try:
            members = {member.name: member for member in pool.map(read, by_size)}
        except BaseException:
            # Interrupted, or of no use any more; leaving the pool waits for its threads.
            stop.set()
            raise
    return _subject(view, members)


def _subject(view: WheelView, members: dict[str, _Member]) -> Subject:
    texts = {name: member.text for name, member in members.items() if member.text is not None}
    build, build_problem = _parsed(texts, f"{PACKAGE}/{BUILD_FILE}", BuildRecord.from_json)
    manifest, manifest_problem = _parsed(texts, f"{PACKAGE}/{BUNDLE_FILE}", Manifest.from_json)
    return Subject(
        name=view.path.name,
        dist_info=view.dist_info,
        entries=view.entries,
        digests={name: member.digest for name, member in members.items()},
        texts=texts,
        elves={name: member.elf for name, member in members.items() if member.elf},
        damaged={name: member.damage for name, member in members.items() if member.damage},
        paths={name: member.paths for name, member in members.items() if member.paths},
        build=build,
        manifest=manifest,
        build_problem=build_problem,
        manifest_problem=manifest_problem,
    )


def _parsed(texts: dict[str, str], name: str, parse: Callable[..., T]) -> tuple[T | None, str]:
    if name not in texts:
        return None, "is missing"
    try:
        return parse(texts[name], origin=name), ""
    except MalformedError as err:
        return None, str(err).removeprefix(f"{name}: ")


def _copy(view: WheelView, name: str, target: Path | None, stop: threading.Event) -> Digest:
    """Hash a member, and write it to a file where one is given; give up when told to stop."""
    digest, size = hashlib.sha256(), 0
    scratch = target or Path("/dev/null")
    with about(scratch), view.open(name) as source, scratch.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            if stop.is_set():
                raise CancelledError
            digest.update(chunk)
            size += len(chunk)
            sink.write(chunk)
    return Digest(sha256=digest.hexdigest(), size=size)


def _read_text(view: WheelView, name: str, pattern: re.Pattern[bytes]) -> _Member:
    data = view.read(name)
    return _Member(
        name=name,
        digest=Digest(sha256=hashlib.sha256(data).hexdigest(), size=len(data)),
        text=data.decode("utf-8", "replace"),
        # METADATA holds the README, which may speak of any path.
        paths=_found(pattern, data) if name.endswith(".json") else (),
    )


def _read_library(
    view: WheelView, name: str, pattern: re.Pattern[bytes], scratch: Path, stop: threading.Event
) -> _Member:
    target = scratch / hashlib.sha256(name.encode()).hexdigest()
    try:
        digest = _copy(view, name, target, stop)
        paths = _paths_in(target, pattern) if is_plugin_library(name) else ()
        try:
            return _Member(name=name, digest=digest, elf=read_elf(target), paths=paths)
        except MalformedError as err:
            return _Member(name=name, digest=digest, damage=str(err).removeprefix(f"{target}: "), paths=paths)
    finally:
        target.unlink(missing_ok=True)


def build_path_pattern(forbidden: Iterable[str]) -> re.Pattern[bytes]:
    """Return a pattern of paths of build machines: those below BUILD_ROOTS, exact prefixes, and out of a build tree."""
    roots = "|".join(re.escape(root) for root in BUILD_ROOTS).encode()
    exact = b"".join(b"|" + re.escape(prefix.encode()) for prefix in forbidden if prefix)
    # What precedes tells the start of an absolute path from the middle of one.
    absolute = rb"(?<![\w.\-/])/(?:" + roots + rb")/" + _PATH_CHARACTER + rb"+"
    # As compiler caches hand paths on; those of RUNPATHs begin with $ORIGIN/.
    relative = rb"|(?<![\w./])(?:\.\./){2,}" + _PATH_CHARACTER + rb"+"
    return re.compile(absolute + relative + _exact(exact))


def _exact(alternatives: bytes) -> bytes:
    return alternatives and rb"|(?:" + alternatives[1:] + rb")" + _PATH_CHARACTER + rb"*"


def _paths_in(path: Path, pattern: re.Pattern[bytes]) -> tuple[str, ...]:
    with path.open("rb") as stream:
        if not path.stat().st_size:
            return ()
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _found(pattern, data)


def _found(pattern: re.Pattern[bytes], data: bytes | mmap.mmap) -> tuple[str, ...]:
    return tuple(sorted({match.group().decode("utf-8", "replace") for match in pattern.finditer(data)}))


def _facts(subject: Subject, size: int) -> tuple[tuple[str, str], ...]:
    bundled = subject.bundled
    manifest = subject.manifest
    plugin = [subject.elves[path] for path in subject.plugin]
    others = [subject.elves[path] for path in bundled if path in subject.elves]
    versions = [
        (f"newest {prefix} needed by {what}", checks_elf.newest(elves, prefix) or "none")
        for what, elves in (("the plugin", plugin), ("the bundle", others))
        for prefix, _ in checks_elf.FLOOR
    ]
    return (
        ("backend", manifest.backend if manifest else "none"),
        ("forged", str(manifest.forged).lower() if manifest else "unknown"),
        ("bundle files", str(len(bundled))),
        ("bundle bytes", str(sum(subject.digests[path].size for path in bundled))),
        ("wheel bytes", str(size)),
        *versions,
    )


def codes_markdown() -> str:
    """Return docs/audit-codes.md."""
    parts = [
        "# Audit codes",
        _INTRODUCTION,
        "B0xx: the wheel as a file and its metadata. B1xx: its identity and its bundle. B2xx: its shared objects.",
        "<!-- Written from the checks themselves by bundle.audit.codes_markdown(); a test compares. -->",
    ]
    for check in CHECKS:
        parts += [f"## {check.code}: {check.title}", f"Cause: {check.cause}", f"Fix: {check.fix}"]
    return "\n\n".join(parts) + "\n"
