"""Problems of SOL-ExecBench, read as definitions and workloads of our own schema, as far as they fit in it.

A problem is a folder with ``definition.json`` and ``workload.jsonl``. The format is FlashInfer-Trace's with four
differences (its docs/definition.md and docs/workload.md): axes may be expressions over other axes, inputs may be made
by a function of the reference's source, a workload line stands alone and may have a tolerance of its own, and an
operator's type may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ptxbench.cases.bindings import MadeInputs
from ptxbench.cases.case import Tolerance
from ptxbench.cases.formula import evaluate
from ptxbench.errors import InputError
from ptxbench.trace.base import broken
from ptxbench.trace.definition import Definition
from ptxbench.trace.document import Document, read_json, read_jsonl
from ptxbench.trace.faults import FileError, Problem, describe
from ptxbench.trace.fitting import check_fit
from ptxbench.trace.links import expect_regular
from ptxbench.trace.python_source import functions_of, may_define, parse_module
from ptxbench.trace.workload import ScalarInput, Workload

DEFINITION_FILE, WORKLOAD_FILE = "definition.json", "workload.jsonl"
CUSTOM = "custom"
"""Type of an input that the problem's own function makes."""
OP_TYPE = "sol_execbench"
"""Of a problem that names none."""


class _SolModel(BaseModel):
    """A part of a problem. Keys that nothing here needs are left alone: the format grows."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Axis(_SolModel):
    type: Literal["const", "var", "expr"]
    value: Annotated[int, Field(gt=0)] | None = None
    expression: str | None = None
    description: str | None = None

    @model_validator(mode="after")
    def _says_its_size(self) -> Self:
        field = {"const": "value", "expr": "expression"}.get(self.type)
        if field is not None and getattr(self, field) is None:
            raise broken((field,), f"this key of a {self.type} axis", "no such key")
        return self


class _Tensor(_SolModel):
    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class _Definition(_SolModel):
    name: str
    op_type: str | None = None
    axes: dict[str, _Axis]
    custom_inputs_entrypoint: str | None = None
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]
    reference: str
    description: str | None = None
    tags: tuple[str, ...] | None = None
    constraints: tuple[str, ...] | None = None


class _Tolerance(_SolModel):
    """Only what our rule has a place for: every element must agree, whatever share the problem asks for."""

    max_atol: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    max_rtol: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01


class _Workload(_SolModel):
    uuid: str
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]
    tolerance: _Tolerance | None = None


class SolWorkload(NamedTuple):
    """One workload, with its tolerance and the inputs that a function makes, if it has such."""

    document: Document
    """The line that it was read from."""
    workload: Workload
    tolerance: Tolerance | None
    made: MadeInputs | None


class SolProblem(NamedTuple):
    """One problem in our terms."""

    folder: Path
    definition: Definition
    workloads: tuple[SolWorkload, ...]


class DoesNotFitError(ValueError):
    """A problem that our schema cannot express. ``str()`` says why."""


def problem_folders(source: Path) -> tuple[Path, ...]:
    """The problems in a folder, which may be one itself, sorted. Raises InputError where there is none."""
    found = tuple(sorted(path.parent for path in source.rglob(DEFINITION_FILE)))
    if not found:
        raise InputError(
            f"{source}: expected a problem of SOL-ExecBench, or folders of them, each with {DEFINITION_FILE} and "
            f"{WORKLOAD_FILE}; found none; check the path"
        )
    return found


def read_problem(folder: Path) -> SolProblem:
    """Read one problem.

    Raises:
        InputError: a file is missing or breaks the format, with file and field.
        DoesNotFitError: it is a problem that our schema cannot express.
    """
    document = read_json(expect_regular(folder / DEFINITION_FILE))
    raw = document.parse(_Definition)
    lines = _lines(expect_regular(folder / WORKLOAD_FILE))
    sizes = [_sizes(raw, line, workload) for line, workload in lines]
    definition = _definition(raw)
    function = raw.custom_inputs_entrypoint
    if function is not None and not may_define(definition.reference, function):
        functions = ", ".join(functions_of(parse_module(definition.reference)))
        expected = f"a function of the reference ({functions})"
        raise document.error(("custom_inputs_entrypoint",), expected, repr(function))
    workloads = tuple(
        _workload(definition, line, workload, sized, function)
        for (line, workload), sized in zip(lines, sizes, strict=True)
    )
    return SolProblem(folder, definition, workloads)


def _lines(path: Path) -> list[tuple[Document, _Workload]]:
    found: list[tuple[Document, _Workload]] = []
    seen: dict[str, int | None] = {}
    for document in read_jsonl(path):
        workload = document.parse(_Workload)
        if workload.uuid in seen:
            again = f"{workload.uuid!r} again after line {seen[workload.uuid]}"
            raise document.error(("uuid",), "each uuid once", again)
        seen[workload.uuid] = document.locate()[()]
        found.append((document, workload))
    if not found:
        raise FileError(path, None, "", "at least one workload", "none")
    return found


def _used_axes(raw: _Definition) -> tuple[str, ...]:
    """The axes that occur in a tensor; the others say nothing that a kernel could see."""
    tensors = (*raw.inputs.values(), *raw.outputs.values())
    used = {axis for tensor in tensors for axis in tensor.shape or ()}
    return tuple(name for name in raw.axes if name in used)


def _sizes(raw: _Definition, document: Document, workload: _Workload) -> dict[str, int]:
    """Every axis of a workload, expressions evaluated. Raises FileError for one that it lacks or has wrong."""
    for name in workload.axes:
        if name not in raw.axes:
            expected = f"an axis of the definition ({', '.join(raw.axes)})"
            raise document.error(("axes", name), expected, repr(name))
    given: dict[str, int] = {}
    for name, axis in raw.axes.items():
        if axis.type == "var":
            if name not in workload.axes:
                raise document.error(("axes", name), "a value of the var axis", "none", "add it.")
            given[name] = workload.axes[name]
    sizes = _solved(raw, given)
    for name, axis in raw.axes.items():
        if name not in sizes:
            raise DoesNotFitError(f"its axis {name} is {describe(axis.expression)}, which cannot be evaluated here")
        if workload.axes.get(name, sizes[name]) != sizes[name]:
            found = describe(workload.axes[name])
            raise document.error(("axes", name), f"{sizes[name]}, as the definition has it", found)
    return sizes


def _solved(raw: _Definition, given: Mapping[str, int]) -> dict[str, int]:
    """The axes that follow from those that are given, these and the constants included."""
    constants = {name: axis.value for name, axis in raw.axes.items() if axis.type == "const" and axis.value is not None}
    sizes = {**constants, **given}
    waiting = {name: axis.expression or "" for name, axis in raw.axes.items() if axis.type == "expr"}
    while solved := dict(_evaluated(waiting, sizes)):
        sizes |= solved
        waiting = {name: expression for name, expression in waiting.items() if name not in solved}
    return sizes


def _evaluated(expressions: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, expression in expressions.items():
        try:
            yield name, evaluate(expression, sizes)
        except InputError:
            continue  # it may need an axis that is an expression too


def _definition(raw: _Definition) -> Definition:
    axes: dict[str, object] = {}
    constants = _solved(raw, {})
    for name in _used_axes(raw):
        axis, constant = raw.axes[name], constants.get(name)
        kind: dict[str, object] = {"type": "var"} if constant is None else {"type": "const", "value": constant}
        axes[name] = {**kind, "description": axis.description or axis.expression}
    fields: dict[str, object] = {
        "name": raw.name,
        "op_type": raw.op_type or OP_TYPE,
        "axes": axes,
        "inputs": {name: dict(tensor) for name, tensor in raw.inputs.items()},
        "outputs": {name: dict(tensor) for name, tensor in raw.outputs.items()},
        "reference": raw.reference,
        "tags": raw.tags or (),
        "description": raw.description,
        # They speak of axes that may be gone.
        "constraints": (),
    }
    definition: Definition = _fitting(Definition, fields)
    return definition


def _workload(
    definition: Definition, document: Document, raw: _Workload, sizes: Mapping[str, int], function: str | None
) -> SolWorkload:
    custom = tuple(name for name, source in raw.inputs.items() if source.get("type") == CUSTOM)
    _check_inputs(definition, document, raw, custom, function)
    for name, size in sizes.items():
        if size < 1:
            raise document.error(("axes", name), "a size of at least 1", str(size))
    fields: dict[str, object] = {
        "uuid": raw.uuid,
        "axes": {name: sizes[name] for name in definition.var_axes},
        # What a function makes has no word in the public schema.
        "inputs": {name: {"type": "random"} if name in custom else source for name, source in raw.inputs.items()},
    }
    workload: Workload = _fitting(Workload, fields)
    check_fit(document, definition, workload, ())
    scalars = {name: source.value for name, source in workload.inputs.items() if isinstance(source, ScalarInput)}
    made: dict[str, object] = {"function": function, "inputs": custom, "arguments": {**sizes, **scalars}}
    tolerance: dict[str, object] | None = None
    if raw.tolerance is not None:
        tolerance = {"atol": raw.tolerance.max_atol, "rtol": raw.tolerance.max_rtol}
    return SolWorkload(
        document,
        workload,
        _fitting(Tolerance, tolerance) if tolerance else None,
        _fitting(MadeInputs, made) if custom else None,
    )


def _check_inputs(
    definition: Definition, document: Document, raw: _Workload, custom: tuple[str, ...], function: str | None
) -> None:
    """What is lost or unreadable once the inputs are those of our schema."""
    for name, source in raw.inputs.items():
        if source.get("type") == "scalar" and "value" not in source:
            raise document.error(("inputs", name, "value"), "this required key", "no such key")
    for name in custom:
        if function is None:
            raise document.error(("inputs", name, "type"), "custom_inputs_entrypoint in the definition", "none")
        if name in definition.inputs and definition.inputs[name].shape is None:
            expected = "scalar or random, as for an input without a shape"
            raise document.error(("inputs", name, "type"), expected, repr(CUSTOM))


def _fitting(model: type[Any], fields: dict[str, object]) -> Any:  # noqa: ANN401 - of the model that was asked for
    try:
        return model.model_validate(fields, strict=False)
    except ValidationError as failure:
        problem = Problem(failure.errors(include_url=False)[0], model, fields)
        place = ".".join(map(str, problem.loc))
        raise DoesNotFitError(f"`{place}`: expected {problem.expected}; found {problem.found}") from None
