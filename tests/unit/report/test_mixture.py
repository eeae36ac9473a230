"""A cell whose turns were asked for in two ways is of no one model, and says so."""

from __future__ import annotations

from typing import Any

from ptxbench.records import Exchange, PromptIdentity, Reply, TurnRecord
from ptxbench.report import build_report, render, summarize
from ptxbench.report.mixture import mixture_of
from tests.unit.factories import digest, make_record

PROMPT = PromptIdentity(template="1", pack="hopper 3", pack_sha256=digest("e"), level="full")


def asked(turn: int, sent: dict[str, Any] | None = None, **prompt: Any) -> TurnRecord:
    exchange = Exchange(
        added=(),
        prompt_sha256=digest("f"),
        prompt=PROMPT.model_copy(update=prompt),
        sent={"model": "m-1", "reasoning": {"effort": "high"}} if sent is None else sent,
        asked_at="2026-11-29T20:00:00+00:00",
        reply=Reply(text="", ended="stop", finish_reason="stop", latency_s=1.0, model="m"),
    )
    return make_record(turn, exchange=exchange)


def test_one_way_of_asking_is_no_mixture() -> None:
    assert mixture_of([asked(0), asked(1), make_record(2)]) == ()
    assert mixture_of([]) == ()
    (cell,) = summarize([asked(0), asked(1)])
    assert cell.mixed == ()
    assert "MIXED" not in " ".join(render([cell], 400))


def test_other_settings_are_named_with_both_values() -> None:
    records = [asked(0), asked(1, {"model": "quite-another", "reasoning": {"effort": "high"}, "top_p": 0.5})]
    assert mixture_of(records) == ('sent model: "m-1" / "quite-another"', "sent top_p: (not sent) / 0.5")
    deep = [asked(0), asked(1, {"model": "m-1", "reasoning": {"effort": "low"}})]
    assert mixture_of(deep) == ('sent reasoning.effort: "high" / "low"',)


def test_other_texts_are_named_too() -> None:
    records = [asked(0), asked(1, pack="hopper 4", pack_sha256=digest("d"), level="params", template="2")]
    found = mixture_of(records)
    assert found[0] == "knowledge: full / params"
    assert found[1].startswith("pack: hopper 3, ")
    assert found[2] == "texts: version 1 / version 2"


def test_the_table_and_the_document_say_so() -> None:
    report = build_report([asked(0), asked(1, {"model": "quite-another"})])
    assert any('"quite-another"' in text for text in report.cells[0].mixed)
    text = " ".join(line.strip() for line in render(report.cells, 80))
    assert "MIXED: " in text
    assert "of no single model and prompt" in text
    assert text.index("MIXED: ") < text.index("Evidence: ")


def test_long_values_are_shortened() -> None:
    (text,) = mixture_of([asked(0, {"system": "x" * 1000}), asked(1, {"system": "y" * 1000})])
    assert len(text) < 200
