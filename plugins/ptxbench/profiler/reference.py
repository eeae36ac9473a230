"""The Python source of a definition, loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxbench.errors import InfrastructureError

if TYPE_CHECKING:
    from ptxbench.cases.case import Case


def compile_reference(case: Case, function: str = "run") -> Callable[..., Any]:
    """A function of the definition's source, the reference itself unless another is named.

    Raises InfrastructureError("reference_failed") where the source does not load or has no such function.
    """
    namespace: dict[str, Any] = {}
    try:
        exec(compile(case.definition.reference, f"<reference of {case.name}>", "exec"), namespace)
        found: Callable[..., Any] = namespace[function]
    except Exception as error:
        what = "the reference" if function == "run" else function
        raise InfrastructureError(
            "reference_failed",
            f"{what} of definition {case.name} does not load: {type(error).__name__}: {error}; mend the definition",
        ) from error
    return found
