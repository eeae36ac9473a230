"""The language of gates: it reads what it writes, and every mistake is one error that points at its place."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.errors import InputError
from ptxbench.report.gates import AllOf, AnyOf, Comparison, Gate, Metric, Number, parse
from ptxbench.report.gates.expression import METRICS, OPERATORS, comparisons
from ptxbench.report.gates.parser import MAX_CHARS, MAX_DEPTH
from ptxbench.report.gates.scanner import display_width, plain

HALF = Number(Decimal("0.5"))


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("correct >= 0.5", Comparison(Metric("correct"), ">=", HALF)),
        ("target>50%", Comparison(Metric("target"), ">", Number(Decimal(50), percent=True))),
        ("fast_p(0.8).inst >= .5", Comparison(Metric("fast_p", Decimal("0.8"), inst=True), ">=", HALF)),
        ("best_speedup != 1.25", Comparison(Metric("best_speedup"), "!=", Number(Decimal("1.25")))),
        (
            "correct . model( claude*, 'a, b' ) .case(gemm_*).arch(h[12]00).at( 4 ).each <= 1",
            Comparison(
                Metric("correct", None, False, ("claude*", "a, b"), ("gemm_*",), ("h[12]00",), 4, True),
                "<=",
                Number(Decimal(1)),
            ),
        ),
        (
            "correct == 1 or target < 1 and best_speedup > 2",
            AnyOf((parse("correct == 1"), AllOf((parse("target < 1"), parse("best_speedup > 2"))))),
        ),
        ("((correct >= 0.5))", parse("correct >= 0.5")),
        (
            "(correct >= 0.5 or target >= 0.5) and\n correct < 1",
            AllOf((AnyOf((parse("correct >= 0.5"), parse("target >= 0.5"))), parse("correct < 1"))),
        ),
    ],
)
def test_what_is_written_is_read(text, gate):
    assert parse(text) == gate


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a metric (correct, target, best_speedup, fast_p(P)), found the end"),
        ("fastp(0.8) >= 1", 1, "found 'fastp' at column 1; did you mean fast_p?"),
        ("correct.inst >= 50", 17, "expected a share of turns from 0 to 1, or 0% to 100%, found '50'"),
        ("correct >= 101%", 12, "expected a share of turns from 0 to 1"),
        ("fast_p >= 0.5", 8, "expected (, found '>='"),
        ("fast_p(a) >= 0.5", 8, "expected the speedup P of fast_p(P), found 'a'"),
        ("fast_p(0.8 >= 0.5", 12, "expected ), found '>='"),
        ("correct => 0.5", 9, "expected one of >= <= == != > <, found '=>'"),
        ("correct = 0.5", 9, "expected one of >= <= == != > <, found '='"),
        ("correct", 8, "found the end at column 8; put a comparison behind the metric"),
        ("correct >= -1", 12, "expected a number of at least 0, such as 0.5 or 50%, found '-'"),
        ("correct >= 1e3", 12, "found '1e3'"),
        ("correct >= 0.5 AND target >= 0.5", 16, "expected and, or, or the end, found 'AND'"),
        ("correct >= 0.5 and", 19, "expected a metric"),
        ("correct >= 0.5 andtarget >= 1", 16, "expected and, or, or the end, found 'andtarget'"),
        ("(correct >= 0.5", 16, "expected and, or, or ) for the bracket at column 1"),
        ("correct >= 0.5)", 15, "expected and, or, or the end"),
        ("correct.at(0) >= 0.5", 12, "expected a number of turns from 1 to 1000, found '0'"),
        ("correct.at(9999999) >= 0.5", 12, "expected a number of turns"),
        ("correct.modle(x) >= 0.5", 9, "did you mean model?"),
        ("correct.case() >= 0.5", 14, "expected a name or a glob"),
        ("correct.case(a).case(b) >= 0.5", 17, "expected .case once"),
        ("target.inst >= 0.5", 8, "target means correct.inst already"),
        ("correct.each.each >= 0.5", 14, "expected .each once"),
        ("correct >= ٣", 12, "expected a number"),
    ],
)
def test_a_mistake_is_pointed_at(text, column, message):
    with pytest.raises(InputError) as error:
        parse(text)
    first, shown, caret = str(error.value).split("\n")
    assert message in first
    assert first.startswith("--gate: expected ")
    assert f" at column {column}" in first
    assert shown == f"  {text}"
    assert caret == "  " + " " * (column - 1) + "^"


def test_the_caret_allows_for_wide_and_invisible_characters():
    with pytest.raises(InputError) as error:
        parse("correct.case('\N{CJK UNIFIED IDEOGRAPH-6838}\x1b') >= 2")
    _, shown, caret = str(error.value).split("\n")
    assert shown == "  correct.case('\N{CJK UNIFIED IDEOGRAPH-6838}?') >= 2"
    assert caret.index("^") == display_width(shown[: shown.index("2")])


def test_bounds_keep_nonsense_from_the_interpreter():
    deep = "(" * MAX_DEPTH + "correct >= 1" + ")" * MAX_DEPTH
    assert parse(deep) == parse("correct >= 1")
    with pytest.raises(InputError, match="at most 20 nested brackets"):
        parse(f"({deep})")
    with pytest.raises(InputError, match=f"at most {MAX_CHARS} characters, found {MAX_CHARS + 1}"):
        parse("(" * (MAX_CHARS + 1))


decimals = st.decimals(0, 1000, places=3, allow_nan=False)
globs = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="'\"\r\n"), min_size=1, max_size=8)
    | st.from_regex(r"[a-z0-9_.*?\[\]!]{1,8}", fullmatch=True)
    | st.just('a"b')
    | st.just("it's"),
    min_size=0,
    max_size=2,
).map(tuple)


@st.composite
def simple_gates(draw: st.DrawFn) -> Comparison:
    name = draw(st.sampled_from(METRICS))
    metric = Metric(
        name,
        draw(decimals) if name == "fast_p" else None,
        draw(st.booleans()) and name != "target",
        draw(globs),
        draw(globs),
        draw(globs),
        draw(st.none() | st.integers(1, 1000)),
        draw(st.booleans()),
    )
    percent = draw(st.booleans())
    digits = draw(st.decimals(0, (100 if percent else 1) if metric.is_rate else 1000, places=2, allow_nan=False))
    return Comparison(metric, draw(st.sampled_from(OPERATORS)), Number(digits, percent))


several = st.lists(simple_gates(), min_size=2, max_size=3)
gates: st.SearchStrategy[Gate] = st.recursive(
    simple_gates(),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: AllOf(tuple(terms)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda terms: AnyOf(tuple(terms)))
    ),
    max_leaves=4,
)


@given(gates)
def test_what_a_gate_prints_is_read_back_as_it(gate):
    text = str(gate)
    if len(text) <= MAX_CHARS:
        again = parse(text)
        assert again == gate
        assert str(again) == text
        assert len(comparisons(again)) == text.count(" and ") + text.count(" or ") + 1 or "'" in text or '"' in text


WORDS = [*METRICS, *OPERATORS, *"().,%'\" ", "and", "or", "inst", "each", "at", "model", "case", "0.5", "1", "x*", "\n"]


@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=20).map("".join))
def test_any_text_is_a_gate_or_one_error_that_points_into_it(text):
    try:
        gate = parse(text)
    except InputError as error:
        lines = str(error).split("\n")
        assert lines[0].startswith("--gate: expected ")
        assert "; " in lines[0]
        if len(lines) == 3:
            assert lines[1] == f"  {plain(text)}"
            assert lines[2].endswith("^")
            assert len(lines[2]) <= 3 + display_width(plain(text))
        assert len(lines) == 3
    else:
        assert parse(str(gate)) == gate
