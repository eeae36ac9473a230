"""Colours that readers of every kind of colour vision tell apart."""

import itertools
import math

import pytest

from ptxbench.records import Outcome
from ptxbench.report.page.palette import (
    DARK,
    NOT_TAKEN,
    OUTCOMES,
    SURFACE,
    faded,
    luminance,
    needs_white,
    subject_looks,
)

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
D65 = (0.95047, 1.0, 1.08883)


def seen(colour, matrix):
    """CIELAB coordinates of a colour as that vision sees it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, linear, strict=True)))) for row in matrix
    )
    xyz = (
        0.4124 * red + 0.3576 * green + 0.1805 * blue,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        0.0193 * red + 0.1192 * green + 0.9505 * blue,
    )
    ratios = [value / white for value, white in zip(xyz, D65, strict=True)]
    fx, fy, fz = (ratio ** (1 / 3) if ratio > 0.008856 else 7.787 * ratio + 16 / 116 for ratio in ratios)
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_outcome_has_a_look_of_its_own() -> None:
    assert set(OUTCOMES) == set(Outcome)
    assert len({look.colour for look in OUTCOMES.values()}) == len(Outcome)
    assert len({look.glyph for look in OUTCOMES.values()}) == len(Outcome)


@pytest.mark.parametrize("vision", VISIONS)
def test_outcomes_are_told_apart(vision) -> None:
    places = {outcome: seen(look.colour, VISIONS[vision]) for outcome, look in OUTCOMES.items()}
    distances = {pair: math.dist(places[pair[0]], places[pair[1]]) for pair in itertools.combinations(places, 2)}
    assert min(distances.values()) >= 13, min(distances, key=lambda pair: distances[pair])


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_stand_out_from_the_page_and_their_glyphs_from_them(outcome) -> None:
    colour = OUTCOMES[outcome].colour
    assert contrast(colour, SURFACE) >= 1.6
    assert contrast(colour, DARK[SURFACE]) >= 2.3
    assert contrast(colour, "#ffffff" if needs_white(colour) else "#111111") >= 4.5


def test_models_beyond_the_palette_differ_by_their_marks() -> None:
    looks = subject_looks([f"model {number}" for number in range(40)])
    assert len(set(looks.values())) == 40


def test_what_never_happened_is_no_outcome_and_has_a_dark_colour() -> None:
    assert not {look.colour for look in NOT_TAKEN.values()} & {look.colour for look in OUTCOMES.values()}
    assert {look.colour for look in NOT_TAKEN.values()} <= set(DARK)
    assert faded("#102030", 0.25) == "rgba(16,32,48,0.25)"
