"""Inputs of a collection's workload that are no normal draws: from files, from a function of its own, or integers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.cases.collection_case import CollectionCase
from ptxbench.cases.integers import integer_range
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.device_code import supported
from ptxbench.profiler.device_memory import ran_out
from ptxbench.profiler.reference import compile_reference
from ptxbench.trace.safetensors_file import BlobError, digest, read_data
from ptxbench.trace.workload import SafetensorsInput

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case


def given_names(case: Case) -> tuple[str, ...]:
    """Names of the inputs, in definition order; none for a case that is of no collection, or has a recipe for them."""
    if not isinstance(case, CollectionCase) or case.input_recipe != "normal":
        return ()
    dtypes, made = case.dtypes(), case.made.inputs if case.made is not None else ()
    return tuple(
        name
        for name, shape in case.input_shapes().items()
        if shape is not None
        and (name in made or isinstance(case.workload.inputs[name], SafetensorsInput) or not supported(dtypes[name]))
    )


class GivenInputs:
    """The tensors. What files hold is the same in every call; what a function makes, and integers, are new in each."""

    def __init__(self, case: Case, device: str = "cuda") -> None:
        """Read the files. Raises InfrastructureError("reference_failed") for one that is not as it was collected."""
        self.names = given_names(case)
        self._device = device
        self._read: dict[str, torch.Tensor] = {}
        self._drawn: dict[str, tuple[tuple[int, ...], str]] = {}
        shapes, dtypes = case.input_shapes(), case.dtypes()
        self._make = _Maker(case, device) if isinstance(case, CollectionCase) and case.made is not None else None
        for name in self.names:
            if self._make is not None and name in self._make.names:
                continue
            shape = shapes[name]
            assert shape is not None
            if isinstance(source := case.workload.inputs[name], SafetensorsInput):
                assert isinstance(case, CollectionCase)
                self._read[name] = _read(case, name, source, shape, dtypes[name]).to(device)
            else:
                self._drawn[name] = (shape, dtypes[name])

    def tensors(self) -> dict[str, torch.Tensor]:
        """All of them by name. Those from files are never to be written to: they are kept."""
        made = self._make() if self._make is not None else {}
        drawn = {name: _integers(*what, self._device) for name, what in self._drawn.items()}
        return {name: (self._read | drawn | made)[name] for name in self.names}


class _Maker:
    """Calls the function that makes inputs."""

    def __init__(self, case: CollectionCase, device: str) -> None:
        """Raises InfrastructureError("reference_failed") where the source has no such function."""
        assert case.made is not None
        self.names = case.made.inputs
        self._case = case
        self._device = device
        self._arguments = dict(case.made.arguments)
        self._function = compile_reference(case, case.made.function)

    def __call__(self) -> dict[str, torch.Tensor]:
        """New inputs. Raises InfrastructureError("reference_failed") for such as the definition does not want."""
        import torch

        try:
            made = self._function(dict(self._arguments), torch.device(self._device))
            found = {name: made[name].to(self._device).contiguous() for name in self.names}
        except Exception as error:
            if ran_out(error):
                raise
            raise self._failed("its inputs cannot be made", error) from error
        shapes, dtypes = self._case.input_shapes(), self._case.dtypes()
        for name, tensor in found.items():
            wanted, is_ = (shapes[name], f"torch.{dtypes[name]}"), (tuple(tensor.shape), str(tensor.dtype))
            if wanted != is_:
                raise self._failed(f"input {name}", ValueError(f"expected {wanted}, found {is_}"))
        return found

    def _failed(self, what: str, error: Exception) -> InfrastructureError:
        said = f"{type(error).__name__}: {error}"
        return InfrastructureError("reference_failed", f"{self._case.name}: {what}: {said}; mend the collection")


def _read(
    case: CollectionCase, name: str, source: SafetensorsInput, shape: tuple[int, ...], dtype: str
) -> torch.Tensor:
    import torch

    path = Path(case.collection_root) / source.path
    try:
        if digest(path) != case.blobs[name]:
            raise BlobError("the file that was there when the case was collected", "another")
        data = read_data(path, source.tensor_key)
    except (OSError, BlobError) as error:
        raise InfrastructureError(
            "reference_failed", f"{case.name}: input {name} of {path}: {error}; restore the file and run again"
        ) from error
    if not data:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(data, dtype=torch.uint8).view(getattr(torch, dtype)).view(shape)


def _integers(shape: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    import torch

    least, most = integer_range(dtype)
    return torch.randint(least, most + 1, shape, dtype=getattr(torch, dtype), device=device)
