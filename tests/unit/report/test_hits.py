"""What counts in a metric, and what nobody knows."""

import pytest

from ptxbench.records import Outcome, Target, Verdict
from ptxbench.report.hits import is_hit, speed_unknown
from ptxbench.verdict import Flag
from tests.unit.report.reports import INFRASTRUCTURE, UNKNOWN, WRONG, made

UNTIMED = made(measured=False)
WITHHELD = made()
BLIND = made(0.9, target=Target.UNKNOWN)


@pytest.mark.parametrize(
    ("verdict", "correct", "inst", "above", "both"),
    [
        (made(0.9), True, True, True, True),
        (made(0.8), True, True, False, False),
        (made(0.9, target=Target.NOT_EXECUTED), True, False, True, False),
        (BLIND, True, None, True, None),
        (made(0.7, target=Target.UNKNOWN), True, None, False, False),
        (UNTIMED, True, True, None, None),
        (WITHHELD, True, True, False, False),
        (UNKNOWN, None, None, None, None),
        (WRONG, False, False, False, False),
        (INFRASTRUCTURE, False, False, False, False),
    ],
)
def test_a_turn_counts_or_not_or_nobody_knows(
    verdict: Verdict, correct: bool | None, inst: bool | None, above: bool | None, both: bool | None
) -> None:
    assert is_hit(verdict) is correct
    assert is_hit(verdict, inst=True) is inst
    assert is_hit(verdict, above=0.8) is above
    assert is_hit(verdict, inst=True, above=0.8) is both


def test_a_speed_is_unknown_where_nobody_measured_it() -> None:
    assert speed_unknown(UNTIMED)
    assert not speed_unknown(WITHHELD)
    assert not speed_unknown(made(0.9))
    assert speed_unknown(made(outcome=Outcome.UNKNOWN))


def test_what_disturbed_the_device_is_held_against_nobody() -> None:
    """Another process, or a clock that the hardware lowered: the speed was not measured, and it is not the kernel's."""
    disturbed = WITHHELD.model_copy(update={"flags": (Flag.DISTURBED.value, Flag.CLOCK_DISAGREEMENT.value)})
    assert speed_unknown(disturbed)
    assert is_hit(disturbed, above=0.8) is None
    assert is_hit(disturbed) is True
    caught = WITHHELD.model_copy(update={"flags": (Flag.DISTURBED.value, Flag.IMPLAUSIBLE.value)})
    assert is_hit(caught, above=0.8) is False
