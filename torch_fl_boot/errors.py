"""Every refusal of `import torch_fl`, each with the next step.

All are ImportError, so that code which treats the plugin as optional keeps working. The form is that of the build tool:
who went wrong and how, what was found and expected, where; then a line `hint:` that names the next step.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

STOCK_INDEX = "https://download.pytorch.org/whl/cpu"
# How the loader speaks of a symbol, or a symbol version, that it does not find.
SYMBOL_WORDS = ("undefined symbol", "version `")


class FlagosImportError(ImportError):
    """Base of all refusals; `what` states the facts, `hint` the next step, and `str()` gives both."""

    def __init__(self, what: str, *, hint: str) -> None:
        self.what, self.hint = what, hint
        super().__init__(f"{what}\nhint: {hint}", name="torch_fl")


class MissingIdentityError(FlagosImportError):
    """The package lacks `_build.json`: a source tree, or a wheel put together without the compile stage."""

    def __init__(self, record: Path) -> None:
        if (record.parent / "csrc").is_dir():
            what = f"torch_fl was imported from its source tree {record.parent}, which is not built"
            hint = "run from another directory, so that the installed wheel is found"
        else:
            what = f"torch_fl in {record.parent} has no {record.name}, so it does not know what it was built for"
            hint = "the wheel is incomplete; rebuild it with `nox -s wheel-<backend>`, or reinstall it"
        super().__init__(what, hint=hint)


class MalformedRecordError(FlagosImportError):
    """`_build.json` or `_bundle.json` cannot be read as what it should be."""

    def __init__(self, record: Path, why: str) -> None:
        super().__init__(f"{record}: {why}", hint="the wheel is damaged or of another version; reinstall torch_fl")


class StrategyError(FlagosImportError):
    """`FLAGOS_CORE` asks for something this version does not do."""

    def __init__(self, asked: str, known: Iterable[str]) -> None:
        choices = ", ".join(known)
        super().__init__(
            f"FLAGOS_CORE={asked!r} is not supported; this version of torch_fl knows: {choices}",
            hint="unset FLAGOS_CORE, or set it to one of these",
        )


class TorchMissingError(FlagosImportError):
    """No stock torch to put the bundle in front of, or only the remains of one; `expected` is "" where any would do."""

    def __init__(self, found: str, *, expected: str) -> None:
        if expected:
            what = f"torch_fl needs stock torch {expected}, but {found}"
            hint = f"pip install torch=={expected}+cpu --index-url {STOCK_INDEX}"
        else:
            what = f"torch_fl finds no torch to work on: {found}"
            hint = "name the folder of the torch package with --torch"
        super().__init__(what, hint=hint)


class IncompatibleError(FlagosImportError):
    """Python, machine or torch differ from what the wheel was built for."""


class TorchMismatchError(IncompatibleError):
    """Stock torch and the bundle's torch differ in base version; in one process they would corrupt memory."""

    def __init__(self, *, found: str, expected: str, where: Path) -> None:
        super().__init__(
            f"torch_fl was built for torch {expected}, found torch {found} in {where}",
            hint=f"pip install torch=={expected}+cpu --index-url {STOCK_INDEX}, or install torch_fl built for {found}",
        )


class ForeignCoreError(FlagosImportError):
    """LD_PRELOAD brought a torch library into the process before Python started."""

    def __init__(self, evidence: str, entry: str) -> None:
        super().__init__(
            f"torch_fl cannot load its bundle beside another torch core: {evidence}, brought by LD_PRELOAD={entry}; "
            "expected none",
            hint="remove this entry from LD_PRELOAD (or /etc/ld.so.preload), then start a new process",
        )


class ImportOrderError(FlagosImportError):
    """Another torch core is in this process already; a second one would abort it."""

    def __init__(self, evidence: str) -> None:
        super().__init__(
            f"torch_fl must be imported before torch: {evidence}",
            hint="start a new process and put `import torch_fl` before the first `import torch`, or leave it to the "
            "wheel's hook, which FLAGOS_HOOK=0 and `python -S` turn off and PYTHONPATH folders lack",
        )


class HookBypassedError(ImportOrderError):
    """Torch was executed by a loader that the wheel's hook has not seen; `import torch_fl` calls it the wrong order."""

    def __init__(self, cause: ImportOrderError) -> None:
        FlagosImportError.__init__(
            self,
            f"another import hook executed torch without asking the hook of torch_fl: {cause.what}",
            hint="put `import torch_fl` first, or have the other hook use importlib.util.find_spec",
        )


class DamagedBundleError(FlagosImportError):
    """Bundled files that are missing or are not the ones the manifest describes; all of them at once."""

    def __init__(self, directory: Path, problems: Iterable[str]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"the bundle in {directory} differs from its manifest:\n{lines}",
            hint="reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>",
        )


class UnreadableBundleError(FlagosImportError):
    """Bundled files that this user may not read, or that the file system fails to give."""

    def __init__(self, directory: Path, problems: Iterable[str]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"the bundle in {directory} cannot be read by user {os.getuid()}:\n{lines}",
            hint="give this user the right to read the files and to enter the directories above them",
        )


class DriverMissingError(FlagosImportError):
    """Libraries of the vendor's driver stack that this machine lacks (`missing`); the loader's own words are kept.

    `relinked` says that torch/lib leads to the bundle, so that torch itself needs them.
    """

    def __init__(
        self, backend: str, missing: Mapping[str, str], *, searched: Iterable[str], hint: str, relinked: bool = False
    ) -> None:
        self.missing, self.relinked = tuple(missing), relinked
        lines = "\n".join(f"  {words}" for words in missing.values())
        super().__init__(
            f"{backend}: libraries of the driver stack were not found: {', '.join(missing)}; "
            f"looked in {', '.join((*searched, 'the directories of ld.so.conf'))}\n{lines}",
            hint=hint,
        )


class DriverAbsentError(DriverMissingError):
    """The driver stack is not on this machine: torch runs on its own libraries, and the first use of flagos says so."""


class PreloadError(FlagosImportError):
    """The loader refused the bundle; its own words are kept, and `lacks` lists all symbols that it would miss."""

    def __init__(self, backend: str, words: str, *, sdk_version: str, lacks: Iterable[str] = ()) -> None:
        if any(sign in words for sign in SYMBOL_WORDS):
            built = f" (the bundle was built with SDK {sdk_version})" if sdk_version else ""
            hint = f"the driver stack or a library on LD_LIBRARY_PATH is older than the bundle needs{built}; update it"
        else:
            hint = "the loader's words name the file; reinstall torch_fl if it is one of the bundle's"
        lines = "".join(f"\n  {line}" for line in lacks)
        told = f"\nno library in this process provides:{lines}" if lines else ""
        super().__init__(f"{backend}: the bundle could not be loaded: {words}{told}", hint=hint)


class NoExecMountError(FlagosImportError):
    """The bundle lies where the system refuses to map code; the loader's own words are kept."""

    def __init__(self, backend: str, words: str, directory: Path) -> None:
        super().__init__(
            f"{backend}: the bundle could not be loaded: {words}\n{directory} lies on a file system mounted noexec, "
            "expected one that allows to map code",
            hint=f"install the environment on a file system without noexec, or remount the one that holds {directory}",
        )


class IndexFileError(FlagosImportError):
    """The file of a few hundred bytes by which the bundle is opened cannot be made; the system's own words are kept."""

    def __init__(self, words: str) -> None:
        super().__init__(
            f"the file by which the bundle is opened could not be made, neither in memory nor on disk: {words}",
            hint="allow memfd_create in this sandbox, or set TMPDIR to a directory that can be written",
        )


class LeftoverError(FlagosImportError):
    """A refused preload that the loader could not undo: torch must not be imported in this process any more."""

    def __init__(self, cause: FlagosImportError, leftovers: Iterable[str]) -> None:
        super().__init__(
            f"{cause.what}\nparts of the bundle stay mapped in this process: {', '.join(leftovers)}",
            hint=f"{cause.hint}; torch cannot be imported in this process, start a new one",
        )


class TorchImportError(FlagosImportError):
    """Stock torch does not start, on the bundle's core or (a plain build) its own; the cause is chained.

    `absent` is what the machine lacks of the driver stack; a relinked torch does not start for want of that.
    """

    def __init__(self, backend: str, words: str, *, core: str, absent: DriverAbsentError | None = None) -> None:
        if absent is not None and absent.relinked:
            what = f"torch is relinked to the bundle, and the driver stack lacks {', '.join(absent.missing)}"
            super().__init__(f"{backend}: torch could not be imported: {words}; {what}", hint=absent.hint)
            return
        super().__init__(
            f"{backend}: stock torch could not be imported on {core}: {words}",
            hint="stock torch is incomplete, or does not belong to the bundle; reinstall torch and torch_fl",
        )


class PluginImportError(FlagosImportError):
    """Torch runs, and the plugin's own libraries do not load; the cause is chained."""

    def __init__(self, backend: str, words: str) -> None:
        super().__init__(
            f"{backend}: the plugin's own libraries could not be loaded: {words}",
            hint="reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>",
        )


class DeviceTypeTakenError(FlagosImportError):
    """Another plugin has given PyTorch's one PrivateUse1 device type its name."""

    def __init__(self, taken_as: str, *, wanted: str, plugins: Iterable[str] = ()) -> None:
        names = ", ".join(plugins)
        installed = f"; installed plugins beside torch_fl: {names}" if names else ""
        super().__init__(
            f"torch_fl cannot register the device '{wanted}': another plugin has already claimed PyTorch's one "
            f"PrivateUse1 device type as '{taken_as}'{installed}",
            hint="use one of the two per process; if the other one loads by itself, set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 before Python starts",
        )


class EntryPointsError(FlagosImportError):
    """An installed distribution has entry points that cannot be read, which torch reads at the end of its import."""

    def __init__(self, distributions: Iterable[str], words: str) -> None:
        names = ", ".join(distributions)
        super().__init__(
            f"the entry points of {names} cannot be read: {words}; `import torch` reads them to find its plugins",
            hint=f"reinstall {names}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import torch_fl",
        )


class MixedCoreError(FlagosImportError):
    """After the import, a core library is mapped twice or from the wrong place; all of them at once."""

    def __init__(self, problems: Iterable[str]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"torch runs on a mixture of libraries:\n{lines}",
            hint="unset LD_PRELOAD and LD_LIBRARY_PATH entries that hold a torch, then start a new process",
        )


class RoutingError(FlagosImportError):
    """Routes that cannot be followed: syntax, unknown operators, targets or callables; all of them at once."""

    def __init__(self, problems: Iterable[object]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"the routing of operators cannot be followed:\n{lines}",
            hint="correct these lines, or unset FLAGOS_BACKEND_CONFIG and FLAGOS_OP_<name>; see docs/routing.md",
        )
