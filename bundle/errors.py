"""Every refusal of the build tool, with its exit code and the next step.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | findings: the audit found problems, or a verification's tests failed (only these) |
| 2 | bad usage, unknown backend |
| 3 | nothing to do: what an earlier stage should have left is missing or empty |
| 4 | an input was not found: vendor torch, SDK, stock torch, interpreter, core library |
| 5 | a needed library is unresolved |
| 6 | libraries need each other in a circle |
| 7 | an external tool is missing, too old, or failed |
| 8 | a wheel, a manifest, a report or an ELF file is malformed |
| 9 | refused: inputs disagree, or output would be wrong |
| 10 | the system refused to read or write a file, or too little space is free for what is to be written |
| 70 | a bug in this tool |
| 130 | interrupted |
| 143 | terminated |
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bundle.disk import describe_free, read_fault, says_full

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


FULL_DISK = (
    "make room on that disk, or for temporary files name a folder on another one with TMPDIR; "
    "then run the same command again"
)


class BundleError(Exception):
    """Base of all refusals: `who went wrong; found and expected facts`, and a hint that names the next step."""

    exit_code: int = 70
    hint: str = "this is a bug in the build tool; run again with --traceback and report it"


class UsageError(BundleError):
    """The request itself is unusable."""

    exit_code = 2
    hint = "see --help"


class UnknownBackendError(UsageError):
    """A backend name that `bundle/backends.py` does not list, or an environment that asks for none."""

    hint = "name one of the backends above"


class NothingBundledError(BundleError):
    """A stage whose predecessor was skipped, is empty, stale, or belongs to another backend."""

    exit_code = 3

    def __init__(self, what: str, *, stage: str, backend: str) -> None:
        self.hint = f"run `inv {stage} --backend {backend}` first"
        super().__init__(what)


class InputNotFoundError(BundleError):
    """Something the stage reads is not where it was looked for."""

    exit_code = 4
    hint = "name it explicitly; see --help for the option and docs/backends.md for the variables"


class VendorTorchNotFoundError(InputNotFoundError):
    """No installation of the vendor's torch."""

    def __init__(self, backend: str, searched: Iterable[str], *, variable: str) -> None:
        places = "; ".join(searched) or "(nowhere)"
        self.hint = f"pass --vendor-torch DIR (the torch package), or set {variable} to its lib directory"
        super().__init__(f"{backend}: no vendor torch found; looked in {places}")


class AmbiguousVendorTorchError(InputNotFoundError):
    """More than one candidate; picking one silently would bundle an unknown torch."""

    def __init__(self, backend: str, candidates: Iterable[Path]) -> None:
        self.hint = "pass --vendor-torch with the one that is meant"
        super().__init__(f"{backend}: more than one vendor torch: {', '.join(map(str, candidates))}")


class SdkNotFoundError(InputNotFoundError):
    """No vendor SDK; without it a driver's library cannot be told from a missing one."""

    def __init__(self, backend: str, searched: Iterable[str], *, probe: str) -> None:
        self.hint = "install the SDK, or name its root with --sdk-root"
        super().__init__(f"{backend}: no SDK with {probe}; looked in {', '.join(searched)}")


class CoreLibraryMissingError(InputNotFoundError):
    """Required libraries absent from the vendor's torch/lib; all of them at once."""

    hint = "a torch without them is not this vendor's build; check the directory"

    def __init__(self, backend: str, missing: Iterable[str], where: Path) -> None:
        super().__init__(f"{backend}: required libraries missing from {where}: {', '.join(missing)}")


class UnresolvedLibraryError(BundleError):
    """DT_NEEDED entries that neither the bundle, stock torch, the driver nor the system provides; all at once."""

    exit_code = 5
    hint = "bundle them, or, if the target machine owns them, add them to driver_sonames of the backend"

    def __init__(
        self, backend: str, unresolved: Iterable[tuple[str, tuple[str, ...]]], searched: Iterable[str]
    ) -> None:
        lines = [f"  {soname} (needed by {', '.join(needed_by)})" for soname, needed_by in unresolved]
        super().__init__(
            f"{backend}: {len(lines)} needed libraries are unresolved; looked in {', '.join(searched)}\n"
            + "\n".join(lines)
        )


class LibraryCycleError(BundleError):
    """Libraries that need each other have no load order."""

    exit_code = 6
    hint = "a cycle in DT_NEEDED is a fault of the vendor's build; report it to the vendor"

    def __init__(self, cycle: Iterable[str]) -> None:
        super().__init__(f"no load order: {' -> '.join(cycle)}")


class ToolError(BundleError):
    """An external program is missing, too old, or failed; its own words follow."""

    exit_code = 7
    hint = "the program's own output above names the cause"

    def __init__(self, what: str, *, output: str = "") -> None:
        self._full = says_full(output or what)
        if self._full:
            self.hint = FULL_DISK
        super().__init__(what)

    def suggest(self, hint: str) -> None:
        """Set the next step, unless the program ran into a full disk: no other step helps then."""
        if not self._full:
            self.hint = hint


class PassedOnError(ToolError):
    """A program of ours was started and refused: its own text, hint and exit code."""

    def __init__(self, what: str, *, hint: str, exit_code: int) -> None:
        super().__init__(what)
        self.hint = hint
        self.exit_code = exit_code


class MalformedError(BundleError):
    """A wheel, manifest, report or ELF file that does not follow its format."""

    exit_code = 8
    hint = "rebuild or re-fetch the file"


class RefusedError(BundleError):
    """Inputs that disagree, or an output that would be wrong."""

    exit_code = 9
    hint = "see the facts above"

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        if hint is not None:
            self.hint = hint
        super().__init__(what)


class FileAccessError(BundleError):
    """The system refused to read or write a file: permissions, a full disk, a folder in a file's place.

    Where one call was about many files (shutil.Error), the first is named and the others are counted.
    """

    exit_code = 10
    hint = "look at the path and its permissions, then run the same command again"

    def __init__(self, cause: OSError) -> None:
        fault = read_fault(cause)
        text = f"{' -> '.join(fault.names) or 'a file'}: {fault.words}"
        if fault.more:
            text += f", and so for {fault.more} more"
        if fault.full:
            self.hint = FULL_DISK
            text += f"; {describe_free(fault.names)}"
        super().__init__(text)


class NoSpaceError(FileAccessError):
    """Less space is free than a stage is going to write; asked before it begins. Sizes in bytes."""

    def __init__(self, who: str, *, needed: int, free: int, where: Path, hint: str) -> None:
        self.hint = hint
        what = f"{who} needs {needed / 1e6:.0f} MB in {where}, but only {free / 1e6:.0f} MB are free"
        BundleError.__init__(self, what)


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Give an OSError that names no file, such as that of a write to a full disk, the path that is worked on."""
    try:
        yield
    except OSError as err:
        if err.errno is not None and err.filename is None:
            err.filename = str(path)
        raise


class VersionMismatchError(RefusedError):
    """Vendor torch and stock torch of different base versions cannot share one process."""

    def __init__(self, backend: str, *, vendor: str, stock: str) -> None:
        super().__init__(
            f"{backend}: vendor torch is {vendor}, stock torch is {stock}; the base versions must be equal",
            hint=(
                "build against stock torch of the vendor's base version (TORCH_FL_STOCK_TORCH), "
                "or use another vendor torch"
            ),
        )


class TamperedBundleError(RefusedError):
    """Bundled files that no longer have the hash their manifest records; all of them."""

    def __init__(self, backend: str, files: Iterable[str]) -> None:
        super().__init__(
            f"{backend}: bundled files differ from their manifest: {', '.join(files)}",
            hint=f"run `inv bundle --backend {backend}` again",
        )
