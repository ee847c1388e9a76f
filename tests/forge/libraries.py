"""The forged vendor's own libraries: the runtime and its companions in C, the torch libraries of the device in C++."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tests.forge.flavours import C10_OBJECTS, TORCH_LIB
from tests.forge.shapes import CLibrary, DeviceLibrary, Flavour
from tests.forge.toolchain import Link, Toolchain, Unit

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.backends import Backend

_WITHOUT_TORCH = frozenset({"driver_glue", "traits_metax", "traits_ppu", "traits_dcu", "traits_cuda"})
READ_ONLY = 0o555


@dataclass(frozen=True, kw_only=True)
class LibraryBuilder:
    """Builds one flavour's libraries into a tree; `stock_lib` is only linked against."""

    backend: Backend
    flavour: Flavour
    tree: Path
    stock_lib: Path
    toolchain: Toolchain

    def build(self) -> None:
        """Build all of them, in the order in which they need each other.

        Raises:
            ToolError: the compiler or the linker failed.
        """
        units = {name: self._unit(name) for name in self._object_names()}
        objects = dict(zip(units, self.toolchain.compile_all(list(units.values())), strict=True))
        for own in (*self.flavour.before, self.flavour.runtime, *self.flavour.after):
            self._build_c(own)
        for device in (self._c10(), *self.flavour.device):
            self._build_device(device, objects)

    def _object_names(self) -> list[str]:
        names = [name for library in (self._c10(), *self.flavour.device) for name in library.objects]
        # The slowest first, so that the last one to finish is a quick one.
        return sorted(dict.fromkeys(names), key=lambda name: not name.startswith(("kernels", "registration", "boxing")))

    def _unit(self, name: str) -> Unit:
        defines = (f"RUNTIME_PREFIX={self.backend.runtime_prefix}",) if name == "driver_glue" else ()
        return self.toolchain.unit(f"{name}.cpp", torch=name not in _WITHOUT_TORCH, defines=defines)

    def _c10(self) -> DeviceLibrary:
        return DeviceLibrary(
            name=self.flavour.c10,
            objects=(*C10_OBJECTS, "driver_glue"),
            needs=(self.flavour.runtime.path,),
            stock=("libc10.so",),
        )

    def _build_device(self, library: DeviceLibrary, objects: dict[str, Path]) -> None:
        output = self.tree / TORCH_LIB / library.name
        edit = next((edit for edit in self.flavour.edits if edit.name == "libtorch.so"), None)
        self.toolchain.link(
            Link(
                output=output,
                soname=library.name,
                objects=tuple(objects[name] for name in library.objects),
                libraries=(
                    *(self.tree / need for need in library.needs),
                    *(self.stock_lib / name for name in library.stock),
                ),
                runpath=edit.runpath if edit else "$ORIGIN",
                rpath=self.flavour.rpath,
            )
        )
        if library.name == self.flavour.c10:
            # Some vendors ship files that not even their owner may write.
            output.chmod(READ_ONLY)

    def _build_c(self, library: CLibrary) -> None:
        path = self.tree / library.path
        soname = library.soname or path.name
        output = self.tree / library.outside if library.outside else path
        self.toolchain.link(
            Link(
                output=output,
                soname=soname,
                objects=self.toolchain.compile_all(self._c_units(library)),
                libraries=tuple(self.tree / need for need in library.needs),
                runpath="$ORIGIN",
                version_script=self._version_script(soname) if library.versioned else None,
            )
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        if library.outside:
            path.symlink_to(os.path.relpath(output, path.parent))
        if library.link:
            (path.parent / library.link).symlink_to(path.name)

    def _c_units(self, library: CLibrary) -> list[Unit]:
        if library.sources:
            return [self.toolchain.unit(source, defines=library.defines) for source in library.sources]
        name = f"{PurePosixPath(library.path).name}.c"
        return [Unit(name=name, text=function_source(library.symbol, library.calls), cxx=False)]

    def _version_script(self, soname: str) -> Path:
        script = self.tree / f"{soname}.map"
        script.write_text(f"{soname} {{ global: *; }};\n", encoding="utf-8")
        return script


def function_source(symbol: str, calls: tuple[str, ...]) -> str:
    """Return C text of `int symbol(int *value)`, which sets the value to 1 if all of `calls` succeed.

    The first error code of a call is passed on; so every library that is needed is also used.
    """
    declarations = "".join(f"extern int {call}(int *value);\n" for call in calls)
    body = "".join(f"  if ((code = {call}(value)) != 0) return code;\n" for call in calls)
    return (
        f'{declarations}__attribute__((visibility("default"))) int {symbol}(int *value) {{\n'
        f"  int code = 0;\n{body}  *value = 1;\n  return code;\n}}\n"
    )
