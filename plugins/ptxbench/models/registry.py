"""From the text of ``--model`` to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN, Model
from ptxbench.models.file import FileModel
from ptxbench.models.reference import ReferenceModel
from ptxbench.models.replay import RecordedRun, ReplayModel

KNOWN_FORMS = (
    "reference (the hand-written solutions)",
    "file:PATH (one .cu file)",
    "replay:RUN (the sources of an earlier run; replay:RUN::MODEL if it holds several models)",
)


def open_model(spec: str, *, root: Path, open_run: Callable[[str], RecordedRun]) -> Model:
    """The model that ``spec`` names. ``root`` is the checkout, ``open_run`` finds a run by name or path.

    Raises InputError for an unknown form or a source that cannot be read.
    """
    form, _, argument = spec.partition(":")
    if spec == "reference":
        return ReferenceModel(root)
    if form == "file" and argument:
        return FileModel(Path(argument).expanduser())
    if form == "replay" and argument:
        run, _, recorded_model = argument.partition("::")
        return ReplayModel(open_run(run), recorded_model or None)
    raise InputError(f"--model {spec}: unknown model; expected one of: {'; '.join(KNOWN_FORMS)}")


def open_models(specs: Sequence[str], *, root: Path, open_run: Callable[[str], RecordedRun]) -> tuple[Model, ...]:
    """All models of a run, in order. Raises InputError if two would share a name, or a name cannot be one."""
    models: dict[str, Model] = {}
    for spec in specs:
        model = open_model(spec, root=root, open_run=open_run)
        if not NAME_PATTERN.fullmatch(model.name):
            raise InputError(f"--model {spec}: its name {model.name!r} does not match {NAME_PATTERN.pattern}")
        if model.name in models:
            raise InputError(
                f"--model {spec}: two models of this run would both be called {model.name!r}; "
                "give each once, and files under different names"
            )
        models[model.name] = model
    return tuple(models.values())
