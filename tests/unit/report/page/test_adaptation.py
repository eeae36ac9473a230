"""Figures and table of an adaptation hold what the turns and the manifest hold."""

from __future__ import annotations

import re
import statistics
from collections import Counter

import pytest

from ptxbench.records import Outcome
from ptxbench.report.dataset import Manifest
from ptxbench.report.page.adaptation import Pooled, make_adaptation, pooled, transfers
from ptxbench.report.page.board import Workload, make_board
from ptxbench.report.page.figures.adaptation import adaptation_cards
from ptxbench.report.page.figures.transitions import FIRST, steps_of
from ptxbench.report.page.palette import OUTCOMES
from ptxbench.report.page.transfer import transfer_table
from ptxbench.report.sources import Source, load
from ptxbench.verdict.metrics import format_rate
from tests.conftest import ROOT
from tests.support.manifests import manifest
from tests.support.synthetic_run import write_run

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> tuple[Source, ...]:
    folder = tmp_path_factory.mktemp("runs")
    runs = [write_run(folder / name, 144, seed=seed, words=30) for seed, name in enumerate(("base", "adapted"))]
    return load(runs, ROOT)


def made(sources, **changes):
    found = Manifest.model_validate(manifest(**changes))
    return make_adaptation(make_board(sources), sources, [found] * (len(sources) - 1))


@pytest.fixture(scope="module")
def adaptation(sources):
    return made(sources, by_case={"gemm_n7168_k5120 h100": 15, "mha_bwd_d64 b200": 5})


@pytest.fixture(scope="module")
def cards(adaptation):
    return {card.key: card for card in adaptation_cards(adaptation)}


def test_sides_hold_the_turns_of_their_sources(sources, adaptation) -> None:
    for source, side in zip(sources, adaptation.sides, strict=True):
        assert {turn.id for turn in side.turns} == {turn.id for turn in source.report.turns}


def test_steps_are_those_of_the_trajectories(sources, adaptation) -> None:
    """Counted again, from the report's rows by their ids."""
    for source, side in zip(sources, adaptation.sides, strict=True):
        outcomes = {(row.key.trajectory_id, row.key.turn): row.verdict.outcome for row in source.report.turns}
        counts: Counter[tuple[str, Outcome]] = Counter()
        for (name, turn), outcome in outcomes.items():
            before = FIRST if turn == 0 else outcomes.get((name, turn - 1))
            if outcome is not Outcome.INFRASTRUCTURE_ERROR and before not in (None, Outcome.INFRASTRUCTURE_ERROR):
                counts[str(before), outcome] += 1
        assert steps_of(side) == dict(counts)


def test_a_heat_map_of_a_side_holds_its_shares(adaptation, cards) -> None:
    (trace,) = cards["adapt-transitions"].views[1].figure.data
    steps = steps_of(adaptation.base)
    labels = {look.label: outcome for outcome, look in OUTCOMES.items()}
    for name, line in zip(trace.y, trace.z, strict=True):
        before = name if name == FIRST else labels[name].value
        total = sum(count for (start, _), count in steps.items() if start == before)
        if not total:
            assert set(line) == {None}
            continue
        assert sum(line) == pytest.approx(100, abs=0.6)
        for column, value in zip(trace.x, line, strict=True):
            assert value == pytest.approx(100 * steps.get((before, labels[column]), 0) / total, abs=0.051)


def test_the_change_is_after_less_before_and_empty_where_a_side_has_nothing(cards) -> None:
    change, before, after = (view.figure.data[0] for view in cards["adapt-transitions"].views)
    assert (change.x, change.y) == (before.x, before.y) == (after.x, after.y)
    seen = 0
    for differences, old, new in zip(change.z, before.z, after.z, strict=True):
        for difference, one, other in zip(differences, old, new, strict=True):
            assert (difference is None) == (one is None or other is None)
            if difference is not None:
                seen += 1
                assert difference == pytest.approx(other - one, abs=0.16)
    assert seen > 20
    assert "-0" not in {text for line in change.text for text in line}


def test_an_adaptation_that_changed_nothing_shows_no_change(sources) -> None:
    same = made([sources[0], sources[0]._replace(name="same")])
    (trace,) = adaptation_cards(same)[0].views[0].figure.data
    assert {value for line in trace.z for value in line} <= {0.0, None}
    for one in transfers(same.base, same.adapted[0]):
        assert one.correct[0] == one.correct[1]
        assert one.target[0] == one.target[1]


def test_reasoning_is_the_median_of_each_turn(adaptation, cards) -> None:
    lines = [trace for trace in cards["adapt-reasoning"].views[0].figure.data if trace.mode == "lines+markers"]
    assert [line.name for line in lines] == ["base", "adapted"]
    for line, side in zip(lines, adaptation.sides, strict=True):
        for turn, value in zip(line.x, line.y, strict=True):
            tokens = [row.call.usage.reasoning_tokens for row in side.turns if row.key.turn == turn and row.call]
            assert value == pytest.approx(statistics.median(tokens), abs=0.06)


def test_rings_hold_the_records_of_the_manifest(cards) -> None:
    found = manifest(by_case={"gemm_n7168_k5120 h100": 15, "mha_bwd_d64 b200": 5})
    views = cards["adapt-recipe"].views
    fields = ("by_case", "by_outcome", "by_turn", "by_repair_teacher", "by_teacher")
    titles = ("workload", "repaired outcome", "turn", "repair teacher", "reasoning teacher")
    assert [view.name for view in views] == [f"by {title}" for title in titles]
    for view, field in zip(views, fields, strict=True):
        ring = view.figure.data[0]
        assert sorted(ring["values"]) == sorted(found[field].values())
        assert len(view.figure.data) == 1 + len(found[field]), "a legend entry for each"
    outcome = views[1].figure.data[0]
    colours = {look.label: look.colour for look in OUTCOMES.values()}
    assert list(outcome.marker.colors) == [colours[label] for label in outcome.labels]


def test_transfers_are_the_rates_of_the_cells(sources, adaptation) -> None:
    found = transfers(adaptation.base, adaptation.adapted[0])
    assert found
    for one in found:
        (workload,) = one.workloads
        for source, correct, target in zip(sources, one.correct, one.target, strict=True):
            cells = [cell for cell in source.report.cells if Workload(cell.case, cell.arch) == workload]
            assert correct.hits == sum(cell.limits[-1].correct.hits for cell in cells)
            assert correct.turns == sum(cell.limits[-1].correct.turns for cell in cells)
            assert target.hits == sum(cell.limits[-1].target.hits for cell in cells)
    together = pooled(found)
    assert together.correct[0].turns == sum(one.correct[0].turns for one in found)


def test_fewer_turns_on_a_side_are_compared_at_what_both_have(sources) -> None:
    report = sources[1].report
    cells = tuple(
        cell.model_copy(update={"limits": tuple(at for at in cell.limits if at.limit <= 4)}) for cell in report.cells
    )
    short = Source("short", report.model_copy(update={"cells": cells}), None)
    for one in transfers(*_pair(made([sources[0], short]))):
        cells_before = [cell for cell in sources[0].report.cells if Workload(cell.case, cell.arch) == one.workloads[0]]
        at_four = [at for cell in cells_before for at in cell.limits if at.limit == 4]
        assert one.correct[0] == Pooled(sum(at.correct.hits for at in at_four), sum(at.correct.turns for at in at_four))


def _pair(adaptation):
    return adaptation.base, adaptation.adapted[0]


@pytest.mark.parametrize(
    ("changes", "held_out"),
    [
        ({}, ()),
        ({"by_case": {"mha_bwd_d64 h100": 20}}, ("case",)),
        ({"by_case": {"gemm_n7168_k5120 b200": 20}}, ("arch",)),
        ({"by_case": {"gemm_n7168_k5120 b200": 10, "mha_bwd_d64 h100": 10}}, ("arch",)),
        ({"by_case": {"mha_bwd_d64 b200": 20}, "by_language": {"triton": 20}}, ("case", "arch", "language")),
    ],
)
def test_held_out_is_what_the_training_had_nothing_of(sources, changes, held_out) -> None:
    (adapted,) = made(sources, **changes).adapted
    assert adapted.held_out(Workload("gemm_n7168_k5120", "h100")) == held_out


def test_the_table_pools_by_what_the_training_knew(adaptation) -> None:
    table = transfer_table(adaptation)
    text = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr>.*?</tr>", table)]
    found = transfers(adaptation.base, adaptation.adapted[0])
    trained = [one for one in found if not adaptation.adapted[0].held_out(one.workloads[0])]
    other = [one for one in found if one not in trained]
    assert trained
    assert other
    rows = {" ".join(words[:2]): words for words in text}
    for name, part in (("trained, 1", trained), ("held-out case,", other)):
        before, after = pooled(part).correct
        shown = [format_rate(before.hits, before.turns), format_rate(after.hits, after.turns)]
        at = rows[name].index(shown[0])
        assert rows[name][at : at + 2] == shown
        points = round(after.percent - before.percent, 1)
        assert rows[name][at + 2].replace("\N{MINUS SIGN}", "-") == (f"{points:+.1f}" if points else "0.0")


def test_hostile_names_are_escaped(sources) -> None:
    bad = "<img src=x onerror=alert(1)>\u202e"
    hostile = made(sources, name=bad, recipe=bad, by_teacher={bad: 20}, by_case={f"{bad} h100": 20})
    table = transfer_table(hostile)
    assert "<img" not in table
    assert "\u202e" not in table
    for card in adaptation_cards(hostile):
        for view in card.views:
            assert "<img" not in f"{view.figure.to_json()}{view.name}"


def test_without_tokens_and_shared_workloads_the_page_says_so(sources) -> None:
    report = sources[1].report
    turns = tuple(turn.model_copy(update={"call": None}) for turn in report.turns)
    cells = tuple(cell.model_copy(update={"case": f"other_{cell.case}"}) for cell in report.cells)
    bare = Source("bare", report.model_copy(update={"turns": turns, "cells": cells}), None)
    empty = made([sources[0]._replace(report=sources[0].report.model_copy(update={"turns": ()})), bare])
    cards = {card.key: card for card in adaptation_cards(empty)}
    assert cards["adapt-reasoning"].views == ()
    assert cards["adapt-reasoning"].nothing
    assert "No workload was evaluated before and after." in transfer_table(empty)
