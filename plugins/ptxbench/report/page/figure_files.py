"""The page's figures as PNG and SVG files, drawn by kaleido in an installed Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ptxbench.errors import InputError
from ptxbench.report.dataset import Manifest
from ptxbench.report.page.adaptation import make_adaptation
from ptxbench.report.page.board import make_board
from ptxbench.report.page.figures import Card, all_cards
from ptxbench.report.page.library import HOW, plotly_script
from ptxbench.report.page.palette import SURFACE
from ptxbench.report.page.plain import plain
from ptxbench.report.sources import Source

FORMATS = ("png", "svg")
WIDTH, WIDE = 760, 1120
"""Pixels; a PNG has twice as many."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER_VARIABLE = "BROWSER_PATH"
"""The variable that kaleido reads as well."""


def find_browser() -> str:
    """The Chromium that draws. Raises InputError where there is none."""
    named = os.environ.get(BROWSER_VARIABLE)
    for candidate in [named] if named else BROWSERS:
        found = shutil.which(candidate)
        if found is not None:
            return found
    looked = f"{BROWSER_VARIABLE}={named}" if named else f"none of {', '.join(BROWSERS)} on PATH"
    raise InputError(
        f"--figures: expected Chromium or Chrome, which draws the files, found {looked}; install one (Debian: apt-get "
        f"install chromium), or name it in {BROWSER_VARIABLE}; --html needs none"
    )


def write_figures(folder: Path, sources: Sequence[Source], manifests: Sequence[Manifest] = ()) -> list[Path]:
    """Write every figure of the page as PNG and SVG; returns the files. Raises InputError for what is missing."""
    plotly_script()
    browser = find_browser()
    try:
        import kaleido
    except ImportError as error:
        raise InputError(
            f"--figures: expected the package kaleido, which draws the files, found: {error}; {HOW}"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--figures {folder}: expected a folder that can be written, found: {error.strerror}; choose another"
        ) from error
    board = make_board(sources)
    adaptation = make_adaptation(board, sources, manifests) if manifests else None
    tasks = list(_tasks(folder, all_cards(board, adaptation)))
    try:
        # No MathJax: it would come from the network.
        kaleido.write_fig_from_object_sync(tasks, kopts={"path": browser, "mathjax": False})
    except Exception as error:
        raise InputError(
            f"--figures {folder}: expected {browser} to draw the figures, found {type(error).__name__}: {error}; "
            "start it by hand to see what it lacks"
        ) from error
    return [Path(task["path"]) for task in tasks]


def _tasks(folder: Path, cards: Sequence[Card]) -> Iterator[dict[str, Any]]:
    for card in cards:
        for number, view in enumerate(card.views):
            name = card.key if len(card.views) == 1 else f"{card.key}-{number}"
            drawn = view.figure.to_dict()
            drawn["layout"] |= {
                "paper_bgcolor": SURFACE,
                "plot_bgcolor": SURFACE,
                "title": {"text": f"{plain(card.title)}{f': {view.name}' if view.name else ''}", "font": {"size": 15}},
                "margin": {**drawn["layout"]["margin"], "t": 64},
            }
            for kind in FORMATS:
                size = {"width": WIDE if card.wide else WIDTH, "height": card.height + 60}
                yield {
                    "fig": drawn,
                    "path": str(folder / f"{name}.{kind}"),
                    "opts": {"format": kind, "scale": 2 if kind == "png" else 1, **size},
                }
