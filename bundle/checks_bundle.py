"""Checks B1xx: who the wheel says it is, and whether its bundle is complete and unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundle.backends import BACKENDS, Role
from bundle.checks import PACKAGE, Check, Pairs, is_plugin_library
from bundle.identity import disagreements, holdings
from bundle.manifest import BUILD_FILE, BUNDLE_FILE

if TYPE_CHECKING:
    from bundle.checks import Subject
    from bundle.manifest import BundledFile

VERSION_FILE = "vendor_version.py"
_BUILD = f"{PACKAGE}/{BUILD_FILE}"
_BUNDLE = f"{PACKAGE}/{BUNDLE_FILE}"
_PLUGIN_LIBRARIES = ("libtorch_fl.so", "libtorch_bindings.so", "libflagos.so")


def _build_record(subject: Subject) -> Pairs:
    if subject.build is None:
        yield _BUILD, subject.build_problem


def _manifest(subject: Subject) -> Pairs:
    if subject.manifest is None:
        yield _BUNDLE, subject.manifest_problem


def _records_agree(subject: Subject) -> Pairs:
    build, manifest, backend = subject.build, subject.manifest, subject.backend
    if build and build.backend not in BACKENDS:
        yield _BUILD, f"backend {build.backend} is unknown; expected one of {', '.join(BACKENDS)}"
    if build is None or manifest is None:
        return
    for text in disagreements(build, manifest):
        yield _BUNDLE, text
    if backend and manifest.bundle_dir != backend.bundle_dir:
        yield _BUNDLE, f"bundle directory {manifest.bundle_dir}, {backend.name} has {backend.bundle_dir}"
    if backend and build.accelerator != backend.accelerator:
        yield _BUILD, f"accelerator {build.accelerator}, {backend.name} has {backend.accelerator}"
    if subject.file_name and (subject.file_name[1].local or "") != manifest.label:
        label = subject.file_name[1].local
        yield _BUNDLE, f"label {manifest.label or '(none)'}, the file name has {label or '(none)'}"


def _empty(subject: Subject) -> Pairs:
    if subject.manifest and not (subject.bundled and subject.manifest.files):
        yield subject.bundle_folder or "", "the bundle is empty"


def _absent(subject: Subject) -> Pairs:
    for path, _ in _listed(subject):
        if path not in subject.digests:
            yield path, "is in the manifest, but the wheel lacks it"


def _unlisted(subject: Subject) -> Pairs:
    listed = {path for path, _ in _listed(subject)}
    if not listed:
        return
    for path in subject.bundled:
        if path not in listed:
            yield path, "is in the bundle's folder, but not in the manifest"


def _changed(subject: Subject) -> Pairs:
    for path, file in _listed(subject):
        digest = subject.digests.get(path)
        if digest and digest.sha256 != file.sha256:
            yield path, f"sha256 {digest.sha256}, the manifest says {file.sha256}"
        elif digest and digest.size != file.size:
            yield path, f"{digest.size} bytes, the manifest says {file.size}"


def _listed(subject: Subject) -> tuple[tuple[str, BundledFile], ...]:
    folder = subject.bundle_folder
    files = subject.manifest.files if subject.manifest else ()
    return tuple((f"{folder}{file.name}", file) for file in files)


def _complete(subject: Subject) -> Pairs:
    manifest, backend = subject.manifest, subject.backend
    if manifest is None or backend is None or not manifest.files:
        return
    names = {file.name for file in manifest.files}
    wanted = holdings(backend, manifest.core)
    required = [library.name for library in wanted if library.required] + list(backend.third_party.names)
    for name in required:
        if name not in names:
            yield _BUNDLE, f"{backend.name} needs {name}, which is not in the bundle"
    known = {*(library.name for library in wanted), *backend.third_party.names, VERSION_FILE}
    if not backend.third_party.torch_libs:
        for name in sorted(names - known):
            yield _BUNDLE, f"{name} is not among the files that a {backend.name} bundle holds"


def _version_file(subject: Subject) -> Pairs:
    manifest, backend = subject.manifest, subject.backend
    if manifest is None or backend is None or not backend.version_file or not manifest.files:
        return
    if VERSION_FILE not in {file.name for file in manifest.files}:
        yield _BUNDLE, f"{VERSION_FILE} is missing, from which torch.version's fields are restored"
    elif not manifest.version_fields:
        yield _BUNDLE, "no version fields, although the vendor's version file is there"


def _leftovers(subject: Subject) -> Pairs:
    own = subject.backend
    if own is None:
        return
    foreign = {f"{PACKAGE}/{other.bundle_dir}/": other for other in BACKENDS.values() if other is not own}
    for name in sorted(subject.digests):
        for folder, other in foreign.items():
            if name.startswith(folder):
                yield name, f"belongs to the backend {other.name}, this wheel is for {own.name}"


def _plugin(subject: Subject) -> Pairs:
    for name in _PLUGIN_LIBRARIES:
        path = f"{PACKAGE}/lib/{name}"
        if path not in subject.digests:
            yield path, "is missing"
    for path in sorted(subject.digests):
        if (
            is_plugin_library(path)
            and path.startswith(f"{PACKAGE}/lib/")
            and path.rpartition("/")[2] not in _PLUGIN_LIBRARIES
        ):
            yield path, f"is not one of the plugin's libraries: {', '.join(_PLUGIN_LIBRARIES)}"


def _facts(subject: Subject) -> Pairs:
    for path, file in _listed(subject):
        elf = subject.elves.get(path)
        if elf is None:
            continue
        for what, said, found in (
            ("soname", file.soname, elf.soname),
            ("DT_NEEDED", file.needed, elf.needed),
            ("RUNPATH", file.runpath, elf.runpath),
        ):
            if said != found:
                yield path, f"{what} is {_text(found)}, the manifest says {_text(said)}"


def _text(value: str | tuple[str, ...] | None) -> str:
    return (", ".join(value) if isinstance(value, tuple) else value) or "(none)"


def _order_covers(subject: Subject) -> Pairs:
    if subject.manifest is None:
        return
    steps = [step.name for step in subject.manifest.load]
    libraries = [file.name for file in subject.manifest.files if file.role != Role.DATA.value]
    for name in libraries:
        if steps.count(name) != 1:
            yield _BUNDLE, f"the load order has {name} {steps.count(name)} times, expected once"
    for name in sorted(set(steps) - set(libraries)):
        yield _BUNDLE, f"the load order has {name}, which is no library of the bundle"


def _order_sorted(subject: Subject) -> Pairs:
    if subject.manifest is None:
        return
    place = {step.name: number for number, step in enumerate(subject.manifest.load)}
    provider = {name: file.name for file in subject.manifest.files for name in (file.name, file.soname) if name}
    for path, file in _listed(subject):
        elf = subject.elves.get(path)
        for need in elf.needed if elf else ():
            supplier = provider.get(need, file.name)
            if supplier != file.name and place.get(supplier, -1) > place.get(file.name, len(place)):
                yield _BUNDLE, f"the load order has {file.name} before {supplier}, which it needs"


_BUNDLE_AGAIN = "Run `inv bundle` and `inv repack` again."

CHECKS: tuple[Check, ...] = (
    Check(
        code="B101",
        title="The plugin's build record is missing or unreadable",
        cause="The plugin was not compiled by this repository's CMake, so its backend and its torch are unknown.",
        fix="Run `inv compile`, `inv bundle` and `inv repack` again.",
        find=_build_record,
    ),
    Check(
        code="B102",
        title="The bundle's manifest is missing or unreadable",
        cause="This is a thin wheel: the bundle and repack stages were skipped.",
        fix="Run `inv bundle` and `inv repack`.",
        find=_manifest,
    ),
    Check(
        code="B103",
        title="Build record, manifest and backend disagree",
        cause="Plugin and bundle come from different builds, or the wheel was relabelled by hand.",
        fix="Run `inv wheel` again, which passes all stages.",
        find=_records_agree,
    ),
    Check(
        code="B104",
        title="The bundle is empty",
        cause="The bundle stage was skipped, or its output was removed.",
        fix=_BUNDLE_AGAIN,
        find=_empty,
    ),
    Check(
        code="B105",
        title="A bundled file is missing",
        cause="The file was removed after the bundle stage.",
        fix=_BUNDLE_AGAIN,
        find=_absent,
    ),
    Check(
        code="B106",
        title="The bundle's folder holds a file that the manifest does not list",
        cause="The file is left over from another build, or was added by hand.",
        fix=_BUNDLE_AGAIN,
        find=_unlisted,
    ),
    Check(
        code="B107",
        title="A bundled file differs from the manifest",
        cause="The file was changed after the bundle stage.",
        fix=_BUNDLE_AGAIN,
        find=_changed,
    ),
    Check(
        code="B108",
        title="The bundle is not what its backend is made of",
        cause="The vendor's torch lacks a library, or the bundle was made for another core source.",
        fix="Compare the vendor's torch with docs/backends.md, then run `inv bundle` and `inv repack` again.",
        find=_complete,
    ),
    Check(
        code="B109",
        title="The vendor's version file is missing or empty",
        cause="Without it torch.version.hip stays None, and Triton then takes no driver of this vendor.",
        fix=_BUNDLE_AGAIN,
        find=_version_file,
    ),
    Check(
        code="B110",
        title="The wheel holds files of another backend",
        cause="Two backends were built into one folder.",
        fix="Run `inv clean` and `inv wheel`.",
        find=_leftovers,
    ),
    Check(
        code="B111",
        title="The plugin's own libraries are not the expected ones",
        cause="The compile stage was interrupted, or its install rules were changed.",
        fix="Run `inv clean` and `inv wheel`.",
        find=_plugin,
    ),
    Check(
        code="B112",
        title="The manifest misstates a library's dynamic section",
        cause="The library was edited after the manifest was written.",
        fix=_BUNDLE_AGAIN,
        find=_facts,
    ),
    Check(
        code="B113",
        title="The load order does not cover the bundle",
        cause="The manifest was changed by hand.",
        fix=_BUNDLE_AGAIN,
        find=_order_covers,
    ),
    Check(
        code="B114",
        title="The load order has a library before one that it needs",
        cause="The manifest was changed by hand, or a library was edited after the order was computed.",
        fix=_BUNDLE_AGAIN,
        find=_order_sorted,
    ),
)
