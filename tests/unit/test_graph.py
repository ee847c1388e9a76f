"""The graph of bundled libraries, without a file on disk."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle.elf import Symbols
from bundle.errors import LibraryCycleError, RefusedError
from bundle.graph import LibraryGraph, Node


def node(name, *needed, defined=(), undefined=(), soname=None, rank=0):
    symbols = Symbols(defined=frozenset(defined), undefined_strong=frozenset(undefined))
    return Node(name=name, soname=soname or name, needed=needed, symbols=symbols, rank=rank)


def test_load_order_must_put_needs_first_then_rank_then_name():
    graph = LibraryGraph(
        [node("libz.so", "libb.so"), node("liba.so", rank=1), node("libb.so", rank=2), node("libm.so")]
    )
    assert graph.load_order() == ("libm.so", "libb.so", "libz.so", "liba.so")


def test_a_cuda_shaped_core_must_load_libtorch_after_libtorch_cuda():
    # "core first" as a hand-written rule fails on this: the core's libtorch.so needs the device library.
    graph = LibraryGraph(
        [
            node("libc10.so"),
            node("libtorch_cpu.so", "libc10.so"),
            node("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so"),
            node("libtorch_cuda.so", "libtorch_cpu.so", "libc10_cuda.so", rank=1),
            node("libc10_cuda.so", "libc10.so", rank=1),
        ]
    )
    assert graph.load_order() == ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so", "libtorch.so")


@settings(deadline=None)
@given(st.permutations([("a",), ("b", "a"), ("c", "a", "d"), ("d", "b"), ("e",)]))
def test_load_order_must_not_depend_on_the_order_of_input(shuffled):
    assert LibraryGraph([node(*row) for row in shuffled]).load_order() == ("a", "b", "d", "c", "e")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_load_order_of_any_acyclic_graph_must_respect_every_edge(pairs):
    edges = {(f"{max(pair)}", f"{min(pair)}") for pair in pairs if pair[0] != pair[1]}
    graph = LibraryGraph([node(f"{n}", *(low for high, low in sorted(edges) if high == f"{n}")) for n in range(8)])
    order = graph.load_order()
    assert sorted(order) == sorted(graph.nodes)
    assert all(order.index(low) < order.index(high) for high, low in edges)


def test_a_cycle_of_needed_must_be_refused_and_shown():
    graph = LibraryGraph([node("liba.so", "libb.so"), node("libb.so", "libc.so"), node("libc.so", "liba.so")])
    with pytest.raises(LibraryCycleError) as caught:
        graph.load_order()
    assert str(caught.value) == "no load order: liba.so -> libb.so -> libc.so -> liba.so"
    assert caught.value.exit_code == 6


def test_a_library_that_needs_itself_must_not_count_as_a_cycle():
    assert LibraryGraph([node("liba.so", "liba.so")]).load_order() == ("liba.so",)


def test_an_underlinked_library_must_load_after_its_provider():
    # libtorch_nvshmem uses c10::cuda without a DT_NEEDED entry for it.
    graph = LibraryGraph(
        [
            node("libtorch_nvshmem.so", undefined=["stream"], rank=0),
            node("libx_c10_cuda.so", defined=["stream"], rank=1),
        ]
    )
    assert graph.soft_edges == {"libtorch_nvshmem.so": ("libx_c10_cuda.so",)}
    assert graph.load_order() == ("libx_c10_cuda.so", "libtorch_nvshmem.so")


def test_soft_edges_must_not_close_a_cycle():
    graph = LibraryGraph(
        [
            node("liba.so", undefined=["from_b"], defined=["from_a"]),
            node("libb.so", "libc.so", defined=["from_b"]),
            node("libc.so", undefined=["from_a"]),
        ]
    )
    assert graph.soft_edges == {"liba.so": ("libb.so",)}
    assert graph.load_order() == ("libc.so", "libb.so", "liba.so")


@pytest.mark.parametrize(
    ("others", "why"),
    [
        pytest.param(
            [node("libb.so"), node("libc.so", defined=["s"]), node("libd.so", defined=["s"])],
            "two definers",
            id="ambiguous",
        ),
        pytest.param([node("libb.so", "libc.so"), node("libc.so", defined=["s"])], "in the closure", id="reached"),
        pytest.param([node("libb.so")], "the system's", id="defined-elsewhere"),
    ],
)
def test_soft_edges_must_not_be_made(others, why):
    graph = LibraryGraph([node("liba.so", "libb.so", undefined=["s"]), *others])
    assert graph.soft_edges == {}, why


def test_unresolved_must_list_every_name_with_all_its_users():
    graph = LibraryGraph(
        [node("liba.so", "libx.so", "libc.so.6"), node("libb.so", "libx.so", "liba.so"), node("libd.so", "liby.so")]
    )
    assert graph.unresolved(lambda soname: soname == "libc.so.6") == (
        ("libx.so", ("liba.so", "libb.so")),
        ("liby.so", ("libd.so",)),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(node("liba.so", soname="libq.so"), node("libb.so", soname="libq.so"), id="one-soname"),
        pytest.param(node("libq.so"), node("libz.so", soname="libq.so"), id="soname-is-another-file"),
    ],
)
def test_two_libraries_of_one_name_must_be_refused(first, second):
    for pair in itertools.permutations([first, second]):
        with pytest.raises(RefusedError, match=r"both answer to libq\.so"):
            LibraryGraph(pair)


def test_needed_must_match_a_soname_and_a_file_name():
    # A link out of torch.libs keeps its mangled name, while the file behind it has its own soname.
    graph = LibraryGraph(
        [
            node("libtorch_cpu.so", "libmpi-3fcb240d.so.40"),
            node("libuser.so", "libmpi.so.40"),
            node("libmpi-3fcb240d.so.40", soname="libmpi.so.40"),
        ]
    )
    assert graph.load_order()[0] == "libmpi-3fcb240d.so.40"
    assert graph.unresolved(lambda _: False) == ()


def test_closure_must_follow_both_kinds_of_edges():
    graph = LibraryGraph(
        [node("liba.so", "libb.so"), node("libb.so", undefined=["s"]), node("libc.so", defined=["s"]), node("libd.so")]
    )
    assert graph.closure(["liba.so"]) == {"liba.so", "libb.so", "libc.so"}


def test_why_must_give_the_chain_from_a_root():
    graph = LibraryGraph([node("libroot.so", "liba.so"), node("liba.so", "libb.so"), node("libb.so", "libcuda.so.1")])
    assert graph.why("libcuda.so.1") == ("libroot.so", "liba.so", "libb.so", "libcuda.so.1")
    assert graph.why("libb.so") == ("libroot.so", "liba.so", "libb.so")
    assert graph.why("libnobody.so") == ()
