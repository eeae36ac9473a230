"""Which checks answer for which object, on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxbench.cases import Case
from ptxbench.cases.collection_case import CollectionCase
from ptxbench.profiler import safety_cache
from ptxbench.profiler.safety_cache import CheckedObject, SafetyCache, checked_object, harness_identity
from ptxbench.records import BuildStatus, ToolStatus
from ptxbench.toolchain import Built
from ptxbench.trace.workload import ScalarInput, WorkloadInput
from tests.unit.factories import DEVICE, digest, make_build, make_safety, suite_case, unbuilt

AT = "2026-11-30T08:00:00+00:00"


def checked(**changes: Any) -> CheckedObject:
    built = Built(make_build(), Path("k.so"))
    found = checked_object(suite_case(), built, "racecheck", tool_version="2025.3.1", device=DEVICE)
    assert found is not None
    return found._replace(**changes)


def test_a_check_is_found_again_with_its_day(tmp_path: Path) -> None:
    evidence = make_safety("racecheck", "a hazard")
    SafetyCache(tmp_path).store(checked(), evidence, at=AT)
    found = SafetyCache(tmp_path).load(checked())
    assert found == evidence.model_copy(update={"checked_before": AT})


CHANGES: list[dict[str, Any]] = [
    {"so_sha256": digest("9")},
    {"cubin_sha256": digest("9")},
    {"definition_sha256": digest("9")},
    {"workload_uuid": "another"},
    {"arch": "b200"},
    {"axes": (("M", 8192),)},
    {"inputs_sha256": digest("9")},
    {"tool": "initcheck"},
    {"tool_version": "2025.4"},
    {"harness": "another"},
    {"device": "NVIDIA H100 (9, 0)"},
    {"driver": "590"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_nothing_answers_for_anything_else(change: dict[str, Any], tmp_path: Path) -> None:
    assert set(change) < set(CheckedObject._fields)
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck"), at=AT)
    assert cache.load(checked(**change)) is None


def test_every_part_of_the_key_is_tried_above() -> None:
    tried = {name for change in CHANGES for name in change}
    assert tried == set(CheckedObject._fields)


def test_an_entry_in_the_place_of_another_does_not_answer(tmp_path: Path) -> None:
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck"), at=AT)
    (entry,) = tmp_path.glob("*/*.json")
    other = checked(so_sha256=digest("9"))
    place = tmp_path / other.key[:2] / f"{other.key}.json"
    place.parent.mkdir(exist_ok=True)
    entry.rename(place)
    assert cache.load(other) is None


@pytest.mark.parametrize("status", [status for status in ToolStatus if status is not ToolStatus.OK])
def test_a_tool_that_failed_is_tried_again(status: ToolStatus, tmp_path: Path) -> None:
    SafetyCache(tmp_path).store(checked(), make_safety("racecheck", status=status), at=AT)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_known_to_the_end_is_checked_again(tmp_path: Path) -> None:
    SafetyCache(tmp_path).store(checked(), make_safety(kept_unknown="timeout"), at=AT)
    assert list(tmp_path.iterdir()) == []


def test_what_was_wrong_under_a_tool_alone_is_checked_again(tmp_path: Path) -> None:
    """A candidate that takes another path under a tool, or meets a race, has no answer that lasts."""
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck").model_copy(update={"outputs_match": False}), at=AT)
    assert cache.load(checked()) is None
    cache.store(checked(), make_safety("racecheck", "a hazard").model_copy(update={"outputs_match": False}), at=AT)
    assert cache.load(checked()) is not None


def key_of(case: Case) -> str:
    found = checked_object(case, Built(make_build(), Path("k.so")), "memcheck", tool_version="1", device=DEVICE)
    assert found is not None
    return found.key


def test_given_inputs_are_part_of_what_was_checked() -> None:
    """Of one uuid and one size: offsets and scalars decide what a kernel reads."""
    case = suite_case()
    name = next(iter(case.workload.inputs))

    def with_input(source: WorkloadInput) -> Case:
        inputs = {**case.workload.inputs, name: source}
        return case.model_copy(update={"workload": case.workload.model_copy(update={"inputs": inputs})})

    one, other = (with_input(ScalarInput(type="scalar", value=value)) for value in (1, 2))
    assert len({key_of(case), key_of(one), key_of(other)}) == 3
    fields = {**case.model_dump(), "collection_root": "/here", "blobs": {name: digest("1")}}
    collected = CollectionCase.model_validate(fields)
    assert key_of(collected) != key_of(collected.model_copy(update={"blobs": {name: digest("2")}}))
    assert key_of(collected) == key_of(collected.model_copy(update={"collection_root": "/there"}))


@pytest.mark.parametrize("text", ["", "{}", "[]", "\udce4".encode(errors="surrogateescape")])
def test_a_damaged_entry_is_none(text: Any, tmp_path: Path) -> None:
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck"), at=AT)
    (entry,) = tmp_path.glob("*/*.json")
    entry.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cache.load(checked()) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [('"schema_version":1', '"schema_version":2'), ('"tool":"racecheck","status', '"tool":"memcheck","status')],
)
def test_an_entry_of_another_version_or_of_another_tool_s_words_does_not_answer(
    before: str, after: str, tmp_path: Path
) -> None:
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck"), at=AT)
    (entry,) = tmp_path.glob("*/*.json")
    assert entry.read_text().count(before) == 1
    entry.write_text(entry.read_text().replace(before, after))
    assert cache.load(checked()) is None


def test_a_folder_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    SafetyCache(tmp_path / "file").store(checked(), make_safety("racecheck"), at=AT)


def test_a_full_folder_loses_its_oldest_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety_cache, "MOST_IN_SHARD", 0)
    cache = SafetyCache(tmp_path)
    cache.store(checked(), make_safety("racecheck"), at=AT)
    assert cache.load(checked()) is None


def test_a_build_without_an_object_has_no_checks() -> None:
    built = Built(unbuilt(BuildStatus.COMPILE_ERROR), None)
    assert checked_object(suite_case(), built, "memcheck", tool_version="1", device=DEVICE) is None


def test_the_harness_is_told_by_its_code() -> None:
    version, code = harness_identity().split()
    assert version
    assert len(code) == 64
