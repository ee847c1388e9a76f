"""What a backend is: the types that `bundle/backends.py` fills in. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(str, Enum):
    """What a bundled file is for; written into `_bundle.json`."""

    CORE = "core"
    DEVICE = "device"
    THIRD_PARTY = "third-party"
    DATA = "data"


class CoreSource(str, Enum):
    """Where libc10, libtorch_cpu and their kin come from at run time."""

    VENDOR = "vendor"
    STOCK = "stock"


class When(str, Enum):
    """When the runtime opens a library: always, or only where its driver is present."""

    ALWAYS = "always"
    DRIVER = "driver"


@dataclass(frozen=True, kw_only=True)
class Library:
    """One file of the vendor's `torch/lib`.

    `required=False` means that some builds of the vendor lack it; `stock_fallback` that stock torch's copy then serves.
    """

    name: str
    role: Role
    required: bool = True
    stock_fallback: bool = False
    when: When = When.ALWAYS


@dataclass(frozen=True, kw_only=True)
class ThirdParty:
    """Where libraries that are neither torch nor driver come from.

    `torch_libs` takes every file of the `torch.libs` folder beside the vendor's torch package (links resolved);
    `names` are taken from `directory`, which the environment variable `variable` overrides.
    """

    torch_libs: bool = False
    names: tuple[str, ...] = ()
    directory: str = ""
    variable: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownAbort:
    """A test whose operator kills the process in the vendor's own kernel, also without this plugin."""

    test: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One wheel flavour; adding a vendor means adding one of these.

    Paths in `driver_dirs` and `sdk_probe` are relative to the SDK root unless absolute; a `*` in `driver_dirs` is
    expanded in the SDK of the build machine. `driver_sonames` are `fnmatch` patterns of libraries that belong to the
    target machine, for SDKs that are not fully installed where the wheel is built. `told_by_sdk` marks a backend that
    shares its ACCELERATOR value with another and is told apart by one of its `sdk_variables` being set.
    `settled_variables` are build variables known from elsewhere, with the value that `build_variables` imply for them;
    set without those they would be overruled in silence, so they are refused.
    `distribution_prefix` lists how the names of those requirements of the vendor's torch start that bring its runtime;
    the wheel requires the same.
    """

    name: str
    title: str
    accelerator: str
    python: str
    label: str
    bundle_dir: str
    probe: str
    libraries: tuple[Library, ...]
    runtime_prefix: str
    runtime_libraries: tuple[str, ...]
    gems_vendor: str
    sdk_variables: tuple[str, ...] = ()
    sdk_defaults: tuple[str, ...] = ()
    sdk_probe: str = ""
    driver_dirs: tuple[str, ...] = ()
    driver_sonames: tuple[str, ...] = ()
    build_variables: tuple[tuple[str, str], ...] = ()
    settled_variables: tuple[tuple[str, str], ...] = ()
    third_party: ThirdParty = ThirdParty()
    core: CoreSource = CoreSource.VENDOR
    version_file: bool = False
    version_fields: tuple[str, ...] = ("cuda", "hip", "rocm")
    vendor_lib_variable: str = "FLAGOS_VENDOR_TORCH_LIB"
    marked_by: tuple[str, ...] = ()
    distribution_prefix: tuple[str, ...] = ()
    told_by_sdk: bool = False
    mm_tolerance: float = 9.5e-06
    known_aborts: tuple[KnownAbort, ...] = ()

    @property
    def bundle_files(self) -> int | None:
        """Files in a complete bundle, or None where the vendor decides (`torch.libs`)."""
        if self.third_party.torch_libs:
            return None
        return len(self.libraries) + len(self.third_party.names) + int(self.version_file)
