import json

import jsonschema
import pytest

from ptxbench.report import build_report
from ptxbench.report.schema import schema, schema_text
from tests.conftest import ROOT
from tests.unit.factories import make_record

FILE = ROOT / "docs" / "report.schema.json"


def test_the_committed_schema_is_that_of_the_models() -> None:
    assert FILE.read_text() == schema_text(), "write it again: ptxbench report --schema > docs/report.schema.json"


def test_a_report_fits_its_schema_and_a_changed_one_does_not() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    document = json.loads(build_report([make_record(0), make_record(1, evidence=None)]).model_dump_json())
    validator.validate(document)
    document["turns"][0]["speed"] = 1.0
    with pytest.raises(jsonschema.ValidationError, match="speed"):
        validator.validate(document)


def test_the_page_about_it_names_every_field_of_every_model() -> None:
    text = (ROOT / "docs" / "report-schema.md").read_text()
    wanted: tuple[str, ...] = (
        "RunReport",
        "Cell",
        "AtLimit",
        "Rate",
        "FastP",
        "TurnRow",
        "CallRow",
        "LatencySamples",
        "Roofline",
    )
    wanted += ("Instructions", "Environment", "DeviceUse", "Clocks", "PromptUse", "CompilerUse", "Code", "Bootstrap")
    models = {**schema()["$defs"], "RunReport": schema()}
    missing = [f"{name}.{field}" for name in wanted for field in models[name]["properties"] if f"`{field}`" not in text]
    assert missing == []
