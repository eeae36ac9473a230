"""Text that candidates and tools wrote, made fit for a one-line message. It is quoted, never parsed for results."""

from __future__ import annotations

MAX_QUOTE_CHARS = 300


def quote(text: str) -> str:
    """Return ``text`` on one line, without control characters, at most ``MAX_QUOTE_CHARS`` characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= MAX_QUOTE_CHARS else line[: MAX_QUOTE_CHARS - 3] + "..."


def first_error(log: str) -> str:
    """Return the first line of a compiler log that speaks of an error, else its last line that is not blank."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return quote((errors or lines[-1:] or ["(no output)"])[0])
