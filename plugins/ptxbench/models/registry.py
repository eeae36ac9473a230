"""From the text of ``--model`` to a model, and from an entry to its client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ptxbench.errors import InputError
from ptxbench.models.base import NAME_PATTERN, Model
from ptxbench.models.catalog import Catalog, load_catalog
from ptxbench.models.client import ModelClient
from ptxbench.models.entry import ModelEntry
from ptxbench.models.file import FileModel
from ptxbench.models.reference import ReferenceModel
from ptxbench.models.replay import RecordedRun, ReplayModel
from ptxbench.models.solutions import Solutions, SolutionsModel
from ptxbench.models.spec import FixedSource, parse_spec

__all__ = ["open_client", "open_fixed", "open_model", "open_models", "parse_spec"]


def open_client(entry: ModelEntry, *, run_folder: Path) -> ModelClient:
    """The client that asks the model of ``entry``; ``run_folder`` is where a coding agent gets its working folders.

    Connects to nothing. Raises InputError where something that every call needs is missing: a package, a key, a
    program, a folder.
    """
    match entry.provider:
        case "openai":
            from ptxbench.models.openai_client import OpenAIClient

            return OpenAIClient(entry)
        case "litellm":
            from ptxbench.models.litellm_client import LitellmClient

            return LitellmClient(entry)
        case "command":
            from ptxbench.models.command_client import CommandClient

            return CommandClient(entry, run_folder / "agents")
        case "exchange":
            from ptxbench.models.exchange_client import ExchangeClient

            return ExchangeClient(entry)


def open_fixed(
    source: FixedSource, *, root: Path, open_run: Callable[[str], RecordedRun], solutions: Solutions | None = None
) -> Model:
    """The model of sources that exist already. ``root`` is the checkout, ``open_run`` finds a run by name or path.

    ``solutions`` reads those of the session's collections; None: it has none. Raises InputError for a source that
    cannot be read.
    """
    match source.form:
        case "reference":
            return ReferenceModel(root)
        case "file":
            return FileModel(Path(source.argument).expanduser())
        case "replay":
            run, _, recorded_model = source.argument.partition("::")
            return ReplayModel(open_run(run), recorded_model or None)
        case "solutions":
            if solutions is None:
                raise InputError(
                    "--model solutions: expected a collection whose solutions it proposes, found none; "
                    "name one with --trace-set PATH"
                )
            return SolutionsModel(solutions)


def open_model(
    spec: str,
    *,
    root: Path,
    open_run: Callable[[str], RecordedRun],
    catalog: Catalog | None = None,
    converse: Callable[[ModelEntry], Model] | None = None,
    solutions: Solutions | None = None,
) -> Model:
    """The model that ``spec`` names. ``converse`` makes one that asks a language model; None: such are refused.

    Raises InputError for an unknown form, or a source that cannot be read.
    """
    found = parse_spec(spec, catalog or load_catalog())
    if isinstance(found, FixedSource):
        return open_fixed(found, root=root, open_run=open_run, solutions=solutions)
    if converse is None:
        raise InputError(
            f"--model {found.name}: expected reference, file:PATH or replay:RUN here; found a language model"
        )
    return converse(found)


def open_models(
    specs: Sequence[str],
    *,
    root: Path,
    open_run: Callable[[str], RecordedRun],
    catalog: Catalog | None = None,
    converse: Callable[[ModelEntry], Model] | None = None,
    solutions: Solutions | None = None,
) -> tuple[Model, ...]:
    """All models of a run, in order. Raises InputError if two would share a name, or a name cannot be one."""
    models: dict[str, Model] = {}
    for spec in specs:
        model = open_model(spec, root=root, open_run=open_run, catalog=catalog, converse=converse, solutions=solutions)
        if not NAME_PATTERN.fullmatch(model.name):
            raise InputError(f"--model {spec}: its name {model.name!r} does not match {NAME_PATTERN.pattern}")
        if model.name in models:
            raise InputError(
                f"--model {spec}: two models of this run would both be called {model.name!r}; "
                "give each once, and files under different names"
            )
        models[model.name] = model
    return tuple(models.values())
