"""Running Python text on a forged vendor's libraries under stock torch's Python, without the plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bundle.backends import BACKENDS

VENDOR_CORE = ("metax", "ppu", "dcu")

# What the plugin's runtime does: the vendor's libraries first, then stock torch's Python. Stock torch's Python was
# built without CUDA and refuses the device name; the device itself needs nothing from it.
PRELOAD = """
import ctypes, importlib.util, os, pathlib
stock = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0]) / "lib"
vendor = pathlib.Path(os.environ["VENDOR_LIB"])
def load(path):
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
load(stock / "libgomp.so.1")
if os.environ["VENDOR_CORE"] == "vendor":
    load(vendor / "libtorch_python.so")
else:
    for name in ("libc10.so", "libtorch_cpu.so"):
        load(stock / name)
    for name in ("libc10_cuda.so", "libtorch_nvshmem.so", "libtorch_cuda.so", *os.environ.get("ALSO", "").split()):
        load(vendor / name)
import torch
torch.cuda._lazy_init = lambda: None
"""

# PyTorch's autograd threads can abort a process while its interpreter shuts down ("terminate called without an active
# exception"), on any device. The plugin prevents that, tests/integration proves it; these processes run without it.
LEAVE = """
import sys
sys.stdout.flush()
os._exit(0)
"""


def driver_path(vendor, extra=()):
    folders = [*vendor.driver_dirs, *(Path(value) for _, value in vendor.environment), *extra]
    return os.pathsep.join(map(str, folders))


def run(stock, vendor, code, *, backend, lib=None, path=None, **more):
    """Run Python text in stock torch's environment, from a neutral folder, and return the finished process."""
    environ = {
        "PATH": os.environ["PATH"],
        "VENDOR_LIB": str(lib or vendor.torch / "lib"),
        "VENDOR_CORE": BACKENDS[backend].core.value,
        "LD_LIBRARY_PATH": driver_path(vendor) if path is None else path,
        **more,
    }
    return subprocess.run(
        [stock.python, "-W", "ignore", "-c", code], env=environ, cwd="/", capture_output=True, text=True, check=False
    )


def says(stock, vendor, code, **options):
    """Run Python text that must succeed after the preload, and return what it prints."""
    done = run(stock, vendor, PRELOAD + code + LEAVE, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def linked_copy(vendor, folder, *, without=(), replaced=()):
    """Return a site-packages folder with the vendor's torch in it, some libraries missing or replaced."""
    site = folder / "site-packages"
    # Hard links spare the copy of a big file; of a link, to the file that it leads to.
    shutil.copytree(vendor.torch.parent, site, copy_function=lambda path, new: os.link(os.path.realpath(path), new))
    for name in without:
        (site / "torch" / "lib" / name).unlink()
    for name, source in replaced:
        (site / "torch" / "lib" / name).unlink()
        os.link(source, site / "torch" / "lib" / name)
    return site / "torch" / "lib"
