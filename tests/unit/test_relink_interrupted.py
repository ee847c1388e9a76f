"""Ctrl-C while torch is relinked or restored: unlike a kill it runs every `finally` on its way out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak.kills import count_lines, differing, snapshot
from tests.support.fake_torch import complete_site
from tests.support.relinked import condition, core_of, do_relink, do_restore
from torch_fl_boot.relink import Condition, grace, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PARTS, POINTS = 4, 3


def interrupt_at(number: int) -> Callable[..., Any]:
    """Return a trace function by which Ctrl-C comes at this line of relink's code."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if "torch_fl_boot/relink/" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left == 0:
            raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("work", "opposite"),
    [pytest.param(do_relink, do_restore, id="relink"), pytest.param(do_restore, do_relink, id="restore")],
)
def test_interruption_must_leave_a_torch_that_works_and_can_be_restored(tmp_path, monkeypatch, work, opposite, part):
    monkeypatch.setattr(grace, "SETTLE", 0)
    site = complete_site(tmp_path)
    site.write_record()
    before = snapshot(site.root)
    opposite(site)
    lines = count_lines(lambda: work(site))
    for point in (lines * (part * POINTS + number) // (PARTS * POINTS) + 1 for number in range(POINTS)):
        opposite(site)
        sys.settrace(interrupt_at(point))
        try:
            with pytest.raises(KeyboardInterrupt):
                work(site)
        finally:
            sys.settrace(None)
        assert core_of(site) in ({"torch"}, {"torch_fl"}), point
        settle(site.root / "torch", notify=pytest.fail)
        assert condition(site) in (Condition.STOCK, Condition.RELINKED), point
    do_restore(site)
    assert differing(before, snapshot(site.root)) == []
