"""Whether a workload of a collection fits its definition, and its files are there: errors that name file and field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxbench.trace.definition import MAX_SIZE, Definition, DType
from ptxbench.trace.document import Document
from ptxbench.trace.faults import FileError, describe, did_you_mean
from ptxbench.trace.links import is_below
from ptxbench.trace.safetensors_file import CODES, BlobError, digest, expect_size, read_header
from ptxbench.trace.scalars import expected_of
from ptxbench.trace.workload import SafetensorsInput, ScalarInput, Workload

Place = tuple[str, ...]
"""Keys from the root of a document."""

WORKLOAD: Place = ("workload",)
"""Where a workload is in a line of a workload file."""


def check_fit(document: Document, definition: Definition, workload: Workload, at: Place = WORKLOAD) -> None:
    """Check axes and inputs against the definition; no file but the document is looked at.

    Raises:
        FileError: an axis is missing, unknown, no size or not the definition's constant; an input is missing or
            unknown, a tensor is given as a scalar or the reverse, or a scalar is no value of its element type.
    """
    _check_axes(document, definition, workload.axes, (*at, "axes"))
    inputs = (*at, "inputs")
    _check_names(document, inputs, "an input", tuple(definition.inputs), tuple(workload.inputs))
    for name, tensor in definition.inputs.items():
        source, loc = workload.inputs[name], (*inputs, name, "type")
        if tensor.shape is not None and isinstance(source, ScalarInput):
            raise document.error(loc, "random or safetensors, as for any tensor", "'scalar'")
        if tensor.shape is None and isinstance(source, SafetensorsInput):
            raise document.error(loc, "scalar, as for an input without a shape", "'safetensors'")
        if isinstance(source, ScalarInput) and (expected := expected_of(tensor.dtype, source.value)):
            raise document.error((*inputs, name, "value"), expected, describe(source.value))


def _check_axes(document: Document, definition: Definition, axes: Mapping[str, int], at: Place) -> None:
    constants = definition.const_axes
    named = tuple(name for name in axes if name not in constants)
    _check_names(document, at, "a var axis", definition.var_axes, named)
    for name, value in axes.items():
        if constants.get(name, value) != value:
            raise document.error((*at, name), f"{constants[name]}, the definition's constant", describe(value))
        if not 1 <= value <= MAX_SIZE:
            bound = "at least 1" if value < 1 else f"at most {MAX_SIZE}"
            raise document.error((*at, name), f"a size of {bound}", describe(value))


def _check_names(
    document: Document, loc: tuple[str, ...], what: str, known: Sequence[str], found: Sequence[str]
) -> None:
    for name in found:
        if name not in known:
            expected = f"{what} of the definition ({', '.join(known)})"
            raise document.error((*loc, name), expected, repr(name), f"remove or rename it.{did_you_mean(name, known)}")
    for name in known:
        if name not in found:
            raise document.error((*loc, name), f"{what} that the definition has", "none of that name", "add it.")


def check_blobs(document: Document, root: Path, definition: Definition, workload: Workload) -> dict[str, str]:
    """Check that each safetensors input is there, as the definition wants it. Returns input -> digest of its file.

    Raises:
        FileError: a file is missing, is none or lies elsewhere, or its tensor is missing or has another shape or
            element type.
    """
    shapes = definition.input_shapes(workload.axes)
    return {
        name: check_blob(document, root, root / source.path, source, (definition.inputs[name].dtype, shapes[name]), at)
        for name, source in workload.inputs.items()
        if isinstance(source, SafetensorsInput)
        for at in [(*WORKLOAD, "inputs", name)]
    }


def check_blob(
    document: Document,
    root: Path,
    path: Path,
    source: SafetensorsInput,
    wanted: tuple[DType, tuple[int, ...] | None],
    at: Place,
) -> str:
    """Check one: the file ``path``, below ``root``, of the input at ``at``. Returns its digest, raises as above."""
    (dtype, shape), loc, key_loc = wanted, (*at, "path"), (*at, "tensor_key")

    def refuse(loc: Place, expected: str, found: str) -> FileError:
        return document.error(loc, expected, f"{found} ({path})", "restore the file, or correct the workload.")

    if not is_below(root, path):
        found = f"a link to {os.path.realpath(path)}"
        raise document.error(loc, f"a file in {root}", found, "put the file itself there (`cp -rL`).")
    try:
        header = read_header(path)
        if source.tensor_key not in header:
            found = f"{source.tensor_key!r}.{did_you_mean(source.tensor_key, tuple(header))}".removesuffix(".")
            raise refuse(key_loc, f"a tensor of the file: {', '.join(header) or '(none)'}", found)
        entry = header[source.tensor_key]
        if entry.dtype != CODES[dtype]:
            raise refuse(key_loc, f"a tensor of {dtype.value} ({CODES[dtype]})", entry.dtype)
        if entry.shape != shape:
            raise refuse(key_loc, f"a tensor of shape {list(shape or ())}", str(list(entry.shape)))
        expect_size(source.tensor_key, entry, dtype)
        return digest(path)
    except FileNotFoundError:
        raise refuse(loc, "a file of the collection", "no such file") from None
    except OSError as error:
        raise refuse(loc, "a file that can be read", error.strerror or str(error)) from None
    except BlobError as error:
        raise refuse(loc, error.expected, error.found) from None
