from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle.record import Digest, Kind, parse, render, validate

OWN = "a-1.dist-info/RECORD"
EMPTY = Digest(sha256=hashlib.sha256(b"").hexdigest(), size=0)
EMPTY_ROW = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"


def found(text, actual):
    return [(problem.kind, problem.path, problem.detail) for problem in validate(parse(text), actual, own=OWN)]


def test_render_must_sort_quote_and_leave_the_own_row_blank():
    files = {"b.py": EMPTY, 'a/lib,odd "x".so.1': EMPTY}
    assert render(files, own=OWN) == f'"a/lib,odd ""x"".so.1",{EMPTY_ROW}\nb.py,{EMPTY_ROW}\n{OWN},,\n'


def test_render_must_leave_out_signatures_and_a_row_for_itself():
    files = {"b.py": EMPTY, OWN: EMPTY, "a-1.dist-info/RECORD.jws": EMPTY, "a-1.dist-info/RECORD.p7s": EMPTY}
    assert render(files, own=OWN) == f"b.py,{EMPTY_ROW}\n{OWN},,\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1),
        st.builds(Digest, sha256=st.binary(min_size=32, max_size=32).map(bytes.hex), size=st.integers(0, 2**40)),
    )
)
def test_parse_must_read_back_what_render_wrote(files):
    assert validate(parse(render(files, own=OWN)), files, own=OWN) == ()


def test_validate_must_return_every_problem_at_once():
    text = f"gone.py,{EMPTY_ROW}\nlong.py,{EMPTY_ROW}\nother.py,{EMPTY_ROW}\nbare.py,,\nonly two,fields\n{OWN},,\n"
    other = Digest(sha256="00" * 32, size=0)
    actual = {
        "long.py": Digest(sha256=EMPTY.sha256, size=7),
        "other.py": other,
        "bare.py": EMPTY,
        "new.py": EMPTY,
        OWN: EMPTY,
    }
    assert found(text, actual) == [
        (Kind.SYNTAX, "line 5", "2 fields, expected 3"),
        (Kind.DIFFERS, "bare.py", "is listed without hash and size"),
        (Kind.ABSENT, "gone.py", "is listed, but the wheel lacks it"),
        (Kind.DIFFERS, "long.py", "7 bytes, RECORD says 0"),
        (Kind.DIFFERS, "other.py", f"sha256 {other.sha256}, RECORD says {EMPTY.sha256}"),
        (Kind.UNLISTED, "new.py", "is in the wheel, but not listed"),
    ]


def test_validate_must_want_a_row_for_record_itself():
    assert found("", {}) == [(Kind.UNLISTED, OWN, "RECORD does not list itself")]


def test_validate_must_not_want_a_row_for_signatures():
    assert found(f"{OWN},,\n", {"a-1.dist-info/RECORD.jws": EMPTY}) == []


def test_validate_must_flag_a_hash_that_record_gives_itself():
    assert found(f"{OWN},{EMPTY_ROW}\n", {}) == [(Kind.DIFFERS, OWN, "has a hash, but RECORD cannot cover it")]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        pytest.param("a,md5=x,0", "a: hash 'md5=x', expected sha256=...", id="algorithm"),
        pytest.param("a,,0", "a: hash '', expected sha256=...", id="no-hash"),
        pytest.param("a,sha256=!!,0", "a: hash 'sha256=!!' is not base64", id="not-base64"),
        pytest.param("a,sha256=AA,-1", "a: size '-1' is not a number of bytes", id="negative-size"),
        pytest.param("a,sha256=AA,\u00b2", "a: size '\u00b2' is not a number of bytes", id="odd-digit"),
        pytest.param("a,,\na,,", "a is listed twice", id="twice"),
        pytest.param('"a', "not CSV: unexpected end of data", id="open-quote"),
    ],
)
def test_parse_must_name_what_is_wrong_with_a_line(line, detail):
    problems = parse(line).problems
    assert [(problem.kind, problem.detail) for problem in problems] == [(Kind.SYNTAX, detail)]


def test_parse_must_go_on_after_a_bad_line():
    record = parse(f"bad\nb.py,{EMPTY_ROW}\n")
    assert [row.path for row in record.rows] == ["b.py"]
    assert [problem.path for problem in record.problems] == ["line 1"]
