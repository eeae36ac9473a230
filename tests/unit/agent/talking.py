"""A language model without a network: a client that answers from a script, within a real engine and run folder."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ptxbench.agent import Skipped
from ptxbench.agent.budget import Budget
from ptxbench.agent.conversation import Connection, ConversingModel
from ptxbench.agent.meter import Meter
from ptxbench.cases import Case
from ptxbench.errors import InfrastructureError
from ptxbench.models.client import Request
from ptxbench.models.entry import ModelEntry, Prices
from ptxbench.packs import Pack, load_pack
from ptxbench.records import Reply, TurnKey, TurnRecord, Usage
from tests.unit.agent.parts import Bench, ScriptedModel
from tests.unit.factories import ROOT, suite_case

KERNEL = """\
#include <tvm/ffi/tvm_ffi.h>
__global__ void small(float* out) {{ out[0] = {number}; }}
static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {{
  small<<<1, 1>>>(static_cast<float*>(C.data_ptr()));
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
ENTRY = ModelEntry(
    name="talker",
    provider="openai",
    model="t-1",
    api_base="http://127.0.0.1:1/v1",
    prices=Prices(input=1.0, output=4.0),
)


def kernel(number: int) -> str:
    """A source of its own."""
    return KERNEL.format(number=number)


def reply(text: str, **changes: Any) -> Reply:
    """An answer of 1,000 + 100 tokens, which cost 0.0014 dollars."""
    values: dict[str, Any] = {
        "ended": "stop",
        "finish_reason": "stop",
        "usage": Usage(input_tokens=1000, output_tokens=100),
        "cost_usd": 0.0014,
        "cost_source": "models_file",
        "latency_s": 0.5,
        "model": "t-1-0611",
    }
    return Reply(text=text, **{**values, **changes})


def with_kernel(number: int, **changes: Any) -> Reply:
    """An answer that holds a kernel."""
    return reply(f"Try this.\n```cuda\n{kernel(number)}```\n", **changes)


class Client:
    """Plays its script by turn: a reply, an error to raise, or a function of the request."""

    def __init__(self, script: Sequence[Reply | Exception | Callable[[Request], Reply]]) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.temperature: float | None = None
        self.closed = False
        self._lock = threading.Lock()

    def settings(self) -> Mapping[str, JsonValue]:
        return {"provider": "openai", "model": "t-1", "temperature": self.temperature}

    def complete(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
        step = self.script[sum(message.role == "assistant" for message in request.messages)]
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, Reply) else step(request)

    def close(self) -> None:
        self.closed = True


class Talk(Bench):
    """An engine whose model converses with ``client``."""

    def __init__(self, folder: Path, client: Client, turns: int = 3, entry: ModelEntry = ENTRY) -> None:
        super().__init__(folder, ScriptedModel([]))
        self.client = client
        self.turns = turns
        self.budget = Budget()
        self.meter = Meter()
        self.stop = threading.Event()
        self.conversing = ConversingModel(entry, turns, self.pack, self.connect)
        self.model = self.conversing  # type: ignore[assignment]

    def pack(self, case: Case) -> Pack:
        return load_pack(ROOT, case.arch.name, "params")

    def connect(self) -> Connection:
        return Connection(self.client, self.store, self.budget, self.meter, self.stop.is_set, self.no_toolchain)

    @contextmanager
    def no_toolchain(self) -> Any:
        yield None

    def key(self, turn: int, trajectory: int = 0) -> TurnKey:
        return self.plan(self.turns, trajectory).key(turn)

    def results(self, trajectories: int = 1, concurrency: int = 1) -> list[TurnRecord | Skipped | str]:
        """Every turn; a fault as its kind."""
        plans = [self.plan(self.turns, trajectory) for trajectory in range(trajectories)]
        engine = self.engine(*plans, concurrency=concurrency)
        found: list[TurnRecord | Skipped | str] = []
        for plan in plans:
            for turn in range(self.turns):
                try:
                    found.append(engine.turn(plan.key(turn)))
                except InfrastructureError as error:
                    found.append(error.kind)
        engine.close()
        return found

    def records(self) -> list[TurnRecord]:
        """A trajectory all of whose turns have one."""
        found = self.results()
        assert all(isinstance(result, TurnRecord) for result in found), found
        return found  # type: ignore[return-value]


def case() -> Case:
    """The case of every talk."""
    return suite_case()
