from pathlib import Path
from typing import Any

import pytest

from ptxbench.adapt.dossier import Asked, Dossier, Dossiers, TeacherTerms
from ptxbench.errors import InputError
from ptxbench.records import Message, prompt_sha256
from tests.unit.agent.talking import reply

TERMS = TeacherTerms(teacher="claude", sent={"model": "c-1", "thinking": {"effort": "high"}})


def asked(text: str = "answer") -> Asked:
    added = (Message(role="user", content="question"),)
    return Asked(
        added=added,
        prompt_sha256=prompt_sha256(added),
        sent={},
        asked_at="2026-11-30T00:00:00+00:00",
        reply=reply(text),
    )


def test_what_was_paid_for_is_counted_whether_used_or_not(tmp_path: Path):
    dossiers = Dossiers(tmp_path)
    dossiers.save(Dossier(id="a", asked=(asked(), asked()), unused=(asked(),)))
    dossiers.save(Dossier(id="b", asked=(asked(),)))
    assert [(round(spent.usd, 4), spent.tokens) for spent in dossiers.spent(None)] == [(0.0014, 1100)] * 4


def test_a_dossier_comes_back_as_it_was_and_one_that_never_was_is_empty(tmp_path: Path):
    kept = Dossier(id="a", asked=(asked(),))
    Dossiers(tmp_path).save(kept)
    assert Dossiers(tmp_path).load("a") == kept
    assert Dossiers(tmp_path).load("b") == Dossier(id="b")


def test_a_broken_dossier_is_not_paid_for_again(tmp_path: Path):
    Dossiers(tmp_path).save(Dossier(id="a", asked=(asked(),)))
    (tmp_path / "dossiers" / "a.json").write_text("{}")
    with pytest.raises(InputError, match=r"a\.json: expected a dossier, found Field required at id; restore the file"):
        Dossiers(tmp_path).load("a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"teacher": "gpt"}, "expected its own teacher claude, found gpt"),
        ({"sent": {"model": "c-2", "thinking": {"effort": "high"}}}, 'with model "c-1", found model "c-2"'),
        ({"sent": {"model": "c-1"}}, r'with thinking \{"effort": "high"\}, found thinking \(not sent\)'),
    ],
)
def test_a_folder_has_one_teacher(tmp_path: Path, changes: dict[str, Any], words: str):
    Dossiers(tmp_path).join(TERMS)
    Dossiers(tmp_path).join(TERMS)
    with pytest.raises(InputError, match=words):
        Dossiers(tmp_path).join(TERMS.model_copy(update=changes))
