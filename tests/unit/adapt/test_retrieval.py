import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.adapt.kernel_code import code_sha256
from ptxbench.adapt.retrieval import K1, TOP, Asking, B, Corpus, Entry, terms
from ptxbench.errors import InputError

WORDS = ("wgmma_wait", "mbar_wait", "tma_load", "ring", "fence", "store_rows", "softmax", "slot")


def entry(name: str, failed: str, **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "definition": "gemm",
        "arch": "h100",
        "run": "train",
        "run_created_at": "2026-01-01T00:00:00+00:00",
        "note": f"note {name}",
        "kernel": f"// fixed {name}",
    }
    return Entry(id=name, failed=failed, **{**values, **changes})


def asking(*kernels: str, **changes: Any) -> Asking:
    values: dict[str, Any] = {
        "definition": "gemm",
        "arch": "h100",
        "run": "now",
        "run_created_at": "2026-02-02T00:00:00+00:00",
        "kernels": frozenset(code_sha256(source) for source in kernels),
    }
    return Asking(**{**values, **changes})


def ids(found: tuple[Entry, ...]) -> list[str]:
    return [each.id for each in found]


def test_names_of_code_and_ptx_count_and_comments_do_not():
    source = 'int x = f(y); // wgmma\n/* a\n b */ asm("mbarrier.try_wait.b64 %0;"); auto s = R"(// kept)"; // end'
    assert terms(source) == ["x", "f", "y", "asm", "mbarrier", "try_wait", "b64", "s", "R", "kept"]


def scores_by_hand(documents: list[list[str]], query: list[str]) -> list[float]:
    """Robertson's formula with Lucene's inverse document frequency, written out."""
    count, average = len(documents), sum(map(len, documents)) / len(documents)
    found = []
    for document in documents:
        score = 0.0
        for word in set(query):
            holding = sum(word in other for other in documents)
            frequency = document.count(word)
            rarity = math.log(1 + (count - holding + 0.5) / (holding + 0.5))
            score += rarity * frequency / (frequency + K1 * (1 - B + B * len(document) / average))
        found.append(score)
    return found


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=6), st.data())
def test_the_order_is_that_of_bm25(documents: list[list[str]], data: st.DataObject):
    query = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    assert (K1, B, TOP) == (1.5, 0.75, 3)
    corpus = Corpus(entry(f"{number}", " ".join(words)) for number, words in enumerate(documents))
    wanted = scores_by_hand(documents, query)
    found = [wanted[int(each)] for each in ids(corpus.search(" ".join(query), asking()))]
    best = sorted((score for score in wanted if score > 0), reverse=True)[:TOP]
    assert found == pytest.approx(best, rel=1e-5)


def test_nothing_of_another_operation_or_architecture_is_found():
    corpus = Corpus(
        [
            entry("a", "ring slot", definition="attention"),
            entry("b", "ring slot", arch="b200"),
            entry("c", "ring"),
        ]
    )
    assert ids(corpus.search("ring slot", asking())) == ["c"]
    assert ids(corpus.search("ring slot", asking(definition="attention"))) == ["a"]
    assert corpus.search("ring slot", asking(definition="norm")) == ()


def test_nothing_of_the_run_that_goes_on_is_found_whatever_it_is_called():
    corpus = Corpus(
        [
            entry("same-run", "ring slot", run="now"),
            entry("renamed", "ring slot fence", run="copy", run_created_at="2026-02-02T00:00:00+00:00"),
            entry("edited", "ring slot softmax", run="edited"),
            entry("commented", "ring  slot softmax // mended", run="edited"),
            entry("other", "ring"),
        ]
    )
    assert ids(corpus.search("ring slot", asking("ring slot softmax"))) == ["other"]


def test_what_is_not_seen_does_not_count_in_the_scores():
    seen = [entry("a", "ring ring slot"), entry("b", "ring fence fence")]
    hidden = [entry(f"h{number}", "fence softmax", run="now") for number in range(5)]
    for query in ("ring", "fence", "slot fence"):
        assert ids(Corpus([*seen, *hidden]).search(query, asking())) == ids(Corpus(seen).search(query, asking()))


def test_at_most_three_and_ties_go_to_the_smaller_id():
    corpus = Corpus(entry(name, "ring slot") for name in ("d", "b", "a", "c"))
    assert ids(corpus.search("slot", asking())) == ["a", "b", "c"]


def test_what_shares_no_name_is_not_found():
    assert Corpus([entry("a", "ring")]).search("softmax", asking()) == ()
    assert Corpus([entry("a", "// nothing")]).search("softmax", asking()) == ()


def test_the_identity_is_of_the_content_alone():
    one, two = entry("a", "ring"), entry("b", "slot")
    assert Corpus([one, two]).sha256 == Corpus([two, one]).sha256
    assert Corpus([one]).sha256 != Corpus([one._replace(note="another")]).sha256


def test_no_repair_and_one_that_is_there_twice_are_refused():
    with pytest.raises(InputError, match="expected repairs with notes, found none"):
        Corpus([])
    with pytest.raises(InputError, match="expected each repair once, found a twice"):
        Corpus([entry("a", "ring"), entry("a", "slot")])
