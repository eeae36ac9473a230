"""Command line options. They exist only where pytest is started on a PTXBench checkout.

An installed plugin adds its options to every pytest of the environment, and names as plain as ``--model`` would
collide with other projects' own.
"""

from __future__ import annotations

import argparse
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ptxbench.arguments import count, positive, profiler
from ptxbench.errors import InputError
from ptxbench.plugin.report_path import check_report_path

DEFAULT_TURNS = 8
"""PROTOCOL 1."""

DEFAULT_SUITE = "primary"

MODELS_VARIABLE = "PTXBENCH_MODELS"
"""Environment variable that names a models file where ``--models-file`` does not."""

MOST = 1000
"""Turns of a trajectory, and trajectories. Every turn is an item: a slip of the finger would fill the memory."""


@dataclass(frozen=True)
class Options:
    """What the user asked for; None where an option was not given."""

    models: tuple[str, ...]
    suite: str
    case: str | None
    turns: int | None
    trajectories: int
    variants: str
    profiler: str
    run: str | None
    ptx_json: Path | None
    min_speedup: float | None
    concurrency: int
    safety: Literal["off", "memcheck", "full"] = "memcheck"
    knowledge: Literal["params", "templates", "full"] = "full"
    guidance: bool = False
    """Whether prompts hold the packs' expert guidance."""
    retrieval: Literal["notes", "notes+kernel"] | None = None
    retrieval_from: tuple[Path, ...] = ()
    """Files or folders of repairs with notes, absolute."""
    models_file: Path | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    dry_run: bool = False
    trace_sets: tuple[Path, ...] = ()
    """Folders of collections, absolute; where there are any, their cases take the place of the suite's."""
    mark_expression: str = ""
    """What ``-m`` says."""
    gates: tuple[str, ...] = ()
    baseline: Path | None = None
    """A JSON report, absolute."""
    max_regression: str | None = None
    """Share of its old value by which a metric may fall, as it was written."""

    def turns_given(self, natural: int | None) -> int:
        """Turns of each trajectory of a model that has ``natural`` ones; None: the protocol alone limits them."""
        return self.turns or min(DEFAULT_TURNS, natural or DEFAULT_TURNS)


def add_options(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("ptxbench", "PTXBench")
    _add_selection(group)
    _add_extent(group)
    _add_running(group)
    _add_conversing(group)
    _add_spending(group)
    _add_gates(group)


def _add_selection(group: pytest.OptionGroup) -> None:
    """Whose kernels, for which cases."""
    group.addoption(
        "--model",
        dest="ptx_models",
        action="append",
        metavar="MODEL",
        help="who writes the kernels: reference (default), file:PATH, replay:RUN, solutions (of the --trace-set), "
        "the name of a language model (claude, gpt, ...), litellm:PROVIDER/MODEL, openai:MODEL@URL, command:PROGRAM, "
        "exchange:FOLDER; repeatable",
    )
    group.addoption("--suite", dest="ptx_suite", metavar="NAME", help=f"suite (default: {DEFAULT_SUITE})")
    group.addoption(
        "--trace-set",
        dest="ptx_trace_sets",
        action="append",
        type=Path,
        metavar="PATH",
        help="run the workloads of a FlashInfer-Trace collection instead of a suite's, on the architecture that -m "
        "names; repeatable",
    )
    group.addoption("--case", dest="ptx_case", metavar="GLOB", help="only cases whose name matches the pattern")


def _add_extent(group: pytest.OptionGroup) -> None:
    """How many turns there are of each case."""
    group.addoption(
        "--turns",
        dest="ptx_turns",
        type=_bounded_count,
        metavar="N",
        help=f"turns of a trajectory (default: {DEFAULT_TURNS}, or as many as the model has by nature)",
    )
    group.addoption(
        "--trajectories",
        dest="ptx_trajectories",
        type=_bounded_count,
        default=1,
        metavar="N",
        help="trajectories per prompt variant (default: 1)",
    )
    group.addoption(
        "--variants",
        dest="ptx_variants",
        default="1",
        metavar="N|all|NAME,...",
        help="prompt variants: the first N, all, or by name (default: 1)",
    )


def _add_running(group: pytest.OptionGroup) -> None:
    """How they are run, judged and kept."""
    group.addoption(
        "--profiler",
        dest="ptx_profiler",
        type=profiler,
        default="auto",
        metavar="NAME|URL",
        help="measure on this machine's GPUs (local: all of CUDA_VISIBLE_DEVICES, under -n one for each worker), by a "
        "service (http://HOST:PORT, docs/serve.md), on a Ray cluster (ray, ray://HOST:PORT, docs/scale.md), judge "
        "stored evidence (replay), or local where it can (auto, the default)",
    )
    group.addoption(
        "--run",
        dest="ptx_run",
        metavar="NAME|PATH",
        help="run folder: generated/NAME or a path; an existing one is resumed (default: a fresh one)",
    )
    group.addoption("--ptx-json", dest="ptx_json", type=Path, metavar="FILE", help="write the report as JSON")
    group.addoption(
        "--min-speedup",
        dest="ptx_min_speedup",
        type=positive,
        metavar="P",
        help="what test_speedup must see exceeded (default: the model's own floor for the case, else 1.0)",
    )
    group.addoption(
        "--concurrency",
        dest="ptx_concurrency",
        type=count,
        default=4,
        metavar="N",
        help="trajectories in progress at once, per worker (default: 4)",
    )

    group.addoption(
        "--safety",
        dest="ptx_safety",
        choices=("off", "memcheck", "full"),
        default="memcheck",
        help="which tools of compute-sanitizer look at each measured kernel: none, memcheck (default), or full: also "
        "initcheck, synccheck and racecheck on shrunk axes (docs/safety.md)",
    )


def _add_conversing(group: pytest.OptionGroup) -> None:
    """Which language models, and what they are told."""
    group.addoption(
        "--knowledge",
        dest="ptx_knowledge",
        choices=("params", "templates", "full"),
        default="full",
        help="how much of the knowledge pack a prompt holds (default: full)",
    )
    group.addoption(
        "--expert-guidance",
        dest="ptx_guidance",
        action="store_true",
        help="add the knowledge pack's expert guidance to prompts",
    )
    group.addoption(
        "--retrieval",
        dest="ptx_retrieval",
        choices=("notes", "notes+kernel"),
        help="add to the feedback on a failed kernel what was noted about failures like it, alone or with the repaired "
        "kernels (docs/adaptation.md)",
    )
    group.addoption(
        "--retrieval-from",
        dest="ptx_retrieval_from",
        action="append",
        type=Path,
        metavar="PATH",
        help="where --retrieval finds repairs with notes: a rationales.jsonl or a folder that holds one; repeatable",
    )
    group.addoption(
        "--models-file",
        dest="ptx_models_file",
        type=Path,
        metavar="FILE",
        help=f"YAML file with models of your own (default: the environment variable {MODELS_VARIABLE}, else none)",
    )


def _add_spending(group: pytest.OptionGroup) -> None:
    """What language models may cost."""
    group.addoption(
        "--budget-usd",
        dest="ptx_budget_usd",
        type=positive,
        metavar="USD",
        help="issue no further model call when the run, with all its sessions, has cost this much",
    )
    group.addoption(
        "--budget-tokens",
        dest="ptx_budget_tokens",
        type=count,
        metavar="N",
        help="issue no further model call when the run, with all its sessions, has taken this many tokens",
    )
    group.addoption(
        "--dry-run",
        dest="ptx_dry_run",
        action="store_true",
        help="say what would run and about what it would cost, then stop; needs no key, GPU or compiler",
    )


def _add_gates(group: pytest.OptionGroup) -> None:
    """What decides the exit status."""
    group.addoption(
        "--gate",
        dest="ptx_gates",
        action="append",
        metavar="EXPR",
        help='let a condition on the results decide the exit status, for example "fast_p(0.8).inst >= 50%%"; '
        "repeatable (docs/ci.md): 0 all met, 1 not, 70 infrastructure errors",
    )
    group.addoption(
        "--baseline",
        dest="ptx_baseline",
        type=Path,
        metavar="FILE",
        help="a JSON report whose rates and best speedups must be kept, as a gate",
    )
    group.addoption(
        "--max-regression",
        dest="ptx_max_regression",
        metavar="X%",
        help="how much of its value in --baseline a metric may lose (default: 5%%)",
    )


def started_in(config: pytest.Config) -> Path | None:
    """The checkout that pytest was started on: around the working folder, or around the first argument in one."""
    invocation = config.invocation_params
    paths = [invocation.dir, *(invocation.dir / str(argument).split("::", 1)[0] for argument in invocation.args)]
    for path in paths:
        # Arguments are not all paths, and what is no path may be one that the system refuses.
        with suppress(InputError, OSError, ValueError):
            # Elsewhere nothing of ours is imported, so that an installed plugin costs other projects nothing.
            if any((folder / "cases" / "suites").is_dir() for folder in (path, *path.parents)):
                from ptxbench.cases import find_root

                return find_root(path)
    return None


def check_settings(config: pytest.Config, root: Path) -> None:
    """See that pytest read the checkout's own settings, without which it collects other tests than the benchmark's.

    pytest looks for its settings near every word of the command line that is an existing path, before it knows which
    words are values of a plugin's options (``determine_setup``): ``--run /scratch/a`` moves its root to ``/scratch``.

    Raises:
        pytest.UsageError: the settings come from elsewhere, and nobody asked for that.
    """
    settings = root / "pyproject.toml"
    asked = config.option.inifilename or config.option.rootdir
    if asked or config.invocation_params.dir.resolve() != root.resolve() or not settings.is_file():
        return
    if config.inipath is not None and config.inipath.samefile(settings):
        return
    values = [
        f"{option}={word}"
        for option, word in itertools.pairwise(config.invocation_params.args)
        if option.startswith("--") and "=" not in option and _exists(word)
    ]
    if values:
        remedy = f"write {' '.join(values)}, with '=': pytest takes a word that is a path for a place to start from"
    elif config.inipath is not None and config.inipath.parent.samefile(root):
        remedy = f"move {config.inipath.name} away, which pytest prefers, or name the settings: -c pyproject.toml"
    else:
        remedy = "start it without paths outside the checkout, which move pytest's root away"
    raise pytest.UsageError(f"expected pytest's settings from {settings}, found: {config.inipath or 'none'}; {remedy}")


def _exists(word: str) -> bool:
    with suppress(OSError, ValueError):  # a word that the system refuses as a path is none
        return Path(word).exists()
    return False


def read_options(config: pytest.Config) -> Options:
    """The parsed options. Raises pytest.UsageError for a report that could not be written, and options out of place;
    InputError."""
    option = config.option
    _check_profiler(option.ptx_profiler)
    if option.ptx_json is not None:
        check_report_path(option.ptx_json)
    if option.ptx_max_regression is not None and option.ptx_baseline is None:
        raise pytest.UsageError(
            "expected --max-regression beside --baseline FILE, found it alone; name the JSON report to compare with"
        )
    return Options(
        models=tuple(option.ptx_models or ("reference",)),
        suite=option.ptx_suite or DEFAULT_SUITE,
        case=option.ptx_case,
        turns=option.ptx_turns,
        trajectories=option.ptx_trajectories,
        variants=option.ptx_variants,
        profiler=option.ptx_profiler,
        run=option.ptx_run,
        ptx_json=option.ptx_json,
        min_speedup=option.ptx_min_speedup,
        concurrency=option.ptx_concurrency,
        safety=option.ptx_safety,
        knowledge=option.ptx_knowledge,
        guidance=option.ptx_guidance,
        retrieval=option.ptx_retrieval,
        retrieval_from=_retrieval_from(config),
        models_file=option.ptx_models_file or _models_file_of_environment(),
        budget_usd=option.ptx_budget_usd,
        budget_tokens=option.ptx_budget_tokens,
        dry_run=option.ptx_dry_run,
        trace_sets=_trace_sets(config),
        mark_expression=option.markexpr,
        gates=tuple(option.ptx_gates or ()),
        baseline=config.invocation_params.dir / option.ptx_baseline.expanduser() if option.ptx_baseline else None,
        max_regression=option.ptx_max_regression,
    )


def _check_profiler(name: str) -> None:
    """Raises InputError for a wrong address of a cluster: before anything runs."""
    if name.startswith("ray"):
        from ptxbench.profiler.ray.address import parse

        parse(name)


def _trace_sets(config: pytest.Config) -> tuple[Path, ...]:
    """The collections' folders, each once. Raises pytest.UsageError beside ``--suite``."""
    given: list[Path] = config.option.ptx_trace_sets or []
    if given and config.option.ptx_suite:
        raise pytest.UsageError(
            f"expected --suite or --trace-set, found both: --suite {config.option.ptx_suite} --trace-set {given[0]}; "
            "a collection takes the place of a suite: leave one out"
        )
    # Workers of xdist have no other working folder, but a test may change it.
    paths = [config.invocation_params.dir / path.expanduser() for path in given]
    return tuple(dict.fromkeys(paths))


def _retrieval_from(config: pytest.Config) -> tuple[Path, ...]:
    """Where notes are retrieved from. Raises pytest.UsageError where only one of the two options was given."""
    given: list[Path] = config.option.ptx_retrieval_from or []
    if bool(given) != (config.option.ptx_retrieval is not None):
        found = "--retrieval-from" if given else f"--retrieval {config.option.ptx_retrieval}"
        raise pytest.UsageError(
            f"expected --retrieval notes|notes+kernel and --retrieval-from PATH together, found {found} alone; "
            "add the other one, or leave it out"
        )
    paths = [config.invocation_params.dir / path.expanduser() for path in given]
    return tuple(dict.fromkeys(paths))


def _models_file_of_environment() -> Path | None:
    path = os.environ.get(MODELS_VARIABLE, "").strip()
    return Path(path).expanduser() if path else None


def _bounded_count(text: str) -> int:
    # By length first: Python refuses to convert thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST}, found {text[:40]!r}")
    return int(text)
