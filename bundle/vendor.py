"""The vendor's torch: a directory that libraries are copied from, and that is never imported nor written to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.errors import (
    AmbiguousVendorTorchError,
    InputNotFoundError,
    RefusedError,
    VendorTorchNotFoundError,
    VersionMismatchError,
)
from bundle.version_file import base_version, read_assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bundle.backends import Backend

COMMON_VARIABLE = "FLAGOS_VENDOR_TORCH_LIB"
DECLARED = "the declared version"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class VendorTorch:
    """One vendor torch.

    `lib` holds the libraries. `package` is the torch package around it, None for a bare library directory; `torch_libs`
    the folder of grafted libraries beside the package, if there is one; `version_file` the package's version.py.
    `version_fields` are the runtime versions that version.py assigns (`cuda`, `hip`, `rocm`; unset ones are left out).
    `requirements` are those of its distribution that bring the vendor's runtime.
    """

    lib: Path
    package: Path | None
    torch_libs: Path | None
    version_file: Path | None
    version: str
    base_version: str
    version_fields: Mapping[str, str]
    requirements: tuple[str, ...]


def find_vendor_torch(
    backend: Backend,
    environ: Mapping[str, str],
    *,
    explicit: Path | None = None,
    search: Iterable[Path] = (),
    declared_version: str | None = None,
) -> VendorTorch:
    """Find the one torch to bundle from: `explicit`, else the environment, else the only fitting one of `search`.

    Args:
        backend: whose torch.
        environ: where `Backend.vendor_lib_variable` and FLAGOS_VENDOR_TORCH_LIB are looked up.
        explicit: a torch package or a bare library directory.
        search: torch packages that may or may not be the vendor's (`installed_candidates`).
        declared_version: version of a library directory that has no version.py; also vouches for a named torch
            whose version.py does not show the vendor's mark.

    Raises:
        VendorTorchNotFoundError: nothing fits; says where it looked and why each place was no good.
        AmbiguousVendorTorchError: more than one fits.
        RefusedError: the directory that was named is not this vendor's, or its version is unknown.
    """
    named = [explicit] if explicit else _from_environment(backend, environ)
    if named:
        return _describe(backend, _named(backend, _only(backend, named), declared_version), declared_version)
    reasons = {place: _misfit(backend, place) for place in _distinct(search)}
    fitting = [place for place, problem in reasons.items() if not problem]
    if not fitting:
        unset = f"{backend.vendor_lib_variable}, {COMMON_VARIABLE} (not set)"
        looked = [unset, *(f"{place} ({problem})" for place, problem in reasons.items())]
        raise VendorTorchNotFoundError(backend.name, looked, variable=backend.vendor_lib_variable)
    return _describe(backend, _only(backend, fitting), declared_version)


def installed_candidates(prefixes: Iterable[Path]) -> tuple[Path, ...]:
    """Return every torch package below Python prefixes (an environment, /usr/local, ...), sorted within each prefix."""
    patterns = ("lib/python3*/site-packages/torch", "lib/python3*/dist-packages/torch")
    found = [path for prefix in prefixes for pattern in patterns for path in sorted(prefix.glob(pattern))]
    return tuple(_distinct(found))


def check_base_version(backend: Backend, vendor: VendorTorch, stock_version: str) -> None:
    """Refuse a vendor torch that another base version than stock's was forked from.

    Raises:
        VersionMismatchError: their base versions differ.
    """
    if vendor.base_version != base_version(stock_version, origin="stock torch"):
        raise VersionMismatchError(backend.name, vendor=vendor.version, stock=stock_version)


def check_python(backend: Backend, vendor: VendorTorch, python: str) -> None:
    """Hold the vendor's own extension module against the Python ("cp310") that the wheel is for.

    libtorch_python is compiled against one Python's headers. A bare library directory tells nothing and is not judged.

    Raises:
        RefusedError: the vendor's torch was built for another Python.
    """
    modules = vendor.package.glob("_C.cpython-*.so") if vendor.package else ()
    found = sorted(f"cp{path.name.split('-')[1]}" for path in modules)
    if found and python not in found:
        raise RefusedError(
            f"{backend.name}: the wheel is for {python}, the vendor's torch in {vendor.package} for {', '.join(found)}",
            hint="build with the vendor's Python: --python, or another vendor torch",
        )


def _from_environment(backend: Backend, environ: Mapping[str, str]) -> list[Path]:
    variables = dict.fromkeys((backend.vendor_lib_variable, COMMON_VARIABLE))
    return [Path(environ[variable]) for variable in variables if environ.get(variable)]


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that lead to different directories; a venv and the link to it are one."""
    return list({path.resolve(): path for path in reversed(list(paths))}.values())[::-1]


def _only(backend: Backend, places: Iterable[Path]) -> Path:
    distinct = _distinct(places)
    if len(distinct) > 1:
        raise AmbiguousVendorTorchError(backend.name, distinct)
    return distinct[0]


def _layout(place: Path) -> tuple[Path, Path | None]:
    """Return the library directory and the package of a torch package, of its `lib`, or of a bare directory."""
    if (place / "lib").is_dir():
        return place / "lib", place
    around = place.resolve().parent
    if place.name == "lib" and (around / "version.py").is_file():
        return place, around
    return place, None


def _named(backend: Backend, place: Path, declared_version: str | None) -> Path:
    """Check a directory that the user named; a library that it lacks is reported with all others by the plan."""
    lib, package = _layout(place)
    if not lib.is_dir():
        raise VendorTorchNotFoundError(
            backend.name, [f"{place} (no such directory)"], variable=backend.vendor_lib_variable
        )
    problem = _unmarked(backend, package)
    if problem and declared_version is None:
        raise RefusedError(
            f"{backend.name}: {place} is not this vendor's torch: {problem}",
            hint="name another directory, or vouch for this one with --vendor-version",
        )
    return place


def _misfit(backend: Backend, place: Path) -> str:
    """Return why a candidate is not this backend's torch, or ""."""
    lib, package = _layout(place)
    if not (lib / backend.probe).exists():
        return f"no {backend.probe}"
    return _unmarked(backend, package)


def _unmarked(backend: Backend, package: Path | None) -> str:
    """Return why version.py does not show the vendor's mark, or "" where it does or there is none to ask."""
    if not backend.marked_by or package is None or not (package / "version.py").is_file():
        return ""
    # The names count as well: a vendor may add a field of its own.
    assigned = read_assigned(package / "version.py")
    text = " ".join(f"{name} {value}" for name, value in assigned.items()).lower()
    if any(mark in text for mark in backend.marked_by):
        return ""
    return f"version.py assigns nothing with {' or '.join(backend.marked_by)}; it is {assigned.get('__version__')}"


def _describe(backend: Backend, place: Path, declared_version: str | None) -> VendorTorch:
    lib, package = _layout(place)
    version_file = package / "version.py" if package and (package / "version.py").is_file() else None
    assigned = read_assigned(version_file) if version_file else {}
    version = assigned.get("__version__") or declared_version
    if version is None:
        raise RefusedError(
            f"{backend.name}: {place} has no version.py that tells the version of its torch",
            hint="declare it with --vendor-version or TORCH_FL_VENDOR_TORCH_VERSION, e.g. 2.10.0",
        )
    origin = str(version_file) if "__version__" in assigned else DECLARED
    if declared_version and base_version(version, origin=origin) != base_version(declared_version, origin=DECLARED):
        raise RefusedError(
            f"{backend.name}: {origin} says {version}, but {declared_version} was declared",
            hint="leave the declaration out, or name another vendor torch",
        )
    torch_libs = package.parent / "torch.libs" if package else None
    return VendorTorch(
        lib=lib,
        package=package,
        torch_libs=torch_libs if torch_libs and torch_libs.is_dir() else None,
        version_file=version_file,
        version=version,
        base_version=base_version(version, origin=origin),
        version_fields={name: assigned[name] for name in backend.version_fields if name in assigned},
        requirements=tuple(_requirements(backend, package, version)) if package else (),
    )


def _requirements(backend: Backend, package: Path, version: str) -> Iterator[str]:
    """Yield the requirements of the package's distribution that bring the vendor's runtime."""
    if not backend.distribution_prefix:
        return
    metadata = [
        # Names may be in any encoding; the lines that matter are ASCII.
        HeaderParser().parsestr(path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted(package.parent.glob("torch-*.dist-info/METADATA"))
    ]
    # A leftover of an earlier installation may lie beside the right one.
    own = [message for message in metadata if message["Version"] == version] or metadata
    if len(own) > 1:
        raise InputNotFoundError(f"{package.parent} holds more than one distribution of torch, none of them {version}")
    for requirement in (str(value) for message in own for value in message.get_all("Requires-Dist", [])):
        name = _NAME.match(requirement)
        if name and name[0].lower().startswith(backend.distribution_prefix):
            yield requirement
