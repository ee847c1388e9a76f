"""The forge's compiler calls: what a unit leaves in the cache. That it compiles is seen in tests/e2e."""

from __future__ import annotations

import pytest

from bundle.errors import ToolError
from tests.forge.toolchain import Toolchain, Unit


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("unit.c", ToolError, id="does-not-compile"),
        # As on a full disk, in that its source cannot be written.
        pytest.param("x" * 300 + ".c", OSError, id="cannot-be-written"),
    ],
)
def test_failed_unit_must_leave_nothing_in_the_cache(tmp_path, ui, name, error):
    cache = tmp_path / "cache"
    toolchain = Toolchain(cxx="false", sources=tmp_path, include=tmp_path, cache=cache, identity="x", ui=ui)
    with pytest.raises(error):
        toolchain.compile(Unit(name=name, text="", cxx=False, torch=False))
    assert list(cache.iterdir()) == []
