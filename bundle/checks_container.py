"""Checks B0xx: the wheel as a file, its names, and its metadata."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bundle.checks import PACKAGE, Check, Pairs
from bundle.errors import MalformedError
from bundle.identity import base_version, python_tag
from bundle.manifest import BUNDLE_FILE
from bundle.record import Kind, parse, validate
from bundle.sbom import read_sbom, sbom_path
from bundle.wheelfile import EPOCH, is_shared_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from bundle.checks import Subject

_PLAIN, _EXECUTABLE = 0o644, 0o755
_EXTENSION = re.compile(rf"{PACKAGE}/_C\.cpython-(?P<python>\d+)-(?P<machine>\w+)-linux-gnu\.so")


def _record_problems(*kinds: Kind) -> Callable[[Subject], Pairs]:
    def find(subject: Subject) -> Pairs:
        own = f"{subject.dist_info}/RECORD"
        if own not in subject.digests:
            # Without the list every file would be a finding; the first check names the cause.
            if Kind.SYNTAX in kinds:
                yield own, "the wheel has no RECORD"
            return
        for problem in validate(parse(subject.texts[own]), subject.digests, own=own):
            if problem.kind in kinds:
                yield (
                    (own, f"{problem.path}: {problem.detail}")
                    if problem.kind is Kind.SYNTAX
                    else (
                        problem.path,
                        problem.detail,
                    )
                )

    return find


def _directories(subject: Subject) -> Pairs:
    for entry in subject.entries:
        if entry.is_directory:
            yield entry.name, "a directory entry, which RECORD cannot list"


def _links(subject: Subject) -> Pairs:
    for entry in subject.entries:
        if entry.is_link:
            yield entry.name, "a symbolic link; an installer writes its target's name as the file's content"


def _names(subject: Subject) -> Pairs:
    names = [entry.name for entry in subject.entries]
    for name in sorted(set(names)):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name:
            yield name, "leads out of the installation directory"
        if names.count(name) > 1:
            yield name, f"{names.count(name)} entries of this name"


def _modes(subject: Subject) -> Pairs:
    for entry in subject.entries:
        if entry.is_directory or entry.is_link:
            continue
        mode = entry.mode & 0o7777
        if is_shared_object(entry.name) and mode != _EXECUTABLE:
            yield entry.name, f"mode {mode:04o}, expected {_EXECUTABLE:04o} for a shared object"
        elif mode not in (_PLAIN, _EXECUTABLE):
            yield entry.name, f"mode {mode:04o}, expected {_PLAIN:04o} or {_EXECUTABLE:04o}"


def _reproducible(subject: Subject) -> Pairs:
    for entry in subject.entries:
        if entry.time != EPOCH:
            yield entry.name, f"time {entry.time}, expected {EPOCH}"
    info = f"{subject.dist_info}/"
    names = [entry.name for entry in subject.entries]
    wanted = sorted(names, key=lambda name: (name == f"{info}RECORD", name.startswith(info), name))
    for name, expected in zip(names, wanted, strict=True):
        if name != expected:
            yield name, f"out of order, expected {expected} in its place"
            return


def _versions(subject: Subject) -> Pairs:
    parts = subject.file_name
    if parts is None:
        yield subject.name, "not a wheel's file name"
        return
    name, version, _ = parts
    metadata = subject.headers("METADATA")
    if canonicalize_name(metadata["Name"] or "") != name or name != canonicalize_name(PACKAGE):
        yield subject.name, f"distribution {name}, METADATA says {metadata['Name']}, expected {PACKAGE}"
    for where, text in (
        (f"{subject.dist_info}/METADATA", metadata["Version"] or "none"),
        (subject.dist_info, subject.dist_info.removesuffix(".dist-info").removeprefix(f"{PACKAGE}-")),
    ):
        if text != str(version):
            yield where, f"version {text}, the file name says {version}"
    if subject.build and base_version(subject.build.version) != version.public:
        yield f"{PACKAGE}/_build.json", f"version {subject.build.version}, the file name says {version}"


def _tags(subject: Subject) -> Pairs:
    parts = subject.file_name
    if parts is None:
        return
    named = sorted(str(tag) for tag in parts[2])
    wheel = subject.headers("WHEEL")
    written = sorted(wheel.get_all("Tag", []))
    if written != named:
        yield (
            f"{subject.dist_info}/WHEEL",
            f"tags {', '.join(written) or 'none'}, the file name says {', '.join(named)}",
        )
    if wheel["Root-Is-Purelib"] != "false":
        yield f"{subject.dist_info}/WHEEL", f"Root-Is-Purelib is {wheel['Root-Is-Purelib']}, expected false"
    extensions = [match for name in subject.digests if (match := _EXTENSION.fullmatch(name))]
    if len(extensions) != 1:
        yield subject.name, f"{len(extensions)} extension modules {PACKAGE}/_C.cpython-*.so, expected one"
        return
    tag, machine = f"cp{extensions[0]['python']}", extensions[0]["machine"]
    if named != [f"{tag}-{tag}-linux_{machine}"]:
        yield subject.name, f"the extension module is for {tag}-{tag}-linux_{machine}"
    for file, record in (("_build.json", subject.build), ("_bundle.json", subject.manifest)):
        if record and (python_tag(record.python), record.machine) != (tag, machine):
            yield f"{PACKAGE}/{file}", f"{python_tag(record.python)} {record.machine}, the extension is {tag} {machine}"


def _requirements(subject: Subject) -> Pairs:
    where = f"{subject.dist_info}/METADATA"
    found: dict[str, list[Requirement]] = {}
    for text in subject.headers("METADATA").get_all("Requires-Dist", []):
        try:
            requirement = Requirement(text)
        except InvalidRequirement as err:
            yield where, f"Requires-Dist {text!r} is no requirement: {str(err).splitlines()[0]}"
            continue
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    if subject.manifest is None:
        return
    for text in (f"torch=={base_version(subject.manifest.torch)}", *subject.manifest.requirements):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield f"{PACKAGE}/{BUNDLE_FILE}", f"asks for {text!r}, which is no requirement"
            continue
        present = found.get(canonicalize_name(requirement.name), [])
        if present != [requirement]:
            said = ", ".join(map(str, present)) or "nothing"
            yield where, f"requires {said}, expected {requirement}"


def _sbom(subject: Subject) -> Pairs:
    manifest, where = subject.manifest, sbom_path(subject.dist_info)
    if manifest is None:
        return
    if where not in subject.texts:
        yield where, "the wheel has no bill of materials"
        return
    try:
        version, hashes = read_sbom(subject.texts[where], origin=where)
    except MalformedError as err:
        yield where, str(err).removeprefix(f"{where}: ")
        return
    if version != subject.headers("METADATA")["Version"]:
        yield where, f"is about version {version}, METADATA says {subject.headers('METADATA')['Version']}"
    wanted = {file.name: file.sha256 for file in manifest.files}
    for name in sorted(wanted.keys() | hashes.keys()):
        if wanted.get(name) != hashes.get(name):
            yield (
                where,
                f"{name}: sha256 {hashes.get(name, 'not listed')}, the manifest says {wanted.get(name, 'nothing')}",
            )


_REPACK = "Run `inv repack` again; do not change a wheel by hand."

CHECKS: tuple[Check, ...] = (
    Check(
        code="B001",
        title="RECORD is missing or unreadable",
        cause="The wheel was zipped by hand, or a tool wrote rows without quoting names.",
        fix=_REPACK,
        find=_record_problems(Kind.SYNTAX),
    ),
    Check(
        code="B002",
        title="A file is not listed in RECORD",
        cause="A file was added after RECORD was written.",
        fix=_REPACK,
        find=_record_problems(Kind.UNLISTED),
    ),
    Check(
        code="B003",
        title="RECORD lists a file that the wheel lacks",
        cause="A file was removed after RECORD was written.",
        fix=_REPACK,
        find=_record_problems(Kind.ABSENT),
    ),
    Check(
        code="B004",
        title="A file differs from its row in RECORD",
        cause="A file was changed after RECORD was written, or the download is damaged.",
        fix="Fetch the wheel again; if that does not help, run `inv repack` again.",
        find=_record_problems(Kind.DIFFERS),
    ),
    Check(
        code="B005",
        title="The wheel holds a directory entry",
        cause="The wheel was packed by `zip -r` or a like tool.",
        fix=_REPACK,
        find=_directories,
    ),
    Check(
        code="B006",
        title="The wheel holds a symbolic link",
        cause="Wheels have no links: installers write a small text file instead, which no loader can open.",
        fix="Store the link's target under the name that is needed; the bundle stage does so.",
        find=_links,
    ),
    Check(
        code="B007",
        title="An entry's name is unsafe or not unique",
        cause="The wheel was not written by a wheel tool.",
        fix=_REPACK,
        find=_names,
    ),
    Check(
        code="B008",
        title="A file has the wrong mode",
        cause="A tool lost the modes, or took them from a build machine with an unusual umask.",
        fix=_REPACK,
        find=_modes,
    ),
    Check(
        code="B009",
        title="The archive is not reproducible",
        cause="Entries carry the time of the build or an order that depends on the machine.",
        fix=_REPACK,
        find=_reproducible,
    ),
    Check(
        code="B010",
        title="Names or versions disagree",
        cause="The wheel was renamed, or only some of file name, METADATA and dist-info were given a new version.",
        fix="Run `inv repack` again; set a local label with FLAGOS_WHEEL_LOCAL, not by renaming.",
        find=_versions,
    ),
    Check(
        code="B011",
        title="Tags disagree",
        cause="The wheel was built by one Python and tagged for another, or tagged as pure though it holds libraries.",
        fix="Run `inv compile` with the Python that the vendor's torch is for, then the other stages.",
        find=_tags,
    ),
    Check(
        code="B012",
        title="Requirements do not fit the bundle",
        cause="Libraries of one torch version run only with that version; the driver's distributions belong to them.",
        fix=_REPACK,
        find=_requirements,
    ),
    Check(
        code="B013",
        title="The bill of materials is missing or disagrees with the bundle",
        cause="The bundle was changed after the wheel was written.",
        fix=_REPACK,
        find=_sbom,
    ),
)
