"""The JSON Schema of the JSON report, generated from its models. A copy lies in docs/report.schema.json."""

from __future__ import annotations

import json
from typing import Any

from ptxbench.report.document import RunReport

IDENTIFIER = "urn:ptxbench:report:2"


def schema() -> dict[str, Any]:
    """Return the schema of documents as they are written."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": IDENTIFIER,
        **RunReport.model_json_schema(mode="serialization"),
    }


def schema_text() -> str:
    """Return the schema as its file holds it."""
    return json.dumps(schema(), indent=1) + "\n"
