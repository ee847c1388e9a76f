"""Two processes share the end-to-end tests by what those build: see conftest.py."""

from __future__ import annotations


def test_processes_must_take_tests_by_their_groups(request):
    (group,) = request.node.get_closest_marker("xdist_group").args
    assert group == "vendors"
    # xdist hands tests out by what stands behind the @; without it, two processes would build in one folder.
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith(f"@{group}")
