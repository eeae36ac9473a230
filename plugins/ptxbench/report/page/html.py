"""The page: one HTML file that needs nothing else.

Texts that come from models and tools are in it in two ways only: escaped in the summary, and packed as base64, from
which the page's script puts them into the document as text. A policy in the page lets no script run but our two, by
their hashes, and nothing be fetched from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.report.dataset import Manifest
from ptxbench.report.page.adaptation import Adaptation, make_adaptation
from ptxbench.report.page.board import make_board
from ptxbench.report.page.figures import Card, all_cards
from ptxbench.report.page.library import plotly_script
from ptxbench.report.page.packing import packed, zipped
from ptxbench.report.page.palette import DARK
from ptxbench.report.page.table import remarks, summary_table, text
from ptxbench.report.page.transfer import transfer_table
from ptxbench.report.page.viewer import make_viewer
from ptxbench.report.sources import Source

SCRIPTS = ("base.js", "figures.js", "diff.js", "list.js", "turn.js", "viewer.js")


LEGEND_HEIGHT = 56
"""Pixels of a figure that its own legend takes, which the page replaces with one of its own."""


class _Section(NamedTuple):
    key: str
    title: str
    caption: str


SECTIONS = (
    _Section(
        "adaptation",
        "Adaptation",
        "What training on repairs of its own failures changed. The first run is the base model's.",
    ),
    _Section(
        "fast-p",
        "Fast_p",
        "Share of turns that are correct and faster than p times the library. Solid: any correct turn; dotted: with "
        "target instructions (Fast_p.inst). Lines are means over prompt variants, bands reach from the least to the "
        "largest. Marks are best speedups, open ones with target instructions. 1.0 is the library.",
    ),
    _Section(
        "turns",
        "Turns",
        "What more turns bring. Solid: any correct turn; dotted: with target instructions. The guides are 1.0x, the "
        "library, and 1.2x, which ends a trajectory.",
    ),
    _Section("outcomes", "Outcomes", ""),
    _Section("effort", "Tokens, cost and time", ""),
    _Section("roofline", "Roofline", ""),
)


def write_page(path: Path, sources: Sequence[Source], manifests: Sequence[Manifest] = ()) -> None:
    """Write the page of these sources; with ``manifests`` the first is a base model, and the others were trained on
    these datasets. Raises InputError where plotly is missing or the file cannot be written."""
    data = page(sources, manifests).encode()
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(
            f"{path}: expected a file that the page can be written to, found: {error.strerror or error}; choose a path "
            "in a folder that you may write to"
        ) from error


def page(sources: Sequence[Source], manifests: Sequence[Manifest] = ()) -> str:
    """The page as a text. Raises InputError where plotly is missing."""
    library = plotly_script()
    board = make_board(sources)
    adaptation = make_adaptation(board, sources, manifests) if manifests else None
    cards = all_cards(board, adaptation)
    viewer = make_viewer(sources)
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "})();"
    figures = {
        card.key: [{"figure": view.figure.to_json(), "words": view.words} for view in card.views] for card in cards
    }
    shown = [section for section in SECTIONS if any(card.section == section.key for card in cards)]
    places = [
        ("summary", "Summary"),
        *((section.key, section.title) for section in shown),
        ("turns-viewer", "Trajectories"),
    ]
    return Template(_asset("page.html")).substitute(
        policy=_policy(script, library),
        title=text(", ".join(source.name for source in sources)),
        subtitle=text(_subtitle(sources)),
        style=_asset("style.css"),
        nav="".join(f'<li><a href="#{key}">{text(title)}</a></li>' for key, title in places),
        table=summary_table(board),
        remarks=remarks(sources),
        sections="\n".join(_section(section, cards, adaptation) for section in shown),
        data="\n".join(
            [
                _data("index", packed(viewer.overview)),
                _data("figures", packed({"dark": DARK, "cards": figures})),
                _data("plotly", zipped(library)),
            ]
        ),
        script=script,
        blocks="\n".join(
            [
                *(_data(f"shared-{number}", block) for number, block in enumerate(viewer.shared)),
                *(_data(f"block-{number}", block) for number, block in enumerate(viewer.blocks)),
            ]
        ),
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    # Plotly sets styles in attributes and in a sheet of its own.
    styles = "style-src 'unsafe-inline'"
    return (
        f"default-src 'none'; script-src {hashes}; {styles}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _data(key: str, packed_text: str) -> str:
    # A type that no browser runs.
    return f'<script type="text/plain" id="{key}">{packed_text}</script>'


def _subtitle(sources: Sequence[Source]) -> str:
    cells = [cell for source in sources for cell in source.report.cells]
    devices = sorted({device for cell in cells for device in cell.devices})
    days = sorted({day for cell in cells for day in cell.measured})
    turns = sum(len(source.report.turns) for source in sources)
    models = len({cell.model for cell in cells})
    parts = [
        f"PTXBench: {turns:,} turns",
        f"{models} model{'' if models == 1 else 's'}",
        f"{len({(cell.case, cell.arch) for cell in cells})} workloads",
        ", ".join(devices) or "no device",
        " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
    ]
    return " · ".join(part for part in parts if part)


def _section(section: _Section, cards: Iterable[Card], adaptation: Adaptation | None) -> str:
    inner = "\n".join(_card(card) for card in cards if card.section == section.key)
    if section.key == "adaptation" and adaptation is not None:
        inner = f"{_transfer(adaptation)}\n{inner}"
    caption = f'<p class="caption">{text(section.caption)}</p>' if section.caption else ""
    return (
        f'<section id="{section.key}" aria-labelledby="{section.key}-title"><h2 id="{section.key}-title">'
        f'{text(section.title)}</h2>{caption}<div class="cards">{inner}</div></section>'
    )


def _transfer(adaptation: Adaptation) -> str:
    caption = (
        "Base and adapted model at the most turns that both were given, by what the training knew of a workload. "
        "Changes are percentage points; point at a share for what it is made of."
    )
    return (
        f'<article class="card wide"><div class="card-head"><h3>Transfer</h3></div><p class="caption">{caption}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Transfer table">'
        f"{transfer_table(adaptation)}</div></article>"
    )


def _card(card: Card) -> str:
    wide = f"{' wide' if card.wide else ''}{' scrolls' if card.scrolls else ''}"
    select = ""
    if len(card.views) > 1:
        options = "".join(f'<option value="{number}">{view.name}</option>' for number, view in enumerate(card.views))
        select = f'<select id="{card.key}-view" aria-label="{text(card.title)}: which">{options}</select>'
    caption = f'<p class="caption">{text(card.caption)}</p>' if card.caption and card.views else ""
    plot = f'<p class="muted">{text(card.nothing)}</p>'
    if card.views:
        height = card.height - LEGEND_HEIGHT
        plot = (
            f'<div class="scroll"><div class="plot" id="plot-{card.key}" data-card="{card.key}" data-height="{height}" '
            f'role="img" aria-label="{text(card.title)}" style="min-height: {height}px"><p class="wait">Drawing</p>'
            f'</div></div><ul class="key" id="{card.key}-key"></ul>'
        )
    head = f'<div class="card-head"><h3>{text(card.title)}</h3>{select}</div>'
    return f'<article class="card{wide}">{head}{caption}{plot}</article>'
