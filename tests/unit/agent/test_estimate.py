"""What a run would take."""

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.estimate import Estimate, Sizes, measured, prompt_tokens, trajectory
from ptxbench.records import Candidate, Message, Usage
from tests.unit.agent.talking import ENTRY, Client, Talk, kernel, reply, with_kernel

SIZES = Sizes(reply=100, feedback=10, output=(200, 1000))


def test_prompts_grow_by_every_reply_and_its_feedback():
    found = trajectory(ENTRY, 1000, range(3), SIZES)
    assert (found.calls, found.output_tokens) == (3, (600, 3000))
    assert found.input_tokens == 1000 + 1110 + 1220
    # What the turn before was asked is known to a provider that caches.
    assert found.cached_tokens == 1000 + 1110
    least = ((3330 - 2110) * 1.0 + 2110 * 1.0 + 600 * 4.0) / 1e6
    assert found.usd is not None
    assert found.usd[0] == pytest.approx(least)
    assert found.usd[1] == pytest.approx((3330 * 1.0 + 3000 * 4.0) / 1e6)


def test_only_the_turns_that_are_left_count():
    assert trajectory(ENTRY, 1000, [2], SIZES)[:3] == (1, 1220, 1110)
    assert trajectory(ENTRY, 1000, [], SIZES) == Estimate()


def test_nothing_is_longer_than_the_output_limit():
    limited = ENTRY.model_copy(update={"max_output_tokens": 50})
    found = trajectory(limited, 1000, range(2), SIZES)
    assert found.output_tokens == (100, 100)
    assert found.input_tokens == 1000 + 1060


def test_without_prices_there_is_no_cost():
    unpriced = ENTRY.model_copy(update={"prices": None})
    assert trajectory(unpriced, 1000, range(2), SIZES).usd is None
    assert trajectory(unpriced, 1000, range(2), SIZES).plus(trajectory(ENTRY, 1, [0], SIZES)).usd is None


def test_estimates_add_up():
    one = trajectory(ENTRY, 1000, range(2), SIZES)
    both = one.plus(one)
    assert both[:3] == (4, 2 * one.input_tokens, 2 * one.cached_tokens)
    assert both.output_tokens == (800, 4000)
    assert both.usd is not None
    assert one.usd is not None
    assert both.usd[1] == pytest.approx(2 * one.usd[1])


def test_a_run_that_has_turns_is_measured(tmp_path):
    script = [with_kernel(0), reply("I cannot.", usage=Usage(input_tokens=9, output_tokens=301))]
    talk = Talk(tmp_path / "run", Client(script), turns=2)
    assert measured(talk.store, "talker") == Sizes()
    records = talk.records()
    exchange = records[1].exchange
    assert exchange is not None
    sizes = measured(RunStore.read(talk.folder), "talker")
    assert sizes.turns == 2
    assert sizes.output == (200, 301)
    assert sizes.feedback == prompt_tokens([exchange.added[0].content])
    assert sizes.reply == pytest.approx((prompt_tokens([script[0].text]) + prompt_tokens(["I cannot."])) / 2, abs=1)
    assert measured(talk.store, "another") == Sizes()


def test_an_uncounted_output_is_estimated(tmp_path):
    script = [reply("word " * 100, reasoning="thought " * 100, usage=Usage())]
    talk = Talk(tmp_path / "run", Client(script), turns=1)
    talk.records()
    sizes = measured(talk.store, "talker")
    assert sizes.output == (prompt_tokens([script[0].text + script[0].reasoning]),) * 2


def test_replayed_turns_are_no_measure_of_a_model(tmp_path):
    talk = Talk(tmp_path / "run", Client([with_kernel(0)]), turns=1)
    (record,) = talk.records()
    talk.store.save(record.model_copy(update={"origin": "replay"}), Candidate(source=kernel(0)))
    assert measured(talk.store, "talker") == Sizes()


def test_the_texts_of_a_prompt_are_counted():
    message = Message(role="user", content="a b c")
    assert prompt_tokens([message.content, message.content]) == 2 * prompt_tokens([message.content])
