"""Inputs that never repeat.

A *draw* is one random key per drawn input tensor. The tensor is a function of its key, written by a kernel at memory
speed: every timed call of a candidate reads other data at the same addresses, in every element, and whether it left
them alone is found by making them once more.

Of the index inputs, page numbers are drawn like data: other pages in every call. The offsets of sequences are those of
the case's structure, the same in every call of a family, since libraries plan for them outside of what is timed;
another family has others.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.arena import TensorSpec
from ptxbench.profiler.comparison import changed_bits
from ptxbench.profiler.device_code import POINTER, WORD, Launch, function, supported
from ptxbench.profiler.families import generator, page_numbers, transform
from ptxbench.profiler.given_inputs import GivenInputs, given_names
from ptxbench.records import OFFICIAL_FAMILY

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

    Tensors = Mapping[str, torch.Tensor]

SOURCE = "normal_kernel.cu"
GRID = 1056
"""Blocks of every launch: an element depends on the thread that makes it. Eight for each of an H100's processors."""
KEY_BITS = 64


class Recipe(NamedTuple):
    """What is not simply standard normal among a recipe's inputs."""

    derived: tuple[str, ...] = ()
    """Computed from the drawn ones."""
    offsets: tuple[str, ...] = ()
    """Offsets of sequences, named as ``Structure``'s are."""
    pages: tuple[tuple[str, str], ...] = ()
    """Page numbers, and the cache whose pages they number."""


RECIPES: dict[str, Recipe] = {
    "normal": Recipe(),
    "attention_backward": Recipe(derived=("O", "L")),
    "gqa_ragged_prefill": Recipe(offsets=("qo_indptr", "kv_indptr")),
    "gqa_paged_prefill": Recipe(offsets=("qo_indptr", "kv_indptr"), pages=(("kv_indices", "k_cache"),)),
    "gqa_paged_decode": Recipe(offsets=("kv_indptr",), pages=(("kv_indices", "k_cache"),)),
}


class Draw(NamedTuple):
    """One choice of inputs: a key per drawn input, in definition order, and the family of all."""

    keys: tuple[int, ...]
    family: str = OFFICIAL_FAMILY


def specs_of(case: Case) -> tuple[TensorSpec, ...]:
    """All tensor arguments in call order: inputs, then outputs. Inputs of ``shape: null`` are scalars, not tensors."""
    dtypes = case.dtypes()
    inputs = [TensorSpec(n, s, dtypes[n], False) for n, s in case.input_shapes().items() if s is not None]
    outputs = [TensorSpec(n, s, dtypes[n], True) for n, s in case.output_shapes().items()]
    return (*inputs, *outputs)


class NormalTensor:
    """Writes a tensor of standard normal elements, a function of a key and the element type, and checks it.

    The tensor is contiguous and on the device. Both methods are asynchronous.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        name = str(tensor.dtype).removeprefix("torch.")
        self._tensor = tensor  # its memory must stay
        self._changed = torch.zeros(1, dtype=torch.int32, device=tensor.device)
        what = (tensor.data_ptr(), tensor.numel(), 0)
        self._fill = Launch(function(SOURCE, name, "fill"), GRID, what, (POINTER, WORD, WORD))
        checked = (*what, self._changed.data_ptr())
        self._verify = Launch(function(SOURCE, name, "verify"), GRID, checked, (POINTER, WORD, WORD, POINTER))

    def fill(self, key: int) -> None:
        """Write every element."""
        self._fill.arguments[2].value = key
        self._fill()

    def changed(self, key: int) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes: bool."""
        self._changed.zero_()
        self._verify.arguments[2].value = key
        self._verify()
        return self._changed[0] != 0


class HostNormalTensor:
    """The same on the CPU, from torch's generator: other elements, of the same kind. For small workloads and tests."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def fill(self, key: int) -> None:
        """Write every element."""
        self._tensor.copy_(self._made(key))

    def changed(self, key: int) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes: bool."""
        return changed_bits(self._tensor, self._made(key))

    def _made(self, key: int) -> torch.Tensor:
        import torch

        shape = self._tensor.shape
        return torch.randn(shape, generator=generator(self._tensor, key)).to(self._tensor.dtype)


class Input(Protocol):
    """One tensor of a draw."""

    def fill(self, key: int, family: str) -> None:
        """Write every element; asynchronous."""

    def changed(self, key: int, family: str) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes: bool; asynchronous."""


class DataInput:
    """Floating-point data: standard normal, or made of that by a family."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self._name = name
        self._tensor = tensor
        self._normal = _normal(tensor)

    def fill(self, key: int, family: str) -> None:
        """Write every element."""
        self._normal.fill(key)
        transform(family, self._name, self._tensor, key)

    def changed(self, key: int, family: str) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes."""
        if family == OFFICIAL_FAMILY:
            return self._normal.changed(key)
        import torch

        again = torch.empty_like(self._tensor)
        _normal(again).fill(key)
        transform(family, self._name, again, key)
        return changed_bits(self._tensor, again)


class PageInput:
    """Page numbers of a cache."""

    def __init__(self, tensor: torch.Tensor, pages: int) -> None:
        self._tensor = tensor
        self._pages = pages

    def fill(self, key: int, family: str) -> None:
        """Write every element."""
        self._tensor.copy_(page_numbers(family, self._tensor, self._pages, key))

    def changed(self, key: int, family: str) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes."""
        return changed_bits(self._tensor, page_numbers(family, self._tensor, self._pages, key))


class OffsetInput:
    """Offsets of sequences: a function of the family alone."""

    def __init__(self, tensor: torch.Tensor, official: tuple[int, ...], adversarial: tuple[int, ...]) -> None:
        self._tensor = tensor
        self._official = tensor.new_tensor(official)
        self._adversarial = tensor.new_tensor(adversarial)

    def fill(self, key: int, family: str) -> None:
        """Write every element."""
        self._tensor.copy_(self._offsets(family))

    def changed(self, key: int, family: str) -> torch.Tensor:
        """Whether any bit is not what ``fill`` writes."""
        return changed_bits(self._tensor, self._offsets(family))

    def _offsets(self, family: str) -> torch.Tensor:
        return self._adversarial if family == "structure" else self._official


def _normal(tensor: torch.Tensor) -> NormalTensor | HostNormalTensor:
    return NormalTensor(tensor) if tensor.is_cuda else HostNormalTensor(tensor)


class BoundInputs:
    """The inputs of a draw, bound to tensors."""

    def __init__(self, inputs: tuple[Input, ...], offsets: tuple[OffsetInput, ...]) -> None:
        self._inputs = inputs
        self._offsets = offsets

    def fill(self, draw: Draw) -> None:
        """Write every input that is not derived; asynchronous."""
        for each, key in zip(self._inputs, draw.keys, strict=True):
            each.fill(key, draw.family)
        for offsets in self._offsets:
            offsets.fill(0, draw.family)

    def changed(self, draw: Draw) -> list[torch.Tensor]:
        """For each of them, whether any bit is not what ``fill`` writes: bools; asynchronous."""
        found = [each.changed(key, draw.family) for each, key in zip(self._inputs, draw.keys, strict=True)]
        return found + [offsets.changed(0, draw.family) for offsets in self._offsets]


class InputSource:
    """The draws of one case."""

    def __init__(self, case: Case) -> None:
        """Raises InfrastructureError("reference_failed") for an input of a type that cannot be drawn."""
        self._case = case
        self._recipe = RECIPES[case.input_recipe]
        self._pages = dict(self._recipe.pages)
        self._given_names = given_names(case)
        self._given: GivenInputs | None = None
        made_otherwise = (*self.derived, *self._recipe.offsets)
        self._specs = [spec for spec in specs_of(case) if not spec.output and spec.name not in made_otherwise]
        for spec in self._specs:
            if spec.name not in self._pages and not supported(spec.dtype):
                raise InfrastructureError(
                    "reference_failed",
                    f"{case.name}: expected inputs of floating-point types, which can be drawn, found {spec.name} of "
                    f"{spec.dtype}; give the suite's entry a recipe that makes it",
                )
        self._secret = secrets.SystemRandom()
        self._bag: list[Draw] = []
        self._left: list[Draw] = []

    @property
    def derived(self) -> tuple[str, ...]:
        """Names of the inputs that are not made from keys: given by a collection, or computed from the others."""
        return (*self._given_names, *self._recipe.derived)

    def keep(self, family: str = OFFICIAL_FAMILY) -> Draw:
        """A draw that ``draw()`` will never give: it is for checked calls."""
        return Draw(tuple(secrets.randbits(KEY_BITS) for _ in self._specs), family)

    def draw(self) -> Draw:
        """A draw of the official family that was not given since ``forget()``."""
        if not self._left:
            self._bag.append(self.keep())
            return self._bag[-1]
        return self._left.pop()

    def forget(self) -> None:
        """A new sandbox has seen nothing: the same draws again, in another order.

        Checked draws are the same for every candidate, so the others are too: that a candidate met some inputs in an
        earlier life does not tell it which calls are checked (but see docs/limitations.md).
        """
        self._left = self._secret.sample(self._bag, len(self._bag))

    def bind(self, tensors: Tensors) -> BoundInputs:
        """The inputs of a draw, over their tensors."""
        return BoundInputs(
            tuple(self._bind(spec.name, tensors) for spec in self._specs),
            tuple(self._bind_offsets(name, tensors[name]) for name in self._recipe.offsets),
        )

    def _bind(self, name: str, tensors: Tensors) -> Input:
        if name in self._pages:
            return PageInput(tensors[name], tensors[self._pages[name]].shape[0])
        return DataInput(name, tensors[name])

    def _bind_offsets(self, name: str, tensor: torch.Tensor) -> OffsetInput:
        official, adversarial = self._case.structure("official"), self._case.structure("adversarial")
        return OffsetInput(tensor, getattr(official, name), getattr(adversarial, name))

    def derive(self, tensors: Tensors, device: str = "cuda") -> dict[str, torch.Tensor]:
        """The inputs that are not made from keys; those computed from the others are in new tensors."""
        if self._given_names and self._given is None:
            self._given = GivenInputs(self._case, device)
        return (self._given.tensors() if self._given else {}) | self._compute(tensors)

    def _compute(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        if not self._recipe.derived:
            return {}
        # PROTOCOL 2: O and L come from a real forward pass.
        q, k, v = tensors["Q"], tensors["K"], tensors["V"]
        if not q.is_cuda:
            from ptxbench.profiler.exact import attention

            output, lse = attention(q, k, v, causal=self._case.causal)
            return {"O": output.to(q.dtype), "L": lse.float()}
        from ptxbench.profiler.baselines import attention_forward

        output, lse, _ = attention_forward(q, k, v, causal=self._case.causal)
        return {"O": output.contiguous(), "L": lse.squeeze(-1).contiguous()}

    def make(self, draw: Draw, device: str = "cuda") -> dict[str, torch.Tensor]:
        """All inputs of a draw in new tensors, by name."""
        import torch

        made = {
            spec.name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
            for spec in specs_of(self._case)
            if not spec.output and spec.name not in self.derived
        }
        self.bind(made).fill(draw)
        return made | self.derive(made, device)
