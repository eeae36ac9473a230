from hypothesis import given
from hypothesis import strategies as st

from ptxbench.toolchain.lexer import Kind, raw_string_end, tokenize, unescape


def names(text: str) -> list[str]:
    return [token.text for token in tokenize(text) if token.kind is Kind.NAME]


def test_strings_and_characters_are_no_names():
    assert names("""a("dlopen", 'x', R"(system)", u8"fork", LR"d(exec ) d)d") b""") == ["a", "b"]


def test_adjacent_literals_are_one_value():
    (token,) = tokenize('"cu" "Module"\n  R"(Load)"')
    assert (token.kind, token.text, token.line) == (Kind.STRING, "cuModuleLoad", 1)


def test_escapes_are_resolved():
    assert unescape(r"a\x62\143\n\"\\") == 'abc\n"\\'


def test_an_escaped_quote_does_not_end_a_string():
    assert names(r'"a\" dlopen" b') == ["b"]


def test_digit_separators_do_not_open_a_character():
    assert names("int x = 1'000'000; dlopen('a');") == ["int", "x", "dlopen"]


def test_a_name_that_ends_in_r_opens_no_raw_string():
    assert names('FOR"(" a') == ["FOR", "a"]


def test_the_suffix_of_a_literal_opens_no_raw_string():
    assert names('""R"(" a') == ["a"]
    assert names('R"x()x"R"(" b \'c\'R"(" d') == ["b", "d"]
    assert names('\u00e9\u0301R"(" e') == ["\u00e9\u0301R", "e"]


def test_lines_count_through_raw_strings_and_markers():
    tokens = tokenize('a\nR"(\n\n)" b\n# 40 "kernel.cu"\nc')
    assert [(t.text, t.line) for t in tokens if t.kind is Kind.NAME] == [("a", 1), ("b", 4), ("c", 40)]


def test_an_open_raw_string_is_the_last_token_and_holds_the_rest():
    tokens = tokenize('a R"x(dlopen")"')
    assert tokens[-1] == (Kind.OPEN_RAW, 'R"x(dlopen")"', 1)


def test_raw_strings_end_at_their_own_delimiter():
    text = 'R"x( )" )x" tail'
    assert text[raw_string_end(text, 0) :] == " tail"
    assert raw_string_end('R"x( )"', 0) == 7


@given(st.text(alphabet="aR\"()\\\n'x #1/", max_size=60))
def test_any_text_becomes_tokens_with_lines_inside_it(text: str):
    lines = 1 + text.count("\n")
    for token in tokenize(text):
        assert 0 <= token.line <= lines


@given(st.text(alphabet=st.characters(blacklist_characters='"\\\n'), max_size=30))
def test_what_is_quoted_comes_back_as_it_is(value: str):
    (token,) = tokenize(f'"{value}"')
    assert token == (Kind.STRING, value, 1)
