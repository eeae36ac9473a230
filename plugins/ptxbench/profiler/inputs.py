"""Inputs that never repeat.

A *draw* is one random key per drawn input tensor. The tensor is a function of its key, written by a kernel at memory
speed: every timed call of a candidate reads other data at the same addresses, in every element, and whether it left
them alone is found by making them once more.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.arena import TensorSpec
from ptxbench.profiler.device_code import POINTER, WORD, Launch, function, supported

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

    Tensors = Mapping[str, torch.Tensor]

SOURCE = "normal_kernel.cu"
GRID = 1056
"""Blocks of every launch: an element depends on the thread that makes it. Eight for each of an H100's processors."""
KEY_BITS = 64

DERIVED: dict[str, tuple[str, ...]] = {"normal": (), "attention_backward": ("O", "L")}
"""Inputs that a recipe computes from the drawn ones instead of drawing them."""


class Draw(NamedTuple):
    """One choice of inputs: a key per drawn input, in definition order."""

    keys: tuple[int, ...]


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


class InputSource:
    """The draws of one case."""

    def __init__(self, case: Case) -> None:
        """Raises InfrastructureError("reference_failed") for an input of a type that cannot be drawn."""
        self._recipe = case.input_recipe
        self._causal = case.causal
        self._specs = [spec for spec in specs_of(case) if not spec.output and spec.name not in self.derived]
        for spec in self._specs:
            if not supported(spec.dtype):
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
        """Names of the inputs that are computed from the drawn ones."""
        return DERIVED[self._recipe]

    def keep(self) -> Draw:
        """A draw that ``draw()`` will never give: it is for checked calls."""
        return Draw(tuple(secrets.randbits(KEY_BITS) for _ in self._specs))

    def draw(self) -> Draw:
        """A draw that was not given since ``forget()``."""
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

    def bind(self, tensors: Tensors) -> list[NormalTensor]:
        """The drawn inputs' tensors in the order of a draw's keys."""
        return [NormalTensor(tensors[spec.name]) for spec in self._specs]

    def derive(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """The inputs that are computed from the drawn ones, in new tensors."""
        if self._recipe != "attention_backward":
            return {}
        # PROTOCOL 2: O and L come from a real forward pass.
        from ptxbench.profiler.baselines import attention_forward

        output, lse, _ = attention_forward(tensors["Q"], tensors["K"], tensors["V"], causal=self._causal)
        return {"O": output.contiguous(), "L": lse.squeeze(-1).contiguous()}

    def make(self, draw: Draw) -> dict[str, torch.Tensor]:
        """All inputs of a draw in new tensors, by name."""
        import torch

        made = {
            spec.name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda") for spec in self._specs
        }
        for tensor, key in zip(self.bind(made), draw.keys, strict=True):
            tensor.fill(key)
        return made | self.derive(made)
