"""Compile the plugin with g++ alone, against the torch of the running Python: no CMake, no ninja, no wheel, no bundle.

    python benchmarks/plain_build.py FOLDER [--accelerator cuda] [--jobs N] [--debug-flags=-fsanitize=address]

FLAGGEMS_KERNEL=ON in the environment builds the route to Python operators in, as it does for wheels.

FOLDER then holds the packages `torch_fl` and `torch_fl_boot`; with it on PYTHONPATH, `import torch_fl` runs on that
torch's own core, which must be a build for the accelerator. Meant for benchmarks on machines where the build tools are
missing. The lists of sources are those of CMakeLists.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_SETTING = re.compile(r'^set\((\w+) "(.*)"\)$', re.MULTILINE)
_SOURCE = re.compile(r"torch_fl/csrc/[\w/]+\.cpp")
_PYTHON_ROUTE = REPOSITORY / "torch_fl/csrc/route/FlagosPythonRoute.cpp"


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The torch to compile against."""

    folder: Path
    version: str
    standard: str


def find_torch() -> Torch:
    """Return the running Python's torch, without importing it.

    Raises:
        SystemExit: there is none, or it lacks what is looked for.
    """
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"plain_build: error: {sys.executable} has no torch")
    folder = Path(spec.submodule_search_locations[0])
    version = re.search(r"^__version__ *= *'(.*)'", (folder / "version.py").read_text(), re.MULTILINE)
    config = folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    standard = re.search(r"CXX_STANDARD +(\d+)", config.read_text())
    if version is None or standard is None:
        raise SystemExit(f"plain_build: error: {folder} tells no version, or {config} no CXX_STANDARD")
    return Torch(folder=folder, version=version[1], standard=standard[1])


def settings(accelerator: str) -> dict[str, str]:
    """Return what bundle/backends.py says about the backend that an ACCELERATOR value stands for."""
    script = REPOSITORY / "cmake" / "backend_settings.py"
    environ = {**os.environ, "ACCELERATOR": accelerator}
    done = subprocess.run([sys.executable, "-I", str(script)], env=environ, check=True, stdout=subprocess.PIPE)
    return dict(_SETTING.findall(done.stdout.decode()))


def sources(library: str) -> list[Path]:
    """Return the sources that CMakeLists.txt gives a library without conditions."""
    text = (REPOSITORY / "CMakeLists.txt").read_text()
    block = text.split(f"add_library({library} SHARED", 1)[1].split("\ntarget_", 1)[0]
    return [REPOSITORY / name for name in _SOURCE.findall(block)]


def has_python_route(chosen: dict[str, str]) -> bool:
    """Return whether FLAGGEMS_KERNEL asks for the route to Python operators."""
    return chosen["FLAGOS_FLAGGEMS_PYTHON"] == "ON"


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Compiles and links with one set of options; `target` is the package's folder."""

    torch: Torch
    chosen: dict[str, str]
    target: Path
    extra: tuple[str, ...]

    def options(self) -> list[str]:
        """Return the options of every compilation."""
        runtime = ", ".join(f'"{name}"' for name in self.chosen["FLAGOS_RUNTIME_LIBRARIES"].split(";"))
        include = self.torch.folder / "include"
        folders = [include, include / "torch/csrc/api/include", Path(sysconfig.get_path("include"))]
        defined = {
            "FLAGOS_TORCH_VERSION": f'"{self.torch.version}"',
            "FLAGOS_RUNTIME_PREFIX": f'"{self.chosen["FLAGOS_RUNTIME_PREFIX"]}"',
            "FLAGOS_RUNTIME_LIBRARIES": runtime,
        }
        return [
            *("-O2", "-DNDEBUG", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
            *self.extra,
            f"-std=c++{self.torch.standard}",
            f"-I{REPOSITORY / 'torch_fl/csrc'}",
            *(f"-isystem{folder}" for folder in folders),
            *(f"-D{name}={value}" for name, value in defined.items()),
            *(["-DFLAGOS_FLAGGEMS_PYTHON"] if has_python_route(self.chosen) else []),
        ]

    def compile(self, source: Path) -> Path:
        """Compile one source and return the object file."""
        made = self.target / "objects" / f"{source.stem}.o"
        subprocess.run(["g++", *self.options(), "-c", str(source), "-o", str(made)], check=True)
        return made

    def link(self, made: Path, objects: list[Path], libraries: list[str], rpath: str) -> None:
        """Link objects to libraries of this package and of torch, which are found beside it or are loaded already."""
        folders = [f"-L{self.target / 'lib'}", f"-L{self.torch.folder / 'lib'}"]
        names = [f"-l{name}" for name in libraries]
        command = ["g++", "-shared", *self.extra, "-o", made, *objects, *folders, *names, "-ldl", f"-Wl,-rpath,{rpath}"]
        subprocess.run([str(part) for part in command], check=True)


def build(compiler: Compiler, jobs: int) -> None:
    """Compile everything, then link in the order of need."""
    (compiler.target / "objects").mkdir()
    library = compiler.target / "lib"
    library.mkdir()
    stub = REPOSITORY / "torch_fl" / "csrc" / "stub" / "Stub.c"
    wanted = {name: sources(name) for name in ("flagos", "torch_fl", "torch_bindings")}
    wanted["torch_bindings"] += [_PYTHON_ROUTE] if has_python_route(compiler.chosen) else []
    with ThreadPoolExecutor(jobs) as pool:
        pending = {name: [pool.submit(compiler.compile, source) for source in files] for name, files in wanted.items()}
        made = {name: [job.result() for job in results] for name, results in pending.items()}
    compiler.link(library / "libflagos.so", made["flagos"], [], "$ORIGIN")
    compiler.link(library / "libtorch_fl.so", made["torch_fl"], ["torch_cpu", "c10"], "$ORIGIN")
    needed = ["torch_fl", "flagos", "torch_python", "torch_cpu", "c10"]
    compiler.link(library / "libtorch_bindings.so", made["torch_bindings"], needed, "$ORIGIN")
    entry = compiler.target / "objects" / "Stub.o"
    command = ["gcc", "-fPIC", f"-I{sysconfig.get_path('include')}", "-c", str(stub), "-o", str(entry)]
    subprocess.run(command, check=True)
    extension = compiler.target / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler.link(extension, [entry], ["torch_bindings"], "$ORIGIN/lib")
    shutil.rmtree(compiler.target / "objects")


def build_record(torch: Torch, chosen: dict[str, str]) -> dict[str, object]:
    """Return the content of `_build.json`, as CMake would write it."""
    return {
        "accelerator": chosen["FLAGOS_ACCELERATOR"],
        "backend": chosen["FLAGOS_BACKEND"],
        "bundle_dir": chosen["FLAGOS_BUNDLE_DIR"],
        "flaggems_python": has_python_route(chosen),
        "machine": platform.machine(),
        "python": f"cp{sys.version_info.major}{sys.version_info.minor}",
        "runtime_libraries": chosen["FLAGOS_RUNTIME_LIBRARIES"].split(";"),
        "runtime_prefix": chosen["FLAGOS_RUNTIME_PREFIX"],
        "schema": 1,
        "torch": torch.version,
        "version": "0.1.0",
    }


def main() -> None:
    """Build into the folder, which is made anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accelerator", default="cuda", help="value of ACCELERATOR (default: cuda)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--debug-flags", default="", help="more options for compiler and linker, separated by commas")
    args = parser.parse_args()
    start = time.monotonic()
    torch, chosen = find_torch(), settings(args.accelerator)
    shutil.rmtree(args.folder, ignore_errors=True)
    target = args.folder.resolve() / "torch_fl"
    ignored = shutil.ignore_patterns("csrc", "__pycache__")
    shutil.copytree(REPOSITORY / "torch_fl", target, ignore=ignored)
    shutil.copytree(REPOSITORY / "torch_fl_boot", args.folder / "torch_fl_boot", ignore=ignored)
    extra = tuple(flag for flag in args.debug_flags.split(",") if flag)
    build(Compiler(torch=torch, chosen=chosen, target=target, extra=extra), args.jobs)
    (target / "_build.json").write_text(json.dumps(build_record(torch, chosen), indent=2, sort_keys=True))
    print(f"{target}: for torch {torch.version} in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
