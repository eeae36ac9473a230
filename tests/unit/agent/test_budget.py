"""What calls cost, and when to stop issuing them."""

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.budget import Budget, Limits, Spent, spent_in, spent_on, total
from ptxbench.models.entry import Prices
from ptxbench.packs import estimate_tokens
from ptxbench.records import Exchange, Message, PendingReply, PromptIdentity, Reply, TurnRecord, Usage
from ptxbench.verdict import judge_extraction_error
from tests.unit.agent.talking import reply
from tests.unit.factories import digest, make_record

PRICES = Prices(input=2.0, cached_input=0.5, output=10.0)
PROMPT = (Message(role="system", content="Write a kernel. " * 40), Message(role="user", content="GEMM"))


def exchange(answer: Reply | None, *added: Message) -> Exchange:
    identity = PromptIdentity(template="1", pack="p 1", pack_sha256=digest("a"), level="full")
    return Exchange(added=added, prompt_sha256=digest("b"), prompt=identity, asked_at="2026-11-29", reply=answer)


def turn(number: int, answer: Reply | None, *added: Message, trajectory: int = 0, origin: str = "model") -> TurnRecord:
    return make_record(
        number,
        trajectory=trajectory,
        origin=origin,
        exchange=exchange(answer, *added),
        source_sha256=None,
        build=None,
        evidence=None,
        verdict=judge_extraction_error("no code"),
    )


def test_what_the_provider_says_is_taken():
    assert spent_on(reply("x"), PROMPT, PRICES) == Spent(0.0014, 1100)
    assert spent_on(reply("x"), PROMPT, None) == Spent(0.0014, 1100)


def test_what_it_does_not_say_is_estimated():
    answer = reply("words " * 50, reasoning="more " * 100, usage=Usage(), cost_usd=None, source="int x;")
    taken = sum(estimate_tokens(message.content) for message in PROMPT)
    given = estimate_tokens(answer.text) + estimate_tokens(answer.reasoning) + estimate_tokens("int x;")
    found = spent_on(answer, PROMPT, PRICES)
    assert found.tokens == taken + given
    assert found.usd == pytest.approx((taken * 2 + given * 10) / 1e6)
    assert spent_on(answer, PROMPT, None) == Spent(0.0, taken + given)


@pytest.mark.parametrize(
    ("limits", "name"), [(Limits(usd=1.0), "dollars"), (Limits(tokens=100), "tokens"), (Limits(0.99, 1000), "dollars")]
)
def test_a_limit_is_reached_when_it_is_spent(limits, name):
    budget = Budget(limits, ("dollars", "tokens"))
    assert budget.exhausted() == ""
    budget.add(Spent(0.5, 50))
    assert budget.exhausted() == ""
    budget.add(Spent(0.5, 50))
    assert budget.exhausted().startswith(f"{name} is reached")


def test_without_limits_nothing_is_ever_spent():
    budget = Budget()
    budget.add(Spent(1e9, 10**12))
    assert budget.exhausted() == ""


def test_a_budget_with_nothing_left_allows_nothing():
    assert Budget(Limits(usd=1.0).less(Spent(1.5, 0))).exhausted()
    assert Budget(Limits(tokens=3).less(Spent(), 4)).exhausted()


def test_parts_are_equal():
    assert Limits(10.0, 1000).less(Spent(2.0, 400), 4) == Limits(2.0, 150)
    assert Limits().less(Spent(2.0, 400), 4) == Limits()
    assert total([Spent(1.0, 2), Spent(3.0, 4)]) == Spent(4.0, 6)
    assert total([]) == Spent()


def test_a_run_folder_says_what_was_spent(tmp_path):
    store = RunStore.open(tmp_path / "run", {})
    store.save(turn(0, reply("a")), None)
    store.save(turn(1, reply("b")), None)
    store.save(turn(0, reply("c"), trajectory=1), None)
    store.save(turn(0, reply("d"), trajectory=2, origin="replay"), None)
    store.save(turn(0, None, trajectory=3), None)
    pending = turn(1, None, trajectory=1).key
    for text in ("to an older prompt", "e"):
        store.save_reply(PendingReply(key=pending, exchange=exchange(reply(text), *PROMPT)))
    found = spent_in(store, {"reference": PRICES})
    name = "reference-gemm_n7168_k5120-h100-v0-t"
    assert found[f"{name}0"] == Spent(0.0028, 2200)
    assert found[f"{name}1"].tokens == 3300
    assert found[f"{name}1"].usd == pytest.approx(3 * 0.0014)
    assert total(found.values()).tokens == 5500


def test_uncounted_prompts_grow_with_the_conversation(tmp_path):
    store = RunStore.open(tmp_path / "run", {})
    silent = reply("an answer " * 30, usage=Usage(), cost_usd=None)
    store.save(turn(0, silent, *PROMPT), None)
    first = spent_in(store, {"reference": PRICES})
    store.save(turn(1, silent, Message(role="user", content="wrong")), None)
    (both,) = spent_in(store, {"reference": PRICES}).values()
    (one,) = first.values()
    assert both.tokens - one.tokens > one.tokens
    assert both.usd > 2 * one.usd
