"""Untrusted texts on their way into the page: made visible, packed, and got back."""

import base64
import gzip
import json

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.report.page.packing import MOST_CHARS, Texts, packed, shortened
from ptxbench.report.page.plain import MOST, plain
from ptxbench.report.page.table import text


def text_of(texts: Texts, number: int) -> str:
    """As the page's script puts a text together."""
    data = texts.data()
    runs = data["texts"][number]
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return "\n".join(data["lines"][first + at] for first, count in pairs for at in range(count))


@given(st.lists(st.text(alphabet="ab\n", max_size=40), max_size=6))
def test_texts_come_back_and_are_kept_once(given_texts) -> None:
    texts = Texts()
    numbers = [texts.add(one) for one in given_texts]
    assert [text_of(texts, number) for number in numbers] == given_texts
    assert len(texts.lines) == len(set(texts.lines))
    assert len(texts.texts) == len(set(given_texts))


def test_a_kernel_with_one_other_line_costs_one_line() -> None:
    texts = Texts()
    lines = [f"line {number}" for number in range(500)]
    texts.add("\n".join(lines))
    texts.add("\n".join([*lines[:250], "changed", *lines[251:]]))
    assert len(texts.lines) == 501
    assert texts.texts[1] == [0, 250, 500, 1, 251, 249]


@given(st.text())
def test_packed_texts_hold_nothing_but_base64(value) -> None:
    found = packed({"value": value})
    assert json.loads(gzip.decompress(base64.b64decode(found, validate=True))) == {"value": value}
    assert found == packed({"value": value})


def test_lone_surrogates_can_be_packed() -> None:
    assert json.loads(gzip.decompress(base64.b64decode(packed("\ud800")))) == "\ud800"


def test_texts_of_unreasonable_size_keep_both_ends() -> None:
    long = "a" * MOST_CHARS + "b" * 100
    assert shortened(long).startswith("aaa")
    assert shortened(long).endswith("bbb")
    assert "100 characters left out" in shortened(long)
    assert shortened("short") == "short"


@given(st.text())
def test_names_in_figures_have_no_markup_and_one_line(value) -> None:
    shown = plain(value)
    assert not set("<>\n\r") & set(shown)
    assert shown.count("&") == sum(shown.count(entity) for entity in ("&lt;", "&gt;", "&amp;"))
    assert len(shown) <= MOST * len("&amp;")


def test_html_is_escaped_also_in_attributes() -> None:
    assert text("\"><script>'") == "&quot;&gt;&lt;script&gt;&#x27;"
