"""What the tool prints, and where."""

from __future__ import annotations

import io

import pytest

from bundle.ui import Reporter, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        pytest.param(Terminal(), {}, True, id="terminal"),
        pytest.param(io.StringIO(), {}, False, id="pipe"),
        pytest.param(Terminal(), {"NO_COLOR": "1"}, False, id="no-color"),
        pytest.param(io.StringIO(), {"FORCE_COLOR": "1"}, True, id="forced"),
        pytest.param(Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, id="no-color-wins"),
    ],
)
def test_colour_must_follow_terminal_and_variables(stream, environ, expected):
    assert wants_colour(stream, environ) is expected


def test_results_must_go_to_stdout_and_words_to_stderr():
    err, out = io.StringIO(), io.StringIO()
    ui = Reporter(err=err, out=out, colour=False)
    ui.table(("a", "bee"), [("1", "2"), ("333", "4")])
    ui.notice("hello")
    ui.error("torn", hint="mend it")
    assert out.getvalue() == "a    bee\n---  ---\n1    2\n333  4\n"
    assert err.getvalue() == "bundle: hello\nbundle: error: torn\nbundle: hint: mend it\n"


def test_failed_step_must_say_so():
    err, out = io.StringIO(), io.StringIO()
    ui = Reporter(err=err, out=out, colour=False)
    with pytest.raises(ValueError, match="x"), ui.step("work"):
        raise ValueError("x")
    assert err.getvalue().splitlines()[1].startswith("bundle: work failed after ")


def test_progress_must_not_flood_a_log():
    err, out = io.StringIO(), io.StringIO()
    ui = Reporter(err=err, out=out, colour=False)
    for number in range(100):
        ui.progress(f"[{number}/100]")
    assert err.getvalue() == ""


def test_progress_must_rewrite_one_line_on_a_terminal():
    err = Terminal()
    ui = Reporter(err=err, colour=False)
    ui.progress("[1/2]")
    ui.notice("done")
    assert err.getvalue() == "\r\x1b[K[1/2]\r\x1b[Kbundle: done\n"
