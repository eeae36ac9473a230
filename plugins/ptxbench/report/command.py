"""``ptxbench report``: runs and JSON reports as tables on the terminal, and as files."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence

from ptxbench.errors import InputError
from ptxbench.report.dataset import Manifest, load_manifests
from ptxbench.report.json_report import write_report
from ptxbench.report.paper_layout import render_paper
from ptxbench.report.schema import schema_text
from ptxbench.report.sources import Source, load
from ptxbench.report.terminal import render

LAYOUTS = {"table": render, "paper": render_paper}


def run(options: argparse.Namespace) -> list[str]:
    """Carry out ``ptxbench report``; returns the lines to print."""
    if options.schema:
        return [schema_text().rstrip("\n")]
    if not options.runs:
        raise InputError("expected runs or JSON reports, found none named; add RUN, for example a folder of generated/")
    if options.datasets and options.html is None and options.figures is None:
        raise InputError("--dataset: expected a page or figures that show it, found neither; add --html or --figures")
    manifests = load_manifests(options.datasets, len(options.runs)) if options.datasets else ()
    sources = load(options.runs)
    return [*_tables(sources, options.layout), *_files(sources, manifests, options)]


def _tables(sources: Sequence[Source], layout: str) -> list[str]:
    width = shutil.get_terminal_size().columns
    lines: list[str] = []
    for source in sources:
        if len(sources) > 1:
            lines += [*([""] if lines else []), f"== {source.name} =="]
        lines += [*LAYOUTS[layout](source.report.cells, width), *source.notes]
    return lines


def _files(sources: Sequence[Source], manifests: Sequence[Manifest], options: argparse.Namespace) -> list[str]:
    told = []
    if options.json is not None:
        if len(sources) != 1:
            raise InputError(f"--json: expected one run, found {len(sources)}; write one file for each")
        write_report(options.json, sources[0].report)
        told.append(f"Report: {options.json}")
    if options.html is not None:
        from ptxbench.report.page import write_page

        write_page(options.html, sources, manifests)
        told.append(f"Page: {options.html}")
    if options.figures is not None:
        from ptxbench.report.page import write_figures

        written = write_figures(options.figures, sources, manifests)
        told.append(f"Figures: {len(written)} files in {options.figures}")
    return told
