"""Whether a workload of a collection fits its definition, and its files are there: errors that name file and field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxbench.trace.definition import Definition
from ptxbench.trace.document import Document
from ptxbench.trace.faults import FileError, did_you_mean
from ptxbench.trace.safetensors_file import CODES, BlobError, digest, expect_size, read_header
from ptxbench.trace.workload import SafetensorsInput, ScalarInput, Workload

AXES, INPUTS = ("workload", "axes"), ("workload", "inputs")
"""Where they are in a line of a workload file."""


def check_fit(document: Document, definition: Definition, workload: Workload) -> None:
    """Check axes and inputs against the definition; no file but the document is looked at.

    Raises:
        FileError: an axis is missing, unknown, below 1 or not the definition's constant; an input is missing or
            unknown, or a tensor is given as a scalar.
    """
    _check_axes(document, definition, workload.axes)
    _check_names(document, INPUTS, "an input", tuple(definition.inputs), tuple(workload.inputs))
    for name, tensor in definition.inputs.items():
        source = workload.inputs[name]
        if tensor.shape is not None and isinstance(source, ScalarInput):
            raise document.error((*INPUTS, name, "type"), "random or safetensors, as for any tensor", "'scalar'")
        if tensor.shape is None and isinstance(source, SafetensorsInput):
            raise document.error((*INPUTS, name, "type"), "scalar, as for an input without a shape", "'safetensors'")


def _check_axes(document: Document, definition: Definition, axes: Mapping[str, int]) -> None:
    constants = definition.const_axes
    named = tuple(name for name in axes if name not in constants)
    _check_names(document, AXES, "a var axis", definition.var_axes, named)
    for name, value in axes.items():
        if constants.get(name, value) != value:
            raise document.error((*AXES, name), f"{constants[name]}, the definition's constant", str(value))
        if value < 1:
            raise document.error((*AXES, name), "a size of at least 1", str(value))


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
        FileError: a file is missing or is none, or its tensor is missing or has another shape or element type.
    """
    shapes = definition.input_shapes(workload.axes)
    found: dict[str, str] = {}
    for name, source in workload.inputs.items():
        if isinstance(source, SafetensorsInput):
            found[name] = _blob(document, root, definition, name, source, shapes[name])
    return found


def _blob(
    document: Document,
    root: Path,
    definition: Definition,
    name: str,
    source: SafetensorsInput,
    shape: tuple[int, ...] | None,
) -> str:
    path, dtype = root / source.path, definition.inputs[name].dtype
    loc, key_loc = (*INPUTS, name, "path"), (*INPUTS, name, "tensor_key")

    def refuse(loc: tuple[str, ...], expected: str, found: str) -> FileError:
        return document.error(loc, expected, f"{found} ({path})", "restore the file, or correct the workload.")

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
