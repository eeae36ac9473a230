"""Our models against those of PyPI's flashinfer-bench: the same files, the same schema, no rejection missed.

What differs on purpose is listed here and in docs/cases.md, and nothing else may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from ptxbench.trace import Definition, Solution, Trace
from tests.support.trace_sets import ROOT, SMALL
from tests.unit.trace import public_models, samples

OURS: dict[str, type[BaseModel]] = {"Definition": Definition, "Solution": Solution, "Trace": Trace}
FILES = sorted(
    path
    for folder in (ROOT / "cases", SMALL)
    for kind in ("definitions", "workloads", "solutions")
    for path in (folder / kind).rglob("*.json*")
)


def theirs(name: str) -> type[BaseModel]:
    model: type[BaseModel] = getattr(public_models.load(), name)
    return model


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """Model and JSON of each document of a collection's file."""
    if path.suffix == ".jsonl":
        yield from (("Trace", line) for line in path.read_text().splitlines())
    else:
        yield "Definition" if "definitions" in path.parts else "Solution", path.read_text()


def test_there_are_files_of_every_kind() -> None:
    assert {name for path in FILES for name, _ in documents(path)} == set(OURS)
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_makes_the_round_trip(path: Path) -> None:
    for name, text in documents(path):
        ours, public = OURS[name].model_validate_json(text), theirs(name).model_validate_json(text)
        assert OURS[name].model_validate_json(public.model_dump_json()) == ours
        again = theirs(name).model_validate_json(ours.model_dump_json())
        assert again.model_dump() == public.model_dump()


def result(**evaluation: Any) -> dict[str, Any]:
    trace = samples.trace()
    trace["evaluation"].update(evaluation)
    return trace


def test_results_make_the_round_trip() -> None:
    rows = [
        result(),
        result(correctness={"max_relative_error": "NaN", "max_absolute_error": "Infinity", "extra": {"a": [1, None]}}),
        result(status="TIMEOUT", correctness=None, performance=None, log="too slow"),
        result(status="INCORRECT_NUMERICAL", performance=None),
    ]
    for row in rows:
        text = json.dumps(row)
        ours, public = Trace.model_validate_json(text), theirs("Trace").model_validate_json(text)
        assert repr(Trace.model_validate_json(public.model_dump_json())) == repr(ours)
        assert repr(theirs("Trace").model_validate_json(ours.model_dump_json())) == repr(public)


# --- The schemas ---

STRICTER = {
    # Defaults that we want written: `type` tells the members of a union apart.
    "AxisConst.type": "required",
    "AxisVar.type": "required",
    "RandomInput.type": "required",
    "ScalarInput.type": "required",
    "SafetensorsInput.type": "required",
    # A definition without axes, inputs or outputs is nothing that can be run.
    "Definition.axes": "minProperties",
    "Definition.inputs": "minProperties",
    "Definition.outputs": "minProperties",
    # An axis of size 0 is no constant that a kernel could rely on.
    "AxisConst.value": "exclusiveMinimum",
}
"""Field -> the keyword of JSON schema in which we ask for more."""
NEWER = {"Performance.profile", "SourceLanguage.cutedsl"}
"""What later versions of the public schema added."""
NAMES = {"SupportedLanguages": "SourceLanguage", "SupportedBindings": "Binding"}
"""Their names of what we call otherwise."""
LOOSE = {
    *("title", "description", "default", "discriminator"),
    *("minLength", "propertyNames", "minItems", "maxItems", "prefixItems"),
}
"""Keywords that say nothing, or the same in other words: a text of white space is none to us, a validator says so."""
LOOSELY_TYPED = {"Correctness.extra"}
"""Any JSON to both, which the schemas write differently."""


def fields_of(name: str, model: type[BaseModel]) -> tuple[dict[str, set[str]], dict[str, Any]]:
    """Model -> its required fields, and ``Model.field`` -> its schema, over all models that one consists of."""
    schema = model.model_json_schema()
    models = {name: schema, **schema.get("$defs", {})}
    required: dict[str, set[str]] = {}
    fields: dict[str, Any] = {}
    for title, part in models.items():
        title = NAMES.get(title, title)
        if "enum" in part:
            fields |= {f"{title}.{value}": {} for value in part["enum"]}
            continue
        required[title] = set(part.get("required", ()))
        fields |= {f"{title}.{field}": _plain(what) for field, what in part.get("properties", {}).items()}
    return required, fields


def _plain(schema: Any) -> Any:
    """A schema without what does not matter, references by the name that we use."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return {"$ref": NAMES.get(name, name)}
    plain = {key: _plain(value) for key, value in schema.items() if key not in LOOSE}
    plain = {"anyOf" if key == "oneOf" else key: value for key, value in plain.items()}
    if "anyOf" in plain:
        plain["anyOf"] = sorted(plain["anyOf"], key=str)
    return {key: value for key, value in plain.items() if key != "additionalProperties" or isinstance(value, dict)}


@pytest.mark.parametrize("name", list(OURS))
def test_the_schemas_are_equal_where_they_should_be(name: str) -> None:
    our_required, our_fields = fields_of(name, OURS[name])
    their_required, their_fields = fields_of(name, theirs(name))
    known = {model for field in NEWER for model in (field, field.partition(".")[0])}
    added = {field for field in our_fields.keys() - their_fields.keys() if field.partition(".")[0] != "KernelProfile"}
    assert added <= known
    assert their_fields.keys() - our_fields.keys() == set()
    for model, fields in their_required.items():
        more = {field for field in our_required[model] - fields if STRICTER.get(f"{model}.{field}") != "required"}
        assert (model, more, fields - our_required[model]) == (model, set(), set())
    for field, schema in their_fields.items():
        mine = our_fields[field]
        if field in STRICTER and STRICTER[field] != "required":
            assert STRICTER[field] in mine
            mine = {key: value for key, value in mine.items() if key != STRICTER[field]}
            schema = {key: value for key, value in schema.items() if key != "minimum"}
        if field not in LOOSELY_TYPED:
            assert (field, mine) == (field, schema)


# --- Rejections ---


def rejects(model: type[BaseModel], data: object) -> bool:
    try:
        model.model_validate_json(json.dumps(data))
    except ValidationError:
        return True
    return False


Example = tuple[str, str, dict[str, Any]]
"""Name, model and document."""


def made(name: str, document: dict[str, Any], *steps: str | int, to: object) -> Example:
    """An example: a valid document with one value changed."""
    kind = "Solution" if "spec" in document else "Definition" if "axes" in document else "Trace"
    return name, kind, samples.change(document, *steps, to=to)


def broken_definitions() -> Iterator[Example]:
    yield made("reference is no Python", samples.definition(), "reference", to="def run(:")
    yield made("reference without run", samples.definition(), "reference", to="def walk(): ...")
    yield made("run is nested", samples.definition(), "reference", to="def f():\n  def run(): ...")
    yield made("output named as an input", samples.definition(), "outputs", to={"X": {"shape": ["M"], "dtype": "int8"}})
    yield made("constraint is no expression", samples.definition(), "constraints", to=["M >"])
    yield made("constraint is empty", samples.definition(), "constraints", to=[""])
    yield made("input of an unknown axis", samples.definition(), "inputs", "X", "shape", to=["M", "E"])
    yield made("output of an unknown axis", samples.definition(), "outputs", "Y", "shape", to=["E"])
    yield made("unknown element type", samples.definition(), "inputs", "X", "dtype", to="bf16")
    yield made("negative constant", samples.definition(), "axes", "D", "value", to=-1)
    yield made("unknown kind of axis", samples.definition(), "axes", "D", "type", to="expr")
    yield made("empty name", samples.definition(), "name", to="")
    yield made("empty tag", samples.definition(), "tags", to=[""])
    yield made("shape is no list", samples.definition(), "inputs", "X", "shape", to="M")


def broken_solutions() -> Iterator[Example]:
    yield made("absolute source", samples.solution(), "sources", 0, "path", to="/kernel.cu")
    yield made("source above its root", samples.solution(), "sources", 0, "path", to="../kernel.cu")
    yield made("source without text", samples.solution(), "sources", 0, "content", to="")
    yield made("no source", samples.solution(), "sources", to=[])
    yield made("a source twice", samples.solution(), "sources", to=[samples.solution()["sources"][0]] * 2)
    yield made("entry without a function", samples.solution(), "spec", "entry_point", to="src/kernel.cu")
    yield made("entry of three parts", samples.solution(), "spec", "entry_point", to="src/kernel.cu::a::b")
    yield made("entry in no source", samples.solution(), "spec", "entry_point", to="main.cu::run")
    yield made("unknown language", samples.solution(), "spec", "language", to="rust")
    yield made("unknown binding", samples.solution(), "spec", "binding", to="ctypes")
    yield made("no hardware", samples.solution(), "spec", "target_hardware", to=[])
    yield made("empty dependency", samples.solution(), "spec", "dependencies", to=[""])
    yield made("no author", samples.solution(), "author", to="")


def broken_traces() -> Iterator[Example]:
    yield made("unknown status", samples.trace(), "evaluation", "status", to="GREAT")
    yield made("passed without errors", samples.trace(), "evaluation", "correctness", to=None)
    yield made("passed without times", samples.trace(), "evaluation", "performance", to=None)
    yield made("wrong with times", samples.trace(), "evaluation", "status", to="INCORRECT_NUMERICAL")
    yield made("crashed with errors", samples.trace(), "evaluation", "status", to="RUNTIME_ERROR")
    yield made("negative error", samples.trace(), "evaluation", "correctness", "max_relative_error", to=-1.0)
    yield made("negative latency", samples.trace(), "evaluation", "performance", "latency_ms", to=-1.0)
    yield made("no hardware name", samples.trace(), "evaluation", "environment", "hardware", to="")
    yield made("no time", samples.trace(), "evaluation", "timestamp", to="")
    yield made("negative axis", samples.trace(), "workload", "axes", "M", to=-1)
    yield made("no uuid", samples.trace(), "workload", "uuid", to="")
    yield made("unknown input", samples.trace(), "workload", "inputs", "X", to={"type": "ones"})
    yield made("scalar that is none", samples.trace(), "workload", "inputs", "factor", "value", to="half")
    yield made(
        "blob without a key", samples.trace(), "workload", "inputs", "X", to={"type": "safetensors", "path": "a"}
    )
    yield made(
        "blob without a path", samples.trace(), "workload", "inputs", "X", to={"type": "safetensors", "tensor_key": "a"}
    )


BROKEN = [*broken_definitions(), *broken_solutions(), *broken_traces()]
"""Everything that their validators check by code."""


@pytest.mark.parametrize(("name", "kind", "document"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_what_they_reject_we_reject(name: str, kind: str, document: dict[str, Any]) -> None:
    assert rejects(theirs(kind), document), "the example is none"
    assert rejects(OURS[kind], document)


VALID = [("Definition", samples.definition()), ("Solution", samples.solution()), ("Trace", samples.trace())]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 2) | st.sampled_from(["", "x", "M", "const", "run"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "value", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(data: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document but its root."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in ((*at, key), *places(value, (*at, key)))]


@settings(max_examples=400)
@given(data=st.data())
def test_no_rejection_of_theirs_is_missed_anywhere(data: st.DataObject) -> None:
    name, document = data.draw(st.sampled_from(VALID))
    document = json.loads(json.dumps(document))
    place = data.draw(st.sampled_from(places(document)))
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    if isinstance(inner, dict) and data.draw(st.booleans()):
        del inner[place[-1]]
    else:
        inner[place[-1]] = data.draw(values)
    lenient = place[-1] in ("tags", "constraints") and inner.get(place[-1], 0) is None
    if not lenient and rejects(theirs(name), document):
        assert rejects(OURS[name], document), (place, document)


def test_where_we_are_lenient_and_they_are_not() -> None:
    """Older collections write null where newer ones write a list."""
    for field in ("tags", "constraints"):
        document = samples.change(samples.definition(), field, to=None)
        assert rejects(theirs("Definition"), document)
        assert not rejects(Definition, document)
