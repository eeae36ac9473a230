"""Tokens of preprocessed C++: enough to tell code from strings, with line numbers. Comments are gone by then."""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """What a token is. ``OPEN_RAW`` is a raw string whose end is not in the text."""

    NAME = auto()
    STRING = auto()
    PUNCT = auto()
    OTHER = auto()
    OPEN_RAW = auto()


class Token(NamedTuple):
    """One token. ``text`` of a string is its value, with adjacent literals joined as the compiler joins them.

    ``text`` of an ``OPEN_RAW`` is all that follows its start; it is always the last token.
    """

    kind: Kind
    text: str
    line: int


# Raw strings come first: nothing inside them is a token, and they alone span lines. A name that touches a literal's end
# is its suffix, so that the R of ""R"(" opens no raw string.
_NAME = r"[A-Za-z_$\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*"
_TOKEN = re.compile(
    r"""
      (?P<marker>^\#\ (?P<number>\d+)\ "[^\n]*$)
    | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\((?P<body>.*?)\)(?P=delimiter)"(?:NAME)?)
    | (?P<open>(?:u8|[uUL])?R"[^()\\\s"]{0,16}\()
    | (?P<string>(?:u8|[uUL])?"(?P<quoted>(?:[^"\\\n]|\\.)*)"(?:NAME)?)
    | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'(?:NAME)?)
    | (?P<name>NAME)
    | (?P<pp_number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<newline>\n)
    | (?P<space>[ \t\r\f\v]+)
    | (?P<punct>::|->|.)
    """.replace("NAME", _NAME),
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)

_KINDS = {
    "char": Kind.OTHER,
    "name": Kind.NAME,
    "pp_number": Kind.OTHER,
    "punct": Kind.PUNCT,
}

_RAW_START = re.compile(r'(?:u8|[uUL])?R"([^()\\\s"]{0,16})\(')
_SUFFIX = re.compile(f"(?:{_NAME})?")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]+|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def tokenize(text: str, line: int = 1) -> list[Token]:
    """Tokens of preprocessed text that starts at ``line`` of its file; line markers in it are obeyed."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, matched = match.lastgroup, match.group()
        if kind == "marker":
            line = int(match["number"]) - 1
        elif kind == "raw":
            _add_string(tokens, match["body"], line)
        elif kind == "string":
            _add_string(tokens, unescape(match["quoted"]), line)
        elif kind == "open":
            tokens.append(Token(Kind.OPEN_RAW, text[match.start() :], line))
            break
        elif kind in _KINDS:
            tokens.append(Token(_KINDS[kind], matched, line))
        line += matched.count("\n")
    return tokens


def raw_string_end(text: str, start: int) -> int:
    """Where the raw string literal that begins at ``start`` ends; the end of the text when it is not closed."""
    match = _RAW_START.match(text, start)
    closing = f'){match[1]}"' if match else ""
    end = text.find(closing, match.end()) if match else -1
    return end + len(closing) if end >= 0 else len(text)


def literal_end(text: str, end: int) -> int:
    """Where the suffix of a literal ends whose closing quote ends at ``end``."""
    suffix = _SUFFIX.match(text, end)
    return suffix.end() if suffix else end


def unescape(quoted: str) -> str:
    """The value of the characters between the quotes of an ordinary string literal."""

    def value(match: re.Match[str]) -> str:
        code = match[1]
        if code in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[code]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16) & 0xFF)
        if code[0] in "uU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number <= sys.maxunicode else code
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return code

    return _ESCAPE.sub(value, quoted)


def _add_string(tokens: list[Token], value: str, line: int) -> None:
    if tokens and tokens[-1].kind is Kind.STRING:
        tokens[-1] = tokens[-1]._replace(text=tokens[-1].text + value)
    else:
        tokens.append(Token(Kind.STRING, value, line))
