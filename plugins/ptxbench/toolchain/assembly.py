"""Text of a candidate that reaches the host's assembler: inline assembly, and strings that the compiler prints.

The screen reads it as GNU as does (manual of GNU as, "Pseudo Ops" and "Preprocessing"): names of directives and of
instructions have no case, and one may stand right behind a label or a comment. Of an asm statement's dialects (GCC's
manual, "Extended Asm", ``{att|intel}``) each is read. PTX has none of these directives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ptxbench.toolchain import rules
from ptxbench.toolchain.lexer import Kind, Token
from ptxbench.toolchain.rules import ScreenRule

Found = tuple[ScreenRule, str]

_START = r"(?<![\w.$])"
_END = r"(?![\w.$])"
_FILE = re.compile(rf"{_START}\.inc(?:bin|lude){_END}", re.IGNORECASE)
_SYSCALL = re.compile(rf"{_START}(?:(?:syscall|sysenter|int\s+(?:0x80|128)|svc\s+#?0){_END}|int\s+[$%])", re.IGNORECASE)
_BYTES = (
    r"byte|[248]byte|s?short|hword|word|s?long|int|quad|octa|value|ascii|asciz|string\d*|[us]leb128"
    r"|[bfdht]?float(?:16)?|single|l?double|dcb?(?:\.\w)?|fill|insn|nops|reloc|base64"
)
"""Directives that write bytes as they are."""
_SPELLING = r"macro|altmacro|mri|i?repc?|irpc?|rept"
"""Directives by which another can be spelled."""
_FILL = r"(?:skip|space|zero|org|ds(?:\.\w)?)\s[^,;\n]*,|(?:p2|b)?align[wl]?\s+\w+\s*,\s*(?!0x90\b)[^\s,;]"
"""Directives that write a byte of one's own choice where it is given. Compilers fill with 0x90, which does nothing."""
# An operand that is a number is printed into the template: .%c0byte is .2byte. A label of one's own is .Lname%=.
_RAW_CODE = re.compile(rf"{_START}\.(?:(?:{_BYTES}|{_SPELLING}){_END}|{_FILL}|(?!L)\w*%(?!=))", re.IGNORECASE)
_DIALECTS = re.compile(r"(?<!%)\{([^{}|]*)\|([^{}]*)\}")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
# Only what surely is a comment to the assembler too, whatever stands around it: on one line, without what could end it,
# begin a statement or be an operand, and in a text without strings and without the assembler's own comments.
_COMMENT = re.compile(r"/\*(?:(?!\*/)[^\n%{}|])*\*/|//(?:(?!\*/)[^\n;%{}|])*")
_NO_COMMENTS = re.compile(r"[\"'#]")
_LOCAL_NAME = re.compile(r"\*?\.L[\w.$]+")

_LOOKUPS = tuple(sorted(rules.ENTRY_POINT_LOOKUP))  # an operand may follow: cuGetProcAddress_v%c0

_QUALIFIERS = frozenset({"volatile", "__volatile__", "__volatile", "inline", "__inline__", "__inline", "goto"})
_PRINTED = frozenset({"section", "alias", "weakref", "ifunc", "symver"})
"""Attributes whose string the compiler prints into the assembly as it is."""
_MAX_ATTRIBUTE_TOKENS = 64


def is_assembly(tokens: Sequence[Token], position: int) -> bool:
    """Whether a string is the template of an asm statement or declaration, or an assembler name."""
    before = position - 1
    if before < 0 or tokens[before].text != "(":
        return False
    while before > 0 and tokens[before - 1].text in _QUALIFIERS:
        before -= 1
    return before > 0 and tokens[before - 1].text in ("asm", "__asm__", "__asm")


def printed_by(tokens: Sequence[Token], position: int) -> str | None:
    """What prints a string into the assembly as it is: an attribute's name, ``ident``, or nothing (None)."""
    if position >= 2 and tokens[position - 1].text in ("ident", "sccs") and tokens[position - 2].text in ("#", "%:"):
        return "ident"
    if position < 3 or tokens[position - 1].text != "(":
        return None
    name = tokens[position - 2].text.strip("_")
    return name if name in _PRINTED and _in_attribute(tokens, position - 2) else None


def findings_in_assembly(text: str) -> Iterator[Found]:
    """What inline assembly, or an assembler name, may not hold."""
    said = text if _NO_COMMENTS.search(text) else _COMMENT.sub(" ", text)
    readings = {_DIALECTS.sub(rf"\{which}", said) for which in (1, 2)} | {said}
    if any(map(_FILE.search, readings)):
        yield ScreenRule.EMBEDDED_FILE, "assembles a file into the object"
    if any(map(rules.DEVICE_CODE_SECTION.search, readings - {text})):
        yield ScreenRule.EMBEDDED_DEVICE_CODE, "writes to a section that holds device code"
    if any(map(_SYSCALL.search, readings)):
        yield ScreenRule.PROCESS_CREATION, "enters the operating system by inline assembly"
    if any(map(_RAW_CODE.search, readings)):
        yield ScreenRule.PROCESS_CREATION, "writes raw bytes by inline assembly, which could be any code"
    if _LOCAL_NAME.fullmatch(text):
        yield ScreenRule.PROCESS_CREATION, f"keeps {text} out of the object's symbols by its assembler name"
    yield from _names("\n".join(sorted({text} | readings)))


def findings_in_printed(text: str, printer: str) -> Iterator[Found]:
    """What a string may not hold that the compiler prints into the assembly as it is."""
    if any(character in text for character in ('"\n\r' if printer == "ident" else '"\n\r;')):
        yield ScreenRule.PROCESS_CREATION, f"writes assembly by the string of {printer}, which could be any code"
    yield from _names(text)


def _names(text: str) -> Iterator[Found]:
    """Functions that an honest object calls as well, so that the built one does not tell."""
    for name in dict.fromkeys(_WORD.findall(text)):
        if rules.REGISTRATION.fullmatch(name):
            yield ScreenRule.DEVICE_CODE_LOADING, f"uses {name}"
        elif name.startswith(_LOOKUPS):
            yield ScreenRule.DRIVER_ENTRY_POINT, f"looks up driver functions by {name} in assembly"


def _in_attribute(tokens: Sequence[Token], position: int) -> bool:
    for index in range(position - 1, max(-1, position - _MAX_ATTRIBUTE_TOKENS), -1):
        token = tokens[index]
        if token.text in (";", "{", "}"):
            return False
        if token.text.startswith("__attribute") and token.kind is Kind.NAME:
            return True
        if token.text == "[" and index > 0 and tokens[index - 1].text == "[":
            return True
    return False
