"""The files of a dataset: JSONL, Parquet, the card."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ptxbench.adapt.card import card
from ptxbench.adapt.manifest import CARD, PARQUET, PROMPT_COMPLETION, TRAIN, Manifest
from ptxbench.adapt.model import TrainingRecord
from ptxbench.errors import InputError

HOW = "install it with: pip install 'ptxbench[adapt]'"


def jsonl(records: Sequence[TrainingRecord]) -> bytes:
    """One record a line, in the order given."""
    return "".join(f"{record.model_dump_json()}\n" for record in records).encode("utf-8", "surrogatepass")


def dataset_files(manifest: Manifest, records: Sequence[TrainingRecord]) -> dict[str, bytes]:
    """Everything but the manifest. Raises InputError where pyarrow is missing."""
    rows = [record.model_dump(mode="json") for record in records]
    return {
        TRAIN: jsonl(records),
        PARQUET: _parquet(rows),
        PROMPT_COMPLETION: _parquet([_prompt_completion(row) for row in rows]),
        CARD: card(manifest).encode(),
    }


def _prompt_completion(row: dict[str, Any]) -> dict[str, Any]:
    """The record as TRL takes it apart: its loss is on ``completion`` alone, whatever the chat template."""
    said = [{"role": message["role"], "content": message["content"]} for message in row["messages"]]
    return {"id": row["id"], "prompt": said[:-1], "completion": said[-1:]}


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """A Parquet file. Its bytes depend on pyarrow's version; the content does not."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(f"fixit build: expected the package pyarrow, found none; {HOW}") from None
    sink = io.BytesIO()
    parquet.write_table(
        pyarrow.Table.from_pylist(list(rows), schema=_schema(pyarrow, rows[0])), sink, compression="zstd"
    )
    return sink.getvalue()


def _schema(pyarrow: Any, row: dict[str, Any]) -> Any:  # noqa: ANN401 - pyarrow carries no types
    """Said, not inferred: a column of nothing but nulls has a type too."""
    return pyarrow.schema([(name, _type(pyarrow, name, value)) for name, value in row.items()])


def _type(pyarrow: Any, name: str, value: object) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return pyarrow.list_(pyarrow.struct([(key, _type(pyarrow, key, inner)) for key, inner in value[0].items()]))
    if name == "speedup":
        return pyarrow.float64()
    kinds = {bool: pyarrow.bool_, int: pyarrow.int64, str: pyarrow.string}
    return kinds[type(value)]()
