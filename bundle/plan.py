"""What the bundle stage will do, decided before anything is written. Pure: files were read by `bundle.gather`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bundle.backends import CoreSource, Role, When
from bundle.errors import CoreLibraryMissingError, RefusedError, UnresolvedLibraryError
from bundle.graph import LibraryGraph, Node
from bundle.inputs import STOCK_SERVES
from bundle.manifest import LoadStep
from bundle.runpath import bundle_runpath
from bundle.system import SYSTEM_SONAMES, matches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bundle.backends import Backend
    from bundle.inputs import BundleInputs

SCHEMA = 1
_MANGLED_CORE = re.compile(r"lib(c10|torch|shm)\w*-[0-9a-f]{6,}\.so")
_TORCH_ROLES = frozenset({Role.CORE, Role.DEVICE})


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One file to copy; `size` in bytes."""

    name: str
    source: Path
    role: Role
    size: int


@dataclass(frozen=True, kw_only=True)
class SetRunpath:
    """The RUNPATH that a copied file shall have."""

    name: str
    runpath: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BundlePlan:
    """The decision. `driver_sonames` are those that bundled files need and the target must bring."""

    backend: Backend
    core: CoreSource
    machine: str
    vendor_torch: str
    sdk_version: str
    copies: tuple[Copy, ...]
    edits: tuple[SetRunpath, ...]
    load: tuple[LoadStep, ...]
    driver_sonames: tuple[str, ...]
    driver_dirs: tuple[str, ...]
    version_fields: Mapping[str, str]
    requirements: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all copies together."""
        return sum(copy.size for copy in self.copies)

    def to_json(self) -> str:
        """Return the plan with sorted keys and a schema number."""
        data = {**asdict(self), "backend": self.backend.name, "schema": SCHEMA, "size": self.size}
        return json.dumps(data, indent=2, sort_keys=True, default=str) + "\n"

    def to_text(self) -> str:
        """Return the plan for people."""
        steps = {step.name: number for number, step in enumerate(self.load, start=1)}
        late = {step.name for step in self.load if step.when == When.DRIVER.value}
        backend, sdk = self.backend, self.sdk_version or "of unknown version"
        lines = [f"{backend.name}: {len(self.copies)} files, {self.size / 1e6:.1f} MB, into {backend.bundle_dir}/"]
        lines.append(f"  vendor torch {self.vendor_torch}, SDK {sdk}, core {self.core.value}")
        for copy in self.copies:
            opened = f"opened as {steps[copy.name]}" if copy.name in steps else "not opened"
            condition = " where the driver is" if copy.name in late else ""
            lines.append(
                f"  {copy.name}  {copy.role.value}, {copy.size / 1e6:.1f} MB, {opened}{condition}; {copy.source}"
            )
        for runpath in dict.fromkeys(edit.runpath for edit in self.edits):
            count = sum(edit.runpath == runpath for edit in self.edits)
            lines.append(f"  RUNPATH of {count} files: {':'.join(runpath)}")
        lines.append(f"  left to the target: {', '.join(self.driver_sonames) or '(nothing)'}")
        lines += [f"  requires {requirement}" for requirement in self.requirements]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def plan_bundle(inputs: BundleInputs) -> BundlePlan:
    """Decide which files are bundled, with which RUNPATH, and in which order they are opened.

    Raises:
        CoreLibraryMissingError: required files are not there; all of them.
        RefusedError: a file that cannot work: wrong machine, wrong soname, grafted core, two of one name.
        UnresolvedLibraryError: DT_NEEDED entries that nothing provides; all of them.
        LibraryCycleError: libraries that need each other.
    """
    _require_files(inputs)
    _require_fit(inputs)
    graph = LibraryGraph(_nodes(inputs))
    _require_resolved(inputs, graph)
    return BundlePlan(
        backend=inputs.backend,
        core=inputs.core,
        machine=inputs.stock.machine,
        vendor_torch=inputs.vendor.version,
        sdk_version=inputs.sdk.version,
        copies=tuple(
            Copy(name=source.name, source=source.path, role=source.role, size=source.size) for source in inputs.sources
        ),
        edits=_edits(inputs),
        load=_load(inputs, graph),
        driver_sonames=_driver_sonames(inputs, graph),
        driver_dirs=inputs.sdk.target_driver_dirs,
        version_fields=dict(inputs.vendor.version_fields),
        requirements=inputs.vendor.requirements,
        warnings=_warnings(inputs),
    )


def _require_files(inputs: BundleInputs) -> None:
    required = [missing for missing in inputs.missing if not missing.optional]
    for where in dict.fromkeys(missing.where for missing in required):
        names = [missing.name for missing in required if missing.where == where]
        raise CoreLibraryMissingError(inputs.backend.name, names, where)
    lacking = [
        one.name for one in inputs.missing if one.optional == STOCK_SERVES and one.name not in inputs.stock.names
    ]
    if lacking:
        raise RefusedError(
            f"{inputs.backend.name}: neither the vendor's torch nor stock torch {inputs.stock.version} has "
            f"{', '.join(lacking)}",
            hint="check that the stock torch in use is complete",
        )


def _require_fit(inputs: BundleInputs) -> None:
    for source in inputs.sources:
        info = source.info
        if info is None:
            continue
        if info.machine != inputs.stock.machine:
            raise RefusedError(f"{source.path} is for {info.machine}, stock torch for {inputs.stock.machine}")
        if source.role in _TORCH_ROLES and info.soname != source.name:
            raise RefusedError(
                f"{source.path}: DT_SONAME is {info.soname or 'missing'}, expected {source.name}; stock torch's own "
                "libraries find it by that name, and would load a second copy",
                hint="this build of the vendor's torch cannot be bundled; ask the vendor for one with plain sonames",
            )
        mangled = [name for name in (source.name, *info.needed) if _MANGLED_CORE.match(name)]
        if mangled:
            raise RefusedError(
                f"{source.path}: grafted copy of a core library: {', '.join(mangled)}; with it torch would be in the "
                "process twice",
                hint="this torch went through a repair tool that renamed its core; use the vendor's own build",
            )


def _nodes(inputs: BundleInputs) -> list[Node]:
    ranks = {Role.CORE: 0, Role.THIRD_PARTY: 1, Role.DEVICE: 2, Role.DATA: 3}
    return [
        Node(
            name=source.name,
            soname=source.info.soname,
            needed=source.info.needed,
            symbols=source.symbols,
            # What needs the driver comes last, so that a machine without one opens all the rest.
            rank=ranks[source.role] + (len(ranks) if source.when is When.DRIVER else 0),
        )
        for source in inputs.sources
        if source.info is not None and source.symbols is not None
    ]


def _is_driver(inputs: BundleInputs, soname: str) -> bool:
    return soname in inputs.driver_names or matches(soname, inputs.backend.driver_sonames)


def _off_driver(inputs: BundleInputs, soname: str) -> bool:
    return matches(soname, SYSTEM_SONAMES) or soname in inputs.from_stock


def _require_resolved(inputs: BundleInputs, graph: LibraryGraph) -> None:
    unresolved = graph.unresolved(lambda soname: _off_driver(inputs, soname) or _is_driver(inputs, soname))
    if unresolved:
        searched = [f"the {len(inputs.sources)} files to bundle", f"stock torch {inputs.stock.version}"]
        searched += [*map(str, inputs.sdk.driver_dirs), "the backend's driver_sonames", "the system's libraries"]
        raise UnresolvedLibraryError(inputs.backend.name, unresolved, searched)


def _edits(inputs: BundleInputs) -> tuple[SetRunpath, ...]:
    stock = inputs.core is CoreSource.STOCK
    return tuple(
        SetRunpath(
            name=source.name,
            runpath=bundle_runpath(
                inputs.backend,
                inputs.sdk.target_driver_dirs,
                own=(*source.info.rpath, *source.info.runpath),
                stock=stock or not inputs.from_stock.isdisjoint(source.info.needed),
            ),
        )
        for source in inputs.sources
        if source.info is not None
    )


def _load(inputs: BundleInputs, graph: LibraryGraph) -> tuple[LoadStep, ...]:
    """Open torch's libraries and what they reach; a grafted file that nothing needs is carried, but not opened."""
    torch = [source for source in inputs.sources if source.role in _TORCH_ROLES]
    always = graph.closure(source.name for source in torch if source.when is When.ALWAYS)
    every = graph.closure(source.name for source in torch)
    return tuple(
        LoadStep(name=name, when=(When.ALWAYS if name in always else When.DRIVER).value)
        for name in graph.load_order()
        if name in every
    )


def _driver_sonames(inputs: BundleInputs, graph: LibraryGraph) -> tuple[str, ...]:
    return tuple(soname for soname, _ in graph.unresolved(lambda soname: _off_driver(inputs, soname)))


def _warnings(inputs: BundleInputs) -> tuple[str, ...]:
    backend, sdk = inputs.backend, inputs.sdk
    absent = [f"{one.name} not in vendor torch; {one.optional}" for one in inputs.missing if one.optional]
    passed = [f"{place} has no {backend.sdk_probe or 'such directory'}, passed over" for place in sdk.passed_over]
    if backend.distribution_prefix and not inputs.vendor.requirements:
        passed.append(
            f"no requirement that starts with {' or '.join(backend.distribution_prefix)} in the vendor torch's "
            "metadata; the target must bring the runtime by other means"
        )
    return (*absent, *passed, *inputs.notes)
