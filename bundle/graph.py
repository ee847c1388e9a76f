"""Which bundled library needs which: load order, what is missing, and why something is there. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bundle.errors import LibraryCycleError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bundle.elf import Symbols


@dataclass(frozen=True, kw_only=True)
class Node:
    """One library; `rank` orders libraries that do not need each other: lower first, then by name."""

    name: str
    soname: str | None
    needed: tuple[str, ...]
    symbols: Symbols
    rank: int = 0


class LibraryGraph:
    """Libraries by file name, with two kinds of edges.

    A hard edge is a DT_NEEDED entry, matched as the loader does: by the file name that a search would find, or by the
    soname of what is already open. A soft edge leads to the one other library that defines a symbol which no library in
    the DT_NEEDED closure defines: some vendor libraries are under-linked (libtorch_nvshmem uses libc10_cuda without
    naming it) and load only after their provider.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Index the nodes.

        Raises:
            RefusedError: two libraries claim one name; the loader would open whichever comes first for both.
        """
        self.nodes: Mapping[str, Node] = {node.name: node for node in sorted(nodes, key=_by_rank)}
        self._owner = _owners(self.nodes.values())

    def provider(self, soname: str) -> str | None:
        """Return the library that serves a DT_NEEDED entry, or None."""
        return self._owner.get(soname)

    @cached_property
    def hard_edges(self) -> Mapping[str, tuple[str, ...]]:
        """Return by library the others that its DT_NEEDED names; a library that names itself does not count."""
        return {
            name: tuple(
                dict.fromkeys(owner for soname in node.needed if (owner := self._owner.get(soname)) and owner != name)
            )
            for name, node in self.nodes.items()
        }

    @cached_property
    def soft_edges(self) -> Mapping[str, tuple[str, ...]]:
        """Return by library the providers of symbols that its DT_NEEDED closure lacks; never closes a cycle."""
        definers: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            for symbol in node.symbols.defined:
                definers.setdefault(symbol, []).append(name)
        accepted = {name: list(edges) for name, edges in self.hard_edges.items()}
        soft: dict[str, tuple[str, ...]] = {}
        for name, node in self.nodes.items():
            inside = _reachable(self.hard_edges, [name])
            wanted = {
                found[0]
                for symbol in node.symbols.undefined_strong
                if len(found := definers.get(symbol, [])) == 1 and found[0] not in inside
            }
            for provider in sorted(wanted):
                if name not in _reachable(accepted, [provider]):
                    accepted[name].append(provider)
                    soft[name] = (*soft.get(name, ()), provider)
        return soft

    def load_order(self) -> tuple[str, ...]:
        """Return the file names such that each library comes after all that it needs.

        The order depends on nothing but the content: libraries are taken by rank and name, each after its needs.

        Raises:
            LibraryCycleError: DT_NEEDED entries form a circle; the message shows it.
        """
        done: dict[str, None] = {}
        for name in self.nodes:
            self._visit(name, done, ())
        return tuple(done)

    def _visit(self, name: str, done: dict[str, None], path: tuple[str, ...]) -> None:
        if name in done:
            return
        if name in path:
            raise LibraryCycleError((*path[path.index(name) :], name))
        edges = {*self.hard_edges[name], *self.soft_edges.get(name, ())}
        for needed in sorted(edges, key=lambda other: _by_rank(self.nodes[other])):
            self._visit(needed, done, (*path, name))
        done[name] = None

    def closure(self, roots: Iterable[str]) -> frozenset[str]:
        """Return the roots and all libraries that they reach, over both kinds of edges."""
        both = {name: (*self.hard_edges[name], *self.soft_edges.get(name, ())) for name in self.nodes}
        return frozenset(_reachable(both, roots))

    def unresolved(self, provided: Callable[[str], bool]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return (soname, needed by) for each DT_NEEDED entry that no library here serves and `provided` denies."""
        missing: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            for soname in node.needed:
                if soname not in self._owner and not provided(soname):
                    missing.setdefault(soname, []).append(name)
        return tuple((soname, tuple(sorted(set(users)))) for soname, users in sorted(missing.items()))

    def why(self, soname: str) -> tuple[str, ...]:
        """Return the shortest DT_NEEDED chain that ends in `soname`, from a library that nothing else needs.

        Empty where nothing needs it. `soname` may lie outside of the graph: then its users are what counts.
        """
        target = self._owner.get(soname, soname)
        users: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            for needed in node.needed:
                owner = self._owner.get(needed, needed)
                if owner != name:
                    users.setdefault(owner, []).append(name)
        queue: deque[tuple[str, ...]] = deque([(target,)])
        seen = {target}
        while queue:
            chain = queue.popleft()
            above = users.get(chain[0], [])
            if not above and len(chain) > 1:
                return chain
            queue.extend((user, *chain) for user in above if user not in seen)
            seen.update(above)
        return ()


def _by_rank(node: Node) -> tuple[int, str]:
    return node.rank, node.name


def _owners(nodes: Iterable[Node]) -> dict[str, str]:
    owner: dict[str, str] = {}
    for node in nodes:
        for name in dict.fromkeys((node.name, node.soname or node.name)):
            if name in owner:
                raise RefusedError(
                    f"{owner[name]} and {node.name} both answer to {name}, so only the first of them would be loaded",
                    hint="leave one of the two out of the bundle",
                )
            owner[name] = node.name
    return owner


def _reachable(edges: Mapping[str, Iterable[str]], roots: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack.extend(edges[name])
    return seen
