"""``--dry-run``: what would run, and about what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pytest

from ptxbench.errors import InputError
from ptxbench.plugin.bench import Bench
from ptxbench.profiler.visible import visible_devices

if TYPE_CHECKING:
    from ptxbench.agent import RunStore, TrajectoryPlan
    from ptxbench.agent.conversation import ConversingModel
    from ptxbench.agent.estimate import Estimate, Sizes


def preview(bench: Bench, plans: Sequence[TrajectoryPlan], config: pytest.Config) -> None:
    """Print what the session would do. Raises InputError for broken input that needs no key, GPU or compiler to see."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    reporter.ensure_newline()
    reporter.section("PTXBench: dry run")
    for line in describe(bench, plans):
        reporter.write_line(line)


def describe(bench: Bench, plans: Sequence[TrajectoryPlan]) -> list[str]:
    """The lines of a preview."""
    if not plans:
        return ["No turn is selected: nothing would run."]
    store = _stored(bench)
    lines: list[str] = []
    conversing = {model.name: model for model in bench.conversing(plans)}
    total: Estimate | None = None
    for (name, arch), group in _grouped(plans).items():
        lines.append(f"{name} on {arch}: {_extent(group)}{_done(store, group)}")
        if name in conversing:
            model = conversing[name]
            sizes = _sizes(bench, store, model)
            estimate = _estimate(bench, model, group, sizes, store)
            total = estimate if total is None else total.plus(estimate)
            lines += [f"  {line}" for line in (*_calls(estimate), _basis(sizes, model), *_missing(bench, model))]
        else:
            lines.append("  no model call: its sources exist already")
    if total is not None and len(lines) > 1 and len(_grouped(plans)) > 1:
        lines += ["In all:", *(f"  {line}" for line in _calls(total))]
    return [
        *lines,
        *bench.left_out,
        *_budget(bench),
        *_obstacles(bench),
        f"Run: {bench.run_name if bench.options.run is not None else 'a new folder'}",
    ]


def _grouped(plans: Iterable[TrajectoryPlan]) -> dict[tuple[str, str], list[TrajectoryPlan]]:
    groups: dict[tuple[str, str], list[TrajectoryPlan]] = {}
    for plan in plans:
        groups.setdefault((plan.model.name, plan.case.arch.name), []).append(plan)
    return groups


def _extent(plans: Sequence[TrajectoryPlan]) -> str:
    cases = {plan.case.name for plan in plans}
    variants = {(plan.case.name, plan.variant) for plan in plans}
    turns = sum(plan.turns for plan in plans)
    counts = f"{len(cases)} cases, {len(variants)} prompts (case x variant), {len(plans)} trajectories"
    return f"{counts}, at most {turns} turns"


def _stored(bench: Bench) -> RunStore | None:
    from ptxbench.agent import RunStore
    from ptxbench.agent.run_file import RUN_FILE

    if bench.options.run is None or not (bench.run_folder / RUN_FILE).exists():
        return None
    try:
        return RunStore.read(bench.run_folder)
    except InputError:
        return None  # told among what is missing


def _left(store: RunStore | None, plan: TrajectoryPlan) -> list[int]:
    """The turns of a trajectory that a call would be made for."""
    from ptxbench.records import PASSING_ENDS

    turns = range(plan.turns)
    if store is None:
        return list(turns)
    end = store.load_end(plan.key(0))
    last = end.key.turn if end is not None and end.reason not in PASSING_ENDS else plan.turns
    return [turn for turn in turns if turn < last and store.record(plan.key(turn)) is None]


def _done(store: RunStore | None, plans: Sequence[TrajectoryPlan]) -> str:
    if store is None:
        return ""
    stored = sum(store.record(plan.key(turn)) is not None for plan in plans for turn in range(plan.turns))
    return f", {stored} of them done"


def _sizes(bench: Bench, store: RunStore | None, model: ConversingModel) -> Sizes:
    from ptxbench.agent.estimate import Sizes, measured

    sizes = Sizes() if store is None else measured(store, model.name)
    if not sizes.turns:
        # As if each turn failed; what was measured has its notes in it.
        sizes = sizes._replace(feedback=sizes.feedback + bench.note_tokens())
    return sizes.bounded(model.entry)


def _estimate(
    bench: Bench, model: ConversingModel, plans: Sequence[TrajectoryPlan], sizes: Sizes, store: RunStore | None
) -> Estimate:
    from ptxbench.agent.estimate import Estimate, prompt_tokens, trajectory

    prompts: dict[tuple[str, int], int] = {}
    total = Estimate()
    for plan in plans:
        prompt = (plan.case.name, plan.variant)
        if prompt not in prompts:
            messages = model.first_prompt(plan.case, plan.variant)
            prompts[prompt] = prompt_tokens([message.content for message in messages])
        total = total.plus(trajectory(model.entry, prompts[prompt], _left(store, plan), sizes))
    return total


def _calls(estimate: Estimate) -> list[str]:
    from ptxbench.report.calls import short_count

    least, most = map(short_count, estimate.output_tokens)
    usd = estimate.usd
    cost = "unknown: the model's entry has no prices" if usd is None else f"USD {usd[0]:.2f} to {usd[1]:.2f}"
    return [
        f"at most {estimate.calls} calls: about {short_count(estimate.input_tokens)} input tokens "
        f"(up to {short_count(estimate.cached_tokens)} of them cached), {least} to {most} output tokens",
        f"cost: {cost}",
    ]


def _basis(sizes: Sizes, model: ConversingModel) -> str:
    from ptxbench.report.calls import short_count

    basis = f"averages of {sizes.turns} turns of the run" if sizes.turns else "assumptions (docs/models.md)"
    context = model.entry.context
    room = f"; its context has room for {short_count(context)} tokens" if context is not None else ""
    return (
        f"first prompts as they would be sent; per turn {short_count(sizes.reply)} tokens of reply and "
        f"{short_count(sizes.feedback)} of feedback, by {basis}{room}"
    )


def _missing(bench: Bench, model: ConversingModel) -> list[str]:
    """What the model wants before the run can start."""
    needs = (lambda: bench.open_client(model.entry), lambda: bench.check_prices(model))
    return [f"missing: {problem}" for need in needs for problem in _refusal(need)]


def _obstacles(bench: Bench) -> list[str]:
    """What else would end the run before its first turn, or make each of its turns an error."""
    from ptxbench.agent.run_file import check

    found = _refusal(lambda: check(bench.run_folder, bench.session()))
    if bench.options.profiler == "local" and not visible_devices():
        found.append("--profiler local: expected a GPU, found none; use auto or replay to judge stored evidence")
    return [f"missing: {problem}" for problem in found]


def _refusal(need: Callable[[], object]) -> list[str]:
    try:
        need()
    except InputError as error:
        return [str(error)]
    except OSError as error:
        return [f"expected a run folder that can be read, found: {error}; choose another --run"]
    return []


def _budget(bench: Bench) -> list[str]:
    options = bench.options
    limits = [f"USD {options.budget_usd:g}"] if options.budget_usd is not None else []
    limits += [f"{options.budget_tokens} tokens"] if options.budget_tokens is not None else []
    return [f"Budget: {' and '.join(limits)}, of all sessions of the run together"] if limits else []
