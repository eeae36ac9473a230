"""The prompts of teachers and of retrieval, which are files (``prompts/*.md``)."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from string import Template

VERSION = "2"
"""Of all of them. Raised with every change of one, or of what one is sent with."""


def filled(name: str, **fields: object) -> str:
    """A prompt with its ``$fields`` filled in; what is filled in is taken as it is."""
    return _template(name).substitute({key: str(value) for key, value in fields.items()}) + "\n"


def digest(*names: str) -> str:
    """Identity of some prompts, as a run's terms hold it."""
    text = "\0".join(_template(name).template for name in names)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip())
