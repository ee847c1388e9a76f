"""The bundle stage: copies of the vendor's files, patched and hashed, and `_bundle.json` which describes them.

Everything is made in a staging folder beside the output and renamed over it at the end, so that a killed stage leaves
the output as it was, and nothing of an older run or of another backend survives in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bundle.errors import NothingBundledError, RefusedError, TamperedBundleError, about
from bundle.locks import exclusive
from bundle.manifest import BUNDLE_FILE, BundledFile, Manifest, read_manifest
from bundle.patch import Edit, apply_edit
from bundle.space import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bundle.elf import ElfInfo
    from bundle.patch import Patchelf
    from bundle.plan import BundlePlan, Copy
    from bundle.ui import Reporter

_FICLONE = 0x40049409  # ioctl: let two files share their blocks, where the file system can
_GROWTH = 1.03
"""By patchelf, which puts a string table that it must change at the file's end, and leaves the old one."""
_CHUNK = 2**20
LIBRARY_MODE, DATA_MODE = 0o755, 0o644
STRATEGY = "preload"


@dataclass(frozen=True, kw_only=True)
class BundleFacts:
    """What the manifest says besides the plan: `torch` is the base version that the wheel is for, `python` a tag."""

    torch: str
    python: str
    label: str
    forged: bool
    strategy: str = STRATEGY


def bundle_stage(plan: BundlePlan, facts: BundleFacts, out: Path, *, patchelf: Patchelf, ui: Reporter) -> Manifest:
    """Make `out/<bundle_dir>/` and `out/_bundle.json`, replacing whatever `out` held. The vendor's files are only read.

    Raises:
        NoSpaceError: too little space for the copies.
        RefusedError: patchelf damaged a file.
        ToolError: patchelf failed.
    """
    name = plan.backend.name
    for warning in plan.warnings:
        ui.warning(f"{name}: {warning}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(out.parent / f".{out.name}.lock", backend=name, doing=f"writing {out}"), _replacing(out) as staging:
        require(f"{name}: the bundle", int(plan.size * _GROWTH), staging.parent)
        folder = staging / plan.backend.bundle_dir
        folder.mkdir()
        with ui.step(f"{name}: copy {len(plan.copies)} files, {plan.size / 1e6:.1f} MB"):
            for copy in plan.copies:
                _copy(copy, folder / copy.name)
        with ui.step(f"{name}: set RUNPATH of {len(plan.edits)} files with patchelf {patchelf.version}"):
            edits = [Edit(path=folder / edit.name, runpath=edit.runpath) for edit in plan.edits]
            infos = {edit.path.name: apply_edit(edit, patchelf, ui) for edit in edits}
        with ui.step(f"{name}: hash {len(plan.copies)} files"):
            files = tuple(_describe(copy, folder, infos.get(copy.name)) for copy in _by_name(plan))
        manifest = _manifest(plan, facts, files)
        (staging / BUNDLE_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def load_bundle(out: Path, *, backend: str) -> Manifest:
    """Read and check what `bundle_stage` left: every file there, none too many, sizes and hashes as recorded.

    Raises:
        NothingBundledError: no bundle, an empty one, or another backend's.
        TamperedBundleError: files that differ from the manifest, or are gone.
        RefusedError: files that the manifest does not list.
        MalformedError: the manifest cannot be read.
    """
    path = out / BUNDLE_FILE
    if not path.is_file():
        raise NothingBundledError(
            f"{backend}: no bundle in {out}: {BUNDLE_FILE} is missing", stage="bundle", backend=backend
        )
    manifest = read_manifest(path)
    if manifest.backend != backend:
        what = f"{backend}: the bundle in {out} belongs to {manifest.backend}"
        raise NothingBundledError(what, stage="bundle", backend=backend)
    if not manifest.files:
        raise NothingBundledError(f"{backend}: the bundle in {out} lists no files", stage="bundle", backend=backend)
    listed = {f"{manifest.bundle_dir}/{file.name}" for file in manifest.files} | {BUNDLE_FILE}
    present = {str(found.relative_to(out)) for found in out.rglob("*") if found.is_symlink() or not found.is_dir()}
    if extra := sorted(present - listed):
        raise RefusedError(
            f"{backend}: files in {out} that {BUNDLE_FILE} does not list: {', '.join(extra)}",
            hint=f"run `inv bundle --backend {backend}` again; it starts from an empty folder",
        )
    wrong = [file.name for file in manifest.files if not _as_recorded(out / manifest.bundle_dir / file.name, file)]
    if wrong:
        raise TamperedBundleError(backend, wrong)
    return manifest


def sha256_of(path: Path) -> str:
    """Return the hexadecimal digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _as_recorded(path: Path, file: BundledFile) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    return sha256_of(path) == file.sha256


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when all went well; leftovers of a killed stage are removed first."""
    staging, old = out.parent / f".{out.name}.staging", out.parent / f".{out.name}.old"
    for leftover in (staging, old):
        _remove(leftover)
    staging.mkdir()
    try:
        with about(out):
            yield staging
    except BaseException:
        shutil.rmtree(staging)
        raise
    if out.is_symlink() or out.exists():
        out.rename(old)
    staging.rename(out)
    _remove(old)


def _remove(path: Path) -> None:
    """Remove whatever has this name: a folder with all in it, a file, or a link without what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy(copy: Copy, target: Path) -> None:
    """Copy content only: a vendor's files may be read-only, and links were resolved by the plan."""
    with copy.source.open("rb") as source, target.open("wb") as stream:
        try:
            fcntl.ioctl(stream.fileno(), _FICLONE, source.fileno())
        except OSError:
            # No shared blocks on this file system, or across two of them.
            shutil.copyfile(copy.source, target)


def _by_name(plan: BundlePlan) -> list[Copy]:
    return sorted(plan.copies, key=lambda copy: copy.name)


def _describe(copy: Copy, folder: Path, info: ElfInfo | None) -> BundledFile:
    path = folder / copy.name
    path.chmod(LIBRARY_MODE if info else DATA_MODE)
    return BundledFile(
        name=copy.name,
        soname=info.soname if info else None,
        role=copy.role.value,
        sha256=sha256_of(path),
        size=path.stat().st_size,
        needed=info.needed if info else (),
        runpath=info.runpath if info else (),
    )


def _manifest(plan: BundlePlan, facts: BundleFacts, files: tuple[BundledFile, ...]) -> Manifest:
    backend = plan.backend
    return Manifest(
        backend=backend.name,
        title=backend.title,
        core=plan.core.value,
        strategy=facts.strategy,
        bundle_dir=backend.bundle_dir,
        torch=facts.torch,
        python=facts.python,
        machine=plan.machine,
        label=facts.label,
        forged=facts.forged,
        vendor_torch=plan.vendor_torch,
        sdk_version=plan.sdk_version,
        runtime_prefix=backend.runtime_prefix,
        runtime_libraries=backend.runtime_libraries,
        gems_vendor=backend.gems_vendor,
        load=plan.load,
        files=files,
        driver_sonames=plan.driver_sonames,
        driver_dirs=plan.driver_dirs,
        version_fields=dict(plan.version_fields),
        requirements=plan.requirements,
    )
