"""A case whose workload is of somebody's collection: it knows where the collection's files are."""

from __future__ import annotations

import json

from ptxbench.cases.bindings import MadeInputs
from ptxbench.cases.case import Case
from ptxbench.records import Sha256
from ptxbench.trace.base import Text


class CollectionCase(Case):
    """A case of a FlashInfer-Trace collection."""

    collection_root: str
    """Folder that paths of safetensors inputs are relative to. A place on this machine, no part of what the case is."""
    blobs: dict[Text, Sha256]
    """Input -> digest of the file that it is read from (``trace.safetensors_file.digest``)."""
    made: MadeInputs | None = None
    """Inputs that a function of the collection makes."""


def read_case(text: str) -> Case:
    """A case from its JSON, of the class that wrote it. Raises pydantic's ValidationError, ValueError."""
    kind = CollectionCase if "collection_root" in json.loads(text) else Case
    return kind.model_validate_json(text)
