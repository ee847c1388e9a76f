"""Checks B2xx: what the wheel's shared objects need, where the loader would look, and what they give away."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from typing import TYPE_CHECKING

from bundle.backends import CORE_LIBRARIES, CoreSource, Role
from bundle.checks import Check, Pairs
from bundle.system import NEVER_BUNDLED, SYSTEM_SONAMES, matches

if TYPE_CHECKING:
    from bundle.checks import Subject
    from bundle.elf import ElfInfo
    from bundle.manifest import Manifest

FLOOR = (("GLIBC", "2.36"), ("GLIBCXX", "3.4.30"), ("CXXABI", "1.3.13"))
"""The newest symbol versions that the plugin's own libraries may need: those of glibc 2.36 and g++ 12.

Bundled libraries are not held to it, since nobody here can rebuild them; the report tells what they need.
"""

LOAD_ALIGNMENT = {"x86_64": 0x1000, "aarch64": 0x10000}
"""The least p_align of PT_LOAD per machine, in bytes: the largest page size of its kernels."""


def version_key(text: str) -> tuple[int, ...]:
    """Return a dotted version as numbers, for comparison."""
    return tuple(map(int, text.split(".")))


def _readable(subject: Subject) -> Pairs:
    yield from sorted(subject.damaged.items())


def _machine(subject: Subject) -> Pairs:
    named = subject.manifest or subject.build
    for path, elf in sorted(subject.elves.items()):
        if named and elf.machine != (wanted := named.machine):
            yield path, f"is for {elf.machine}, the wheel is for {wanted}"


def _rpath(subject: Subject) -> Pairs:
    for path, elf in sorted(subject.elves.items()):
        if elf.rpath:
            yield path, f"DT_RPATH {':'.join(elf.rpath)}, which overrides LD_LIBRARY_PATH and is inherited"


def _malformed(entry: str) -> bool:
    """Tell what no shell, CMake or linker should have left in a RUNPATH entry."""
    rest = entry.removeprefix("$ORIGIN")
    return not entry or any(sign in rest for sign in "${}\\") or (rest != entry and rest[:1] not in ("", "/"))


def _runpath_syntax(subject: Subject) -> Pairs:
    for path, elf in sorted(subject.elves.items()):
        for entry in elf.runpath:
            if _malformed(entry):
                meaning = "an empty entry, which means the current directory" if not entry else f"entry {entry!r}"
                yield path, f"RUNPATH {':'.join(elf.runpath)} has {meaning}"


def resolved(path: str, entry: str) -> str:
    """Return the directory below site-packages that a `$ORIGIN` entry of a member's RUNPATH names."""
    return posixpath.normpath(posixpath.dirname(path) + entry.removeprefix("$ORIGIN"))


def _runpath_places(subject: Subject) -> Pairs:
    drivers = subject.manifest.driver_dirs if subject.manifest else None
    for path, elf in sorted(subject.elves.items()):
        for entry in elf.runpath:
            if _malformed(entry):
                continue
            if entry.startswith("$ORIGIN"):
                if resolved(path, entry).startswith(("..", "/")):
                    yield path, f"RUNPATH entry {entry} leaves site-packages"
            elif drivers is not None and entry not in drivers:
                yield path, f"RUNPATH entry {entry} is no driver directory of the target"


def _runpath_reaches(subject: Subject) -> Pairs:
    homes: dict[str, set[str]] = defaultdict(set)
    for path in subject.elves:
        homes[posixpath.basename(path)].add(posixpath.dirname(path))
    for path, elf in sorted(subject.elves.items()):
        reached = set()
        for entry in elf.runpath:
            if not entry.startswith("$ORIGIN"):
                # What stands behind a driver directory may be shadowed by it.
                break
            reached.add(resolved(path, entry))
        for need in elf.needed:
            if need in homes and not homes[need] & reached:
                yield path, f"needs {need}, but no $ORIGIN entry ahead of the driver's leads to {min(homes[need])}"


def stock_sonames(manifest: Manifest) -> frozenset[str]:
    """Return what stock torch provides to this bundle: its core, or what the vendor's build may lack."""
    return frozenset(
        library.name for library in CORE_LIBRARIES if manifest.core == CoreSource.STOCK.value or library.stock_fallback
    )


def _closure(subject: Subject) -> Pairs:
    manifest = subject.manifest
    if manifest is None:
        return
    present = {posixpath.basename(path) for path in subject.elves}
    present |= {elf.soname for elf in subject.elves.values() if elf.soname} | stock_sonames(manifest)
    patterns = (*SYSTEM_SONAMES, *manifest.driver_sonames)
    missing: dict[str, list[str]] = defaultdict(list)
    for path, elf in sorted(subject.elves.items()):
        for need in elf.needed:
            if need not in present and not matches(need, patterns):
                missing[need].append(path)
    for need, paths in sorted(missing.items()):
        for path in paths:
            yield path, f"needs {need}, which neither the wheel, stock torch, the driver nor the system provides"


def _sonames(subject: Subject) -> Pairs:
    torch_roles = (Role.CORE.value, Role.DEVICE.value)
    files = subject.manifest.files if subject.manifest else ()
    for file in files:
        path = f"{subject.bundle_folder}{file.name}"
        elf = subject.elves.get(path)
        if elf and file.role in torch_roles and elf.soname != file.name:
            yield path, f"DT_SONAME {elf.soname or '(none)'}, expected {file.name}: stock torch finds it by soname only"


def _soname_twice(subject: Subject) -> Pairs:
    holders: dict[str, list[str]] = defaultdict(list)
    for path, elf in sorted(subject.elves.items()):
        if elf.soname:
            holders[elf.soname].append(path)
    for soname, paths in sorted(holders.items()):
        if len(paths) > 1:
            yield paths[1], f"has DT_SONAME {soname}, as has {paths[0]}: only the first one opened would be used"


def _runtimes(subject: Subject) -> Pairs:
    for path in sorted(subject.digests):
        if matches(posixpath.basename(path), NEVER_BUNDLED):
            yield path, "belongs to the system; a second copy breaks whichever library comes later"


def _stack(subject: Subject) -> Pairs:
    for path, elf in sorted(subject.elves.items()):
        if elf.executable_stack:
            yield path, "asks for an executable stack, which glibc 2.41 and hardened kernels refuse at dlopen"


def _alignment(subject: Subject) -> Pairs:
    for path, elf in sorted(subject.elves.items()):
        least = LOAD_ALIGNMENT.get(elf.machine, 0)
        if low := [align for align in elf.load_alignments if align < least]:
            yield path, f"PT_LOAD aligned to {min(low):#x}, expected at least {least:#x} on {elf.machine}"


def newest(elves: list[ElfInfo], prefix: str) -> str | None:
    """Return the highest version with this prefix that any of the libraries needs, without the prefix."""
    found = [version.removeprefix(f"{prefix}_") for elf in elves if (version := elf.newest(prefix))]
    return max(found, key=version_key, default=None)


def _floor(subject: Subject) -> Pairs:
    for path in subject.plugin:
        for prefix, highest in FLOOR:
            needs = newest([subject.elves[path]], prefix)
            if needs and version_key(needs) > version_key(highest):
                yield path, f"needs {prefix}_{needs}, the declared floor is {prefix}_{highest}"


def _build_paths(subject: Subject) -> Pairs:
    for path, found in sorted(subject.paths.items()):
        for text in found:
            yield path, f"names the build machine's {text}"


_BUNDLE_AGAIN = "Run `inv bundle` and `inv repack` again."
_COMPILE_AGAIN = "Run `inv wheel` again; RUNPATH comes from cmake/FlagosRpath.cmake and from the bundle stage."

CHECKS: tuple[Check, ...] = (
    Check(
        code="B201",
        title="A shared object cannot be read",
        cause="The file is no ELF file (a linker script, a link stored as text) or is damaged.",
        fix="Look at the file in the vendor's torch; re-fetch that, then run `inv bundle` and `inv repack` again.",
        find=_readable,
    ),
    Check(
        code="B202",
        title="A shared object is for another machine",
        cause="The vendor's torch or a third-party library is of another architecture than the plugin.",
        fix="Name the vendor's torch for this architecture with --vendor-torch.",
        find=_machine,
    ),
    Check(
        code="B203",
        title="A library has DT_RPATH",
        cause="It was linked with old dynamic tags and not edited since, so the search order differs by file.",
        fix=_BUNDLE_AGAIN,
        find=_rpath,
    ),
    Check(
        code="B204",
        title="RUNPATH leads to a place that is not the target's",
        cause="The build machine's directories, a stubs directory, or too many `..` are left in it.",
        fix=_COMPILE_AGAIN,
        find=_runpath_places,
    ),
    Check(
        code="B205",
        title="RUNPATH is malformed",
        cause="A shell or CMake expanded part of `$ORIGIN`, or a list was joined with an empty variable.",
        fix=_COMPILE_AGAIN,
        find=_runpath_syntax,
    ),
    Check(
        code="B206",
        title="RUNPATH does not reach a library of the wheel",
        cause="The `$ORIGIN` entry for the bundle or torch_fl/lib is missing or stands behind the driver's.",
        fix=_COMPILE_AGAIN,
        find=_runpath_reaches,
    ),
    Check(
        code="B207",
        title="A needed library is provided by nobody",
        cause="The closure of the bundle is incomplete, or a driver library is not in the backend's `driver_sonames`.",
        fix="Bundle it, or add it to `driver_sonames` in bundle/backends.py if the target machine owns it.",
        find=_closure,
    ),
    Check(
        code="B208",
        title="DT_SONAME is not the file's name",
        cause="The vendor renamed a torch library. Stock torch would load its own copy beside it.",
        fix="Such a build cannot be bundled; ask the vendor for libraries with canonical sonames.",
        find=_sonames,
    ),
    Check(
        code="B209",
        title="Two libraries have one DT_SONAME",
        cause="One library was bundled under two names, or plugin and bundle clash.",
        fix="Bundle only one of them.",
        find=_soname_twice,
    ),
    Check(
        code="B210",
        title="A system runtime is bundled",
        cause="The vendor's folder holds a copy of libstdc++, libgcc_s, libgomp or glibc.",
        fix=_BUNDLE_AGAIN,
        find=_runtimes,
    ),
    Check(
        code="B211",
        title="A library asks for an executable stack",
        cause="An assembly source lacks its .note.GNU-stack section.",
        fix="Clear the flag in a copy of the library (`patchelf --clear-execstack`), or ask its vendor to rebuild it.",
        find=_stack,
    ),
    Check(
        code="B212",
        title="A library's segments are aligned too low",
        cause="It was linked or edited for 4 KiB pages; kernels with 64 KiB pages refuse it.",
        fix="Relink with `-z max-page-size=65536`, or edit with `patchelf --page-size 65536`.",
        find=_alignment,
    ),
    Check(
        code="B213",
        title="The plugin needs newer symbol versions than declared",
        cause="It was compiled on a system newer than the declared floor, so older targets cannot load it.",
        fix="Compile on an older system, or raise FLOOR in bundle/checks_elf.py on purpose.",
        find=_floor,
    ),
    Check(
        code="B214",
        title="The build machine's paths are in a file",
        cause="`__FILE__` or debug information was compiled in without -ffile-prefix-map, or a record quotes a path.",
        fix="Compile with the flags of cmake/FlagosOptions.cmake.",
        find=_build_paths,
    ),
)
