"""An output of another shape or element type than the definition's."""

from __future__ import annotations

from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.wording import safe


def describe(turn: Turn) -> Parts:
    """Expected and found shape and type of each output that differs."""
    shapes = turn.case.output_shapes()
    facts: dict[str, None] = {}
    for trial in turn.evidence.run.trials:
        for call in trial.checks:
            for output in call.outputs:
                if output.name not in shapes:
                    continue
                dtype = turn.case.definition.outputs[output.name].dtype.value
                if (output.shape, output.dtype) != (shapes[output.name], dtype):
                    facts[
                        f"{output.name}: expected shape {shapes[output.name]} and type {dtype}, "
                        f"found {output.shape} and {safe(output.dtype, 40)}"
                    ] = None
    return Parts(
        "An output has the wrong shape or element type.",
        tuple(facts),
        ("Outputs are passed in and written in place: neither replace nor reshape them.",),
    )
