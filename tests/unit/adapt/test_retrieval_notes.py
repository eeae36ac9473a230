import pytest

from ptxbench.adapt.retrieval import Corpus
from ptxbench.adapt.retrieval_notes import MODES, Mode, RetrievedNotes, RunName, conditions
from ptxbench.models import PastTurn
from ptxbench.records import Candidate, Outcome
from tests.unit.adapt.test_retrieval import entry
from tests.unit.factories import GEMM, make_record, suite_case

RUN = RunName("now", "2026-02-02T00:00:00+00:00")


def past(source: str | None, outcome: Outcome = Outcome.NUMERICAL_ERROR) -> PastTurn:
    record = make_record(case=suite_case())
    verdict = record.verdict.model_copy(update={"outcome": outcome})
    sha256 = None if source is None else Candidate(source=source).sha256
    return PastTurn(record.model_copy(update={"verdict": verdict, "source_sha256": sha256}), source)


def corpus(*failed: str) -> Corpus:
    return Corpus(entry(f"e{number}", source, definition=GEMM) for number, source in enumerate(failed))


def notes(*failed: str, mode: Mode = "notes", run: RunName = RUN) -> RetrievedNotes:
    return RetrievedNotes(corpus(*failed), mode, run)


def test_notes_alone_or_with_the_kernel():
    assert MODES == ("notes", "notes+kernel")
    alone = notes("ring slot").about(suite_case(), past("ring"), ())
    assert alone.endswith("Note 1:\nnote e0\n")
    assert "fixed" not in alone
    both = notes("ring slot", mode="notes+kernel").about(suite_case(), past("ring"), ())
    assert both.endswith("Note 1:\nnote e0\n\nThe kernel that came of it:\n~~~~cuda\n// fixed e0\n~~~~\n")


@pytest.mark.parametrize(
    ("last", "found"),
    [
        (past("ring"), True),
        (past("ring", Outcome.SCREENED), True),
        (past("ring", Outcome.CORRECT), False),
        (past("ring", Outcome.UNKNOWN), False),
        (past(None, Outcome.EXTRACTION_ERROR), False),
        (past("softmax"), False),
    ],
)
def test_only_kernels_that_failed_are_looked_for(last: PastTurn, found: bool):
    assert bool(notes("ring slot").about(suite_case(), last, ())) is found


def test_nothing_of_the_trajectory_itself_is_told():
    """Neither the kernel that is asked about nor one before it, whatever run an entry says that it is of."""
    told = notes("ring  slot // again", "ring fence", "ring").about(suite_case(), past("ring"), (past("ring slot"),))
    assert told.endswith("Note 1:\nnote e1\n")
    assert "e0" not in told
    assert "e2" not in told


def test_nothing_of_the_same_run_is_told():
    assert notes("ring slot", run=RunName("train", "")).about(suite_case(), past("ring"), ()) == ""
    assert notes("ring slot", run=RunName("x", "2026-01-01T00:00:00+00:00")).about(suite_case(), past("ring"), ()) == ""


def test_mode_and_content_are_what_a_run_keeps():
    found = notes("ring").conditions
    assert found == conditions(corpus("ring"), "notes")
    assert found not in (conditions(corpus("ring"), "notes+kernel"), conditions(corpus("slot"), "notes"))
    assert notes("ring").identity != notes("slot").identity
