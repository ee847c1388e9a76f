"""The repack stage: a thin wheel and a bundle in, one self-contained wheel out.

The bundle is added to the plugin's own files, and everything that states the wheel's identity is written anew: the file
name, dist-info, METADATA's version and requirements, WHEEL's tag, the bill of materials, and RECORD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from email import message_from_bytes, policy
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bundle.audit import read_subject
from bundle.backends import Role
from bundle.bundling import load_bundle
from bundle.checks import PACKAGE
from bundle.checks_container import CHECKS as CONTAINER_CHECKS
from bundle.checks_hook import CHECKS as HOOK_CHECKS
from bundle.errors import MalformedError, NothingBundledError, RefusedError, UsageError
from bundle.identity import base_version, disagreements, python_tag
from bundle.manifest import BUILD_FILE, BUNDLE_FILE, Manifest
from bundle.record import RECORD, SIGNATURES
from bundle.sbom import render_sbom, sbom_path
from bundle.space import require
from bundle.wheelfile import Member, open_wheel, write_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bundle.backends import Backend
    from bundle.checks import Subject
    from bundle.manifest import BuildRecord
    from bundle.ui import Reporter
    from bundle.wheelfile import WheelView

GENERATOR = "torch_fl-bundle"

# What must hold of a thin wheel already; modes, order and requirements are ours to set.
_REQUIRED_OF_THIN = ("B001", "B002", "B003", "B004", "B006", "B007", "B010", "B011", "B014")
# To what part of their size libraries are deflated at best; stock torch 2.13's come to 0.31. How far a vendor's are is
# known only afterwards, and a wheel that would fit must not be refused.
_DEFLATED = 0.25
# Headers are kept as they stand: no folding, no re-encoding.
_POLICY = policy.EmailPolicy(utf8=True, max_line_length=None, refold_source="none", linesep="\n")


@dataclass(frozen=True, kw_only=True)
class RepackInputs:
    """What one repack reads: `bundle_dir` is the bundle stage's output, `version_label` FLAGOS_WHEEL_LOCAL.

    A label of None means the manifest's own, an empty one none at all.
    """

    thin_wheel: Path
    bundle_dir: Path
    backend: Backend
    version_label: str | None
    dist: Path


def repack_stage(inputs: RepackInputs, ui: Reporter) -> Path:
    """Write `dist/torch_fl-<version>[+label]-<python>-<python>-linux_<machine>.whl` and return its path.

    Equal inputs give equal bytes; the wheel appears by rename.

    Raises:
        NothingBundledError: no thin wheel, or what `load_bundle` raises for an empty or missing bundle.
        TamperedBundleError: bundled files that differ from the manifest.
        RefusedError: another backend's wheel of the same file name, or a thin wheel without identity, of another
            backend, Python, torch or machine, with leftovers of an earlier bundle, or one whose names, tags and RECORD
            do not agree.
        UsageError: a label that PEP 440 does not allow.
        MalformedError: a thin wheel that cannot be read.
        NoSpaceError: too little space for the wheel.
    """
    name = inputs.backend.name
    if not inputs.thin_wheel.is_file():
        raise NothingBundledError(f"{name}: no thin wheel at {inputs.thin_wheel}", stage="compile", backend=name)
    with ui.step(f"{name}: repack {inputs.thin_wheel.name}"):
        manifest = load_bundle(inputs.bundle_dir, backend=name)
        with open_wheel(inputs.thin_wheel) as thin:
            build = checked_build(read_subject(thin), inputs.backend, manifest)
            version = labelled(build.version, manifest.label if inputs.version_label is None else inputs.version_label)
            stamped = replace(manifest, label=Version(version).local or "")
            dist_info = f"{PACKAGE}-{version}.dist-info"
            tag = f"{python_tag(build.python)}-{python_tag(build.python)}-linux_{build.machine}"
            identity = _identity(thin, stamped, version=version, tag=tag)
            target = inputs.dist / f"{PACKAGE}-{version}-{tag}.whl"
            _spare_others(target, name)
            members = [
                *_kept(thin, dist_info, replaced={member.name for member in identity}),
                *_bundled(inputs.bundle_dir, stamped),
                *identity,
            ]
            require(f"{name}: the wheel", int(sum(member.size for member in members) * _DEFLATED), inputs.dist)
            return write_wheel(target, members, dist_info=dist_info)


def _spare_others(target: Path, backend: str) -> None:
    """Refuse to replace the wheel of another backend, which a label of one's own may give the same file name."""
    if not target.is_file():
        return
    try:
        with open_wheel(target) as wheel:
            text = wheel.read(f"{PACKAGE}/{BUNDLE_FILE}").decode("utf-8", "replace")
        other = Manifest.from_json(text, origin=target.name).backend
    except MalformedError:
        return
    if other != backend:
        raise RefusedError(
            f"{backend}: {target} is there already, and belongs to the backend {other}",
            hint="give this wheel a label of its own with --label, or remove the other one",
        )


def labelled(version: str, label: str) -> str:
    """Return a version with a local label, or as it is for an empty one.

    Raises:
        UsageError: a label that PEP 440 does not allow.
        RefusedError: a version that has a label already.
    """
    if Version(version).local:
        raise RefusedError(
            f"the thin wheel's version {version} has a local label already; repack sets it",
            hint="give the project a public version in pyproject.toml, then compile again",
        )
    if not label:
        return version
    try:
        return str(Version(f"{version}+{label}"))
    except InvalidVersion as err:
        raise UsageError(
            f"version label {label!r} is not allowed; expected letters and digits with single dots between, "
            "such as metax3.8.1 (PEP 440 local version)"
        ) from err


def checked_build(thin: Subject, backend: Backend, manifest: Manifest) -> BuildRecord:
    """Return a thin wheel's build record after asking whether the wheel may be joined with this bundle.

    Raises:
        RefusedError: see `repack_stage`; all of a wheel's faults at once.
    """
    again = f"run `inv compile --backend {backend.name}` again"
    if thin.build is None:
        raise RefusedError(
            f"{thin.name}: {PACKAGE}/{BUILD_FILE} {thin.build_problem}, so the wheel does not say which backend and "
            "torch it was compiled for, and at import it would not use its bundle",
            hint=again,
        )
    checks = [check for check in (*CONTAINER_CHECKS, *HOOK_CHECKS) if check.code in _REQUIRED_OF_THIN]
    faults = [str(finding) for check in checks for finding in check.findings(thin)]
    faults += [f"{PACKAGE}/{BUILD_FILE}: {text}" for text in disagreements(thin.build, manifest)]
    faults += [f"{name}: left over from an earlier bundle" for name in _leftovers(thin)]
    if faults:
        raise RefusedError(
            f"{thin.name} cannot be joined with the {backend.name} bundle:\n"
            + "\n".join(f"  {fault}" for fault in faults),
            hint=f"{again}; if the bundle is the wrong one, `inv bundle --backend {backend.name}`",
        )
    return thin.build


def _leftovers(thin: Subject) -> Iterator[str]:
    for name in sorted(thin.digests):
        if name.startswith(f"{PACKAGE}/lib_") or name == f"{PACKAGE}/{BUNDLE_FILE}":
            yield name


def _kept(thin: WheelView, dist_info: str, *, replaced: set[str]) -> Iterator[Member]:
    """Yield the thin wheel's files under the new dist-info, but for those that are written anew."""
    dropped = {f"{dist_info}/{name}" for name in (RECORD, *SIGNATURES)} | replaced
    for entry in thin.files:
        inside = entry.name.startswith(f"{thin.dist_info}/")
        name = dist_info + entry.name.removeprefix(thin.dist_info) if inside else entry.name
        if name not in dropped:
            yield Member(
                name=name,
                size=entry.size,
                open=partial(_opened, thin, entry.name),
                executable=bool(entry.mode & 0o111),
            )


def _opened(thin: WheelView, name: str) -> BinaryIO:
    return cast("BinaryIO", thin.archive.open(name))


def _bundled(folder: Path, manifest: Manifest) -> Iterator[Member]:
    for file in manifest.files:
        path = folder / manifest.bundle_dir / file.name
        yield Member(
            name=f"{PACKAGE}/{manifest.bundle_dir}/{file.name}",
            size=file.size,
            open=partial(_opened_file, path),
            executable=file.role != Role.DATA.value,
            sha256=file.sha256,
        )


def _opened_file(path: Path) -> BinaryIO:
    return path.open("rb")


def _identity(thin: WheelView, manifest: Manifest, *, version: str, tag: str) -> tuple[Member, ...]:
    dist_info = f"{PACKAGE}-{version}.dist-info"
    metadata = edit_metadata(thin.read(f"{thin.dist_info}/METADATA"), version=version, manifest=manifest)
    wheel = f"Wheel-Version: 1.0\nGenerator: {GENERATOR}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return (
        Member.of_bytes(f"{PACKAGE}/{BUNDLE_FILE}", manifest.to_json().encode()),
        Member.of_bytes(f"{dist_info}/METADATA", metadata),
        Member.of_bytes(f"{dist_info}/WHEEL", wheel.encode()),
        Member.of_bytes(sbom_path(dist_info), render_sbom(manifest, version=version).encode()),
    )


def edit_metadata(data: bytes, *, version: str, manifest: Manifest) -> bytes:
    """Return METADATA with another version, torch pinned to the bundle's base version, and its requirements added.

    Everything else stays byte for byte, the description included.

    Raises:
        MalformedError: METADATA without a version, or with a requirement that is none.
    """
    message = message_from_bytes(data, policy=_POLICY)
    if "Version" not in message:
        raise MalformedError("METADATA has no Version")
    message.replace_header("Version", version)
    others = [
        text
        for text in message.get_all("Requires-Dist", [])
        if _requirement_name(text) != "torch" and text not in manifest.requirements
    ]
    del message["Requires-Dist"]
    needed = (f"torch=={base_version(manifest.torch)}", *manifest.requirements)
    for text in needed:
        _requirement_name(text)
    for text in (needed[0], *others, *needed[1:]):
        message["Requires-Dist"] = text
    return message.as_bytes()


def _requirement_name(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement as err:
        raise MalformedError(f"METADATA or {BUNDLE_FILE} requires {text!r}, which is no requirement") from err
