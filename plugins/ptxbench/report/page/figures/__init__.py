"""The figures of a report, each built once for the page and for files."""

from __future__ import annotations

from ptxbench.report.page.adaptation import Adaptation
from ptxbench.report.page.board import Board
from ptxbench.report.page.figures.base import Card, View

__all__ = ["Card", "View", "all_cards"]


def all_cards(board: Board, adaptation: Adaptation | None = None) -> list[Card]:
    """Every card, in the order of the page. Needs plotly."""
    from ptxbench.report.page.figures.adaptation import adaptation_cards
    from ptxbench.report.page.figures.effort import cost_card, time_card, token_card
    from ptxbench.report.page.figures.outcomes import outcome_cards
    from ptxbench.report.page.figures.roofline import roofline_card
    from ptxbench.report.page.figures.speed import fast_p_cards, turn_cards

    return [
        *(adaptation_cards(adaptation) if adaptation is not None else ()),
        *fast_p_cards(board),
        *turn_cards(board),
        *outcome_cards(board),
        token_card(board),
        cost_card(board),
        time_card(board),
        roofline_card(board),
    ]
