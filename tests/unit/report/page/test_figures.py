"""The figures hold the numbers that the metrics give."""

from collections import Counter

import pytest

from ptxbench.records import Outcome
from ptxbench.report.page.board import Board, make_board
from ptxbench.report.page.figures import all_cards
from ptxbench.report.page.figures.effort import STAGES
from ptxbench.report.page.figures.speed import curve
from ptxbench.report.page.palette import DARK, NOT_TAKEN, OUTCOMES
from ptxbench.report.sources import Source, load
from ptxbench.verdict.metrics import fast_p, fast_p_inst
from tests.conftest import ROOT
from tests.support.synthetic_run import GIVEN, write_run

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Source:
    return load([write_run(tmp_path_factory.mktemp("run") / "run", 300, words=30)], ROOT)[0]


@pytest.fixture(scope="module")
def board(source) -> Board:
    return make_board([source])


@pytest.fixture(scope="module")
def cards(board):
    return {card.key: card for card in all_cards(board)}


def test_the_same_arguments_write_the_same_run(tmp_path) -> None:
    first, second = (write_run(tmp_path / name, 20, words=30) for name in ("a", "b"))
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


@pytest.mark.parametrize("p", [0.0, 0.5, 0.8, 1.0, 1.2])
@pytest.mark.parametrize("inst", [False, True])
def test_curves_are_fast_p_of_each_variant(board, p, inst) -> None:
    metric = fast_p_inst if inst else fast_p
    for row in board.rows:
        shares = [100 * metric(one.results, p, GIVEN, one.trajectories).value for one in row.variants]
        found = curve(row.variants, GIVEN, [p], inst=inst)
        assert found.mean == [pytest.approx(sum(shares) / len(shares), abs=0.01)]
        assert found.low == [pytest.approx(min(shares), abs=0.01)]
        assert found.high == [pytest.approx(max(shares), abs=0.01)]


def test_variants_share_the_trajectories_that_were_planned(board) -> None:
    for row in board.rows:
        assert sum(variant.trajectories for variant in row.variants) >= len({one.trajectory for one in row.results})


def test_the_stack_holds_every_planned_turn_once(board, cards) -> None:
    planned = sum(row.cell.trajectories * row.cell.turns_per_trajectory for row in board.rows)
    heights = [sum(trace.y) for trace in cards["outcomes"].views[0].figure.data]
    assert sum(heights) == planned
    outcomes = Counter(turn.verdict.outcome for row in board.rows for turn in row.turns)
    correct = sum(sum(trace.y) for trace in cards["outcomes"].views[0].figure.data if trace.name.startswith("correct"))
    assert correct == outcomes[Outcome.CORRECT]


def test_flows_keep_every_trajectory_in_every_step(board, cards) -> None:
    sankey = cards["flow"].views[0].figure.data[0]
    trajectories = sum(row.cell.trajectories for row in board.rows)
    assert sum(sankey.link.value) == trajectories * (GIVEN - 1)
    assert all(0 < place < 1 for place in (*sankey.node.x, *sankey.node.y))


def test_an_outcome_has_one_colour_everywhere(cards) -> None:
    colours = {look.label: look.colour for look in (*OUTCOMES.values(), *NOT_TAKEN.values())}
    for key in ("outcomes", "flow", "tokens"):
        for view in cards[key].views:
            for trace in view.figure.data:
                if trace.type != "sankey":
                    label = trace.name.partition(",")[0].partition(" (")[0]
                    assert trace.marker.color == colours[label], trace.name


def test_neutral_colours_of_figures_have_a_dark_counterpart(cards) -> None:
    fixed = {look.colour for look in OUTCOMES.values()} | {colour for _, colour in STAGES.values()}
    for card in cards.values():
        for view in card.views:
            layout = view.figure.to_dict()["layout"]
            assert layout["font"]["color"] in DARK
            for name in ("xaxis", "yaxis"):
                grid = layout.get(name, {}).get("gridcolor")
                assert grid is None or grid in DARK
    assert not fixed & set(DARK)


def test_every_view_says_in_words_what_it_shows(cards) -> None:
    for card in cards.values():
        assert card.views or card.nothing
        for view in card.views:
            assert view.words.endswith(".") or ";" in view.words or "correct" in view.words


def test_a_report_without_calls_and_latencies_says_what_is_missing(source) -> None:
    report = source.report
    turns = tuple(turn.model_copy(update={"call": None, "roofline": None, "stages_ms": {}}) for turn in report.turns)
    cells = tuple(cell.model_copy(update={"calls": None}) for cell in report.cells)
    bare = Source("bare", report.model_copy(update={"turns": turns, "cells": cells}), None)
    cards = {card.key: card for card in all_cards(make_board([bare]))}
    for key in ("tokens", "cost", "time", "roofline"):
        assert cards[key].views == ()
        assert cards[key].nothing


def test_two_sources_keep_their_models_apart(source) -> None:
    board = make_board([source._replace(name="monday"), source._replace(name="friday")])
    assert "monday: claude" in board.labels
    assert "friday: claude" in board.labels
    assert len(board.labels) == 2 * len(make_board([source]).labels)
