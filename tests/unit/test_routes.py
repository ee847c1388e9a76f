"""Routing files and variables: what they say, and what is refused; everything wrong at once."""

from __future__ import annotations

import pytest

from torch_fl_boot.errors import RoutingError
from torch_fl_boot.route_check import unknown_operators
from torch_fl_boot.routes import (
    INCLUDE_DEPTH,
    Parsed,
    parse_file,
    parse_route,
    read_routes,
    short,
    variable_of,
)

OPERATORS = frozenset(
    f"aten::{name}" for name in ("add.Tensor", "add.out", "add_.Tensor", "mm", "mm.out", "relu", "__and__.Tensor")
) | {"mine::op"}


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def read(path, **environ):
    return read_routes({"FLAGOS_BACKEND_CONFIG": str(path), **environ}, OPERATORS)


def said(parsed):
    return {short(route.operator): (route.target.value, route.function) for route in parsed.routes}


def problems_of(parsed):
    return [str(problem) for problem in parsed.problems]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("add.Tensor = cuda", {"add.Tensor": ("cuda", None)}, id="plain"),
        pytest.param("add.Tensor=cpu", {"add.Tensor": ("cpu", None)}, id="no-blanks"),
        pytest.param("  \tadd.Tensor\t =  cpu \t", {"add.Tensor": ("cpu", None)}, id="blanks-around"),
        pytest.param("add.Tensor = cpu # why", {"add.Tensor": ("cpu", None)}, id="comment-behind"),
        pytest.param("# add.Tensor = cpu", {}, id="comment-alone"),
        pytest.param("mm = flaggems_python", {"mm": ("flagos_python", None)}, id="alias"),
        pytest.param("mm = flagos_python a.b:c.d", {"mm": ("flagos_python", "a.b:c.d")}, id="callable"),
        pytest.param("mm = flagos_python\ta:b", {"mm": ("flagos_python", "a:b")}, id="callable-after-tab"),
        pytest.param("aten::mm = cpu", {"mm": ("cpu", None)}, id="namespace-of-aten"),
        pytest.param("mine::op = cpu", {"mine::op": ("cpu", None)}, id="another-namespace"),
        pytest.param("mm = cpu\r\nrelu = cuda\r", {"mm": ("cpu", None), "relu": ("cuda", None)}, id="dos-line-ends"),
        pytest.param("\ufeffmm = cpu", {"mm": ("cpu", None)}, id="byte-order-mark"),
        pytest.param("", {}, id="empty"),
    ],
)
def test_a_line_must_say_one_operator_and_its_target(write, line, expected):
    parsed = read(write("r.conf", line))
    assert said(parsed) == expected
    assert not parsed.problems
    assert not parsed.ignored


def test_later_lines_must_win_and_keep_their_place(write):
    path = write("r.conf", "mm = cpu\nrelu = cpu\nmm = cuda\n")
    parsed = read(path)
    assert said(parsed) == {"mm": ("cuda", None), "relu": ("cpu", None)}
    assert {route.where for route in parsed.routes} == {f"{path}:3", f"{path}:2"}


def test_an_include_must_stand_for_its_lines_where_it_is_written(write):
    write("sub/inner.conf", "mm = cuda\nrelu = cuda\n")
    parsed = read(write("r.conf", "mm = cpu\ninclude sub/inner.conf\nrelu = cpu\n"))
    assert said(parsed) == {"mm": ("cuda", None), "relu": ("cpu", None)}


def test_an_include_must_be_relative_to_the_file_that_includes(write):
    write("sub/one.conf", "include two.conf  # beside this one\n")
    write("sub/two.conf", "mm = cpu\n")
    assert said(read(write("r.conf", "include sub/one.conf\n"))) == {"mm": ("cpu", None)}


def test_an_include_must_take_names_with_blanks_and_absolute_paths(write):
    there = write("with blank/x y.conf", "mm = cpu\n")
    assert said(read(write("r.conf", f"include {there}\n"))) == {"mm": ("cpu", None)}


def test_one_file_may_be_included_twice_side_by_side(write):
    write("inner.conf", "mm = cpu\n")
    assert not read(write("r.conf", "include inner.conf\ninclude inner.conf\n")).problems


def test_an_include_cycle_must_be_a_problem_that_shows_the_cycle(write):
    one = write("one.conf", "\ninclude two.conf\n")
    two = write("two.conf", "include one.conf\n")
    [problem] = problems_of(read(one))
    assert problem == (
        f"{two}:1: include cycle: {one} -> {two} -> {one}; expected files that do not include themselves"
    )


def test_includes_must_be_allowed_to_the_depth_limit_and_no_deeper(write):
    for level in range(1, INCLUDE_DEPTH):
        write(f"{level}.conf", f"include {level + 1}.conf\n")
    last = write(f"{INCLUDE_DEPTH}.conf", "mm = cpu\n")
    first = last.with_name("1.conf")
    assert said(read(first)) == {"mm": ("cpu", None)}
    write(f"{INCLUDE_DEPTH}.conf", "include 9.conf\n")
    write("9.conf", "mm = cpu\n")
    [problem] = problems_of(read(first))
    assert "is level 9; expected at most 8 levels" in problem


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(
            "mm = gpu",
            "target 'gpu' for mm; expected one of cuda, flagos_python, cpu",
            id="unknown-target",
        ),
        pytest.param("mm = CUDA", "target 'CUDA' for mm; expected one of cuda, flagos_python, cpu", id="upper-case"),
        pytest.param("mm =", "no target for mm; expected one of cuda, flagos_python, cpu", id="no-target"),
        pytest.param(
            "mm = flagos",
            "target 'flagos' for mm; expected one of cuda, flagos_python, cpu "
            "(this plugin has no C++ operators of FlagGems)",
            id="cpp-target",
        ),
        pytest.param("= cpu", "no operator before '= cpu'; expected an operator such as add.Tensor", id="no-operator"),
        pytest.param("mm = cpu a:b", "'a:b' after target 'cpu' for mm; expected nothing more", id="too-much"),
        pytest.param(
            "mm = flagos_python a.b",
            "Python callable 'a.b' for mm; expected module:function",
            id="callable-without-colon",
        ),
        pytest.param("include", "include without a file; expected include <path>", id="include-nothing"),
    ],
)
def test_a_wrong_line_must_be_a_problem_with_file_and_line(write, line, problem):
    path = write("r.conf", f"\n{line}\n")
    assert problems_of(read(path)) == [f"{path}:2: {problem}"]


def test_a_second_equal_sign_must_be_part_of_an_unknown_target(write):
    [problem] = problems_of(read(write("r.conf", "mm = cpu = x\n")))
    assert problem.endswith("'= x' after target 'cpu' for mm; expected nothing more")


def test_all_problems_of_all_files_must_come_at_once(write):
    write("inner.conf", "relu = tpu\n")
    path = write("r.conf", "mm = gpu\ninclude inner.conf\ninclude missing.conf\n")
    found = problems_of(read(path, FLAGOS_OP_relu="npu"))
    assert len(found) == 4
    assert found[0].startswith(f"{path}:1: target 'gpu'")
    assert found[1].startswith(f"{path.with_name('inner.conf')}:1: target 'tpu'")
    assert found[2].startswith(f"{path}:3: cannot read")
    assert found[3].startswith("environment variable FLAGOS_OP_relu: target 'npu' for relu")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("missing.conf", "No such file or directory", id="missing"),
        pytest.param(".", "Is a directory", id="directory"),
    ],
)
def test_a_file_that_cannot_be_read_must_be_named_with_the_systems_words(tmp_path, name, found):
    path = tmp_path / name
    [problem] = problems_of(read(path))
    assert problem == (
        f"environment variable FLAGOS_BACKEND_CONFIG: cannot read {path}: {found}; expected a routing file"
    )


def test_another_encoding_must_be_a_problem_with_the_byte_and_its_place(write):
    path = write("r.conf", b"mm = cpu # \xff\n")
    assert problems_of(read(path)) == [f"{path}: byte 0xff at offset 11; expected UTF-8 text"]


def test_a_line_that_says_nothing_must_be_ignored_and_told(write):
    path = write("r.conf", "mm cpu\nrelu = cpu\n")
    parsed = read(path)
    assert said(parsed) == {"relu": ("cpu", None)}
    assert parsed.ignored == (f"{path}:1: 'mm cpu' is no 'operator = target'",)


@pytest.mark.parametrize(
    ("operator", "variable"),
    [
        pytest.param("aten::add.Tensor", "FLAGOS_OP_add__Tensor", id="overload"),
        pytest.param("aten::relu", "FLAGOS_OP_relu", id="no-overload"),
        pytest.param("aten::__and__.Tensor", "FLAGOS_OP___and____Tensor", id="underscores-of-its-own"),
    ],
)
def test_a_variable_must_name_its_operator(operator, variable):
    assert variable_of(operator) == variable
    parsed = read_routes({variable: "cpu"}, OPERATORS)
    assert [(route.operator, route.where) for route in parsed.routes] == [
        (operator, f"environment variable {variable}")
    ]


def test_a_variable_must_win_over_the_file(write):
    path = write("r.conf", "mm = cpu\n")
    assert said(read(path, FLAGOS_OP_mm="flagos_python a:b")) == {"mm": ("flagos_python", "a:b")}


@pytest.mark.parametrize("value", [pytest.param("", id="empty"), pytest.param("  ", id="blank")])
def test_an_empty_variable_must_count_as_unset(value):
    assert read_routes({"FLAGOS_OP_mm": value, "FLAGOS_BACKEND_CONFIG": value}, OPERATORS) == Parsed()


def test_a_variable_of_no_operator_must_keep_its_name_for_the_error():
    parsed = read_routes({"FLAGOS_OP_nope__Tensor": "cpu"}, OPERATORS)
    [problem] = unknown_operators(parsed.routes, OPERATORS)
    assert str(problem).startswith(
        "environment variable FLAGOS_OP_nope__Tensor: operator 'nope.Tensor', which torch does not have"
    )


def test_the_error_must_hold_every_problem_and_the_next_step():
    problems = [*parse_route("mm", "gpu", "a:1").problems, *parse_route("mm", "", "b:2").problems]
    assert str(RoutingError(problems)) == (
        "the routing of operators cannot be followed:\n"
        "  a:1: target 'gpu' for mm; expected one of cuda, flagos_python, cpu\n"
        "  b:2: no target for mm; expected one of cuda, flagos_python, cpu\n"
        "hint: correct these lines, or unset FLAGOS_BACKEND_CONFIG and FLAGOS_OP_<name>; see docs/routing.md"
    )


def test_a_file_must_be_readable_without_an_environment(write):
    assert said(parse_file(write("r.conf", "mm = cpu\n"), named_at="here")) == {"mm": ("cpu", None)}
