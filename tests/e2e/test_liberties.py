"""Kernels that keep, watch or change operands that they were lent must not reach other calls, nor the originals.

The kernels of `tests/stress/csrc/liberties.cpp` are compiled by g++ and take the places of the vendor's, in a process
of their own.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "stress" / "csrc" / "liberties.cpp"

COMPILE = """
    import sys, subprocess
    import torch_fl, torch
    from torch.utils import cpp_extension
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    options = ["-O1", "-g", "-std=c++20", "-shared", "-fPIC", abi]
    includes = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    links = [f"-L{path}" for path in cpp_extension.library_paths()] + ["-ltorch_cpu", "-lc10"]
    subprocess.run(["g++", *options, *includes, sys.argv[1], "-o", sys.argv[2], *links], check=True)
"""

START = """
    import ctypes, sys
    import torch_fl, torch
    liberties = ctypes.CDLL(sys.argv[1])
    liberties.liberties_kept.restype = liberties.liberties_alive.restype = ctypes.c_int64
    liberties.liberties_kept.argtypes = [ctypes.c_double, ctypes.c_int64]

    def fresh(value=1.0, columns=3):
        return torch.full((2, columns), value).to("flagos")

    def look(rounds=20):
        # Operands of many calls, singly and in lists: each is looked at, and is what the caller gave.
        for number in range(rounds):
            given = [fresh(float(number), columns) for columns in range(1, 9)]
            assert [torch.floor(one).cpu().tolist() for one in given] == [one.cpu().tolist() for one in given]
            assert torch.cat(given, 1).cpu().tolist() == [[float(number)] * 36] * 2
"""


@pytest.fixture(scope="module")
def run(installed, tmp_path_factory):
    """Return a function that runs a program with the library of kernels; it fails with the program's words."""
    library = tmp_path_factory.mktemp("liberties") / "liberties.so"

    def start(program, *arguments):
        done = installed("metax").start("-c", textwrap.dedent(program), *arguments)
        assert done.code == 0, done.out + done.err

    start(COMPILE, SOURCE, library)
    return lambda program: start(START + program, library)


def test_operand_that_a_kernel_keeps_must_stay_what_it_was(run):
    program = """
    for _ in range(5):
        torch.neg(fresh(7.0, 4))
    look()
    assert liberties.liberties_kept(7.0, 4) == 5
    liberties.liberties_end()
    look()
    """
    run(program)


def test_operand_that_a_kernel_watches_must_be_gone_after_the_call(run):
    program = """
    for _ in range(5):
        torch.cos(fresh())
    assert liberties.liberties_alive() == 0
    look()
    assert liberties.liberties_alive() == 0
    liberties.liberties_end()
    """
    run(program)


LIBERTIES = [
    pytest.param("torch.exp(one)", id="wants-a-gradient"),
    pytest.param("torch.log(one)", id="leaves-meta-data"),
    pytest.param("torch.sqrt(one)", id="changes-the-geometry"),
    pytest.param("torch.rsqrt(one)", id="changes-the-storage"),
    pytest.param("torch.tanh_(one)", id="changes-the-handle"),
    pytest.param("torch.sin(one)", id="gives-it-to-a-thread"),
    pytest.param("torch.reciprocal(one)", id="keeps-its-version-counter"),
]


@pytest.mark.parametrize("liberty", LIBERTIES)
def test_what_a_kernel_does_to_its_operand_must_end_with_the_call(run, liberty):
    program = f"""
    for _ in range(200):
        one = fresh(5.0)
        {liberty}
        assert one.shape == (2, 3) and not one.requires_grad and one.cpu().tolist() == [[5.0] * 3] * 2
    look()
    liberties.liberties_end()
    """
    run(program)


def test_version_that_a_kernel_counts_up_must_be_that_of_the_operand_it_writes_to(run):
    program = """
    one = fresh()
    for counted in range(0, 20, 2):
        # Once by autograd, once by the kernel.
        assert one._version == counted
        torch.neg_(one)
        look(2)
    """
    run(program)


COUNTING = """
import torch
# Before the plugin, which looks then which operators the vendor has a kernel for.
library = torch.library.Library("aten", "IMPL")
library.impl("_foreach_neg_", torch._C._increment_version, "CUDA")
import torch_fl
one, weight = torch.ones(3, device="flagos"), torch.ones(3, device="flagos", requires_grad=True)
product = (weight * one).sum()
with torch.no_grad():
    torch._foreach_neg_([one])
assert one._version == 1, one._version
try:
    product.backward()
except RuntimeError as err:
    assert "modified by an inplace operation" in str(err)
else:
    raise SystemExit("a changed operand was differentiated")
"""


def test_version_that_a_kernel_counts_up_must_be_that_of_the_list_elements_it_writes_to(installed):
    """Autograd leaves the versions of lists to the kernels, and CUDA's count them up."""
    done = installed("metax").start("-c", COUNTING, variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.code == 0, done.out + done.err
