"""The words for a budget: shares that are never rounded to nothing or all, and releases that still fit."""

from __future__ import annotations

from fractions import Fraction

import pytest

from privsyn.base.wording import describe_epsilon, describe_use, format_share


@pytest.mark.parametrize(
    ("percent", "words"),
    [
        ("0", "0 %"),
        ("1/100000", "under 0.001 %"),
        ("3/100", "0.03 %"),
        ("0.934", "0.93 %"),
        ("0.9999", "1 %"),
        ("6.44", "6.4 %"),
        ("25", "25 %"),
        ("99.97", "99.97 %"),
        ("99.999", "over 99.99 %"),
        ("100", "100 %"),
        ("100.2", "over 100 %"),
        ("134", "134 %"),
    ],
)
def test_only_nothing_is_0_and_only_the_whole_is_100(percent: str, words: str) -> None:
    assert format_share(Fraction(percent), Fraction(100)) == words


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (None, "40 % used"),
        ("2", "40 % used; 30 more releases like the last one fit"),
        ("40", "40 % used; 1 more release like the last one fits"),
        ("61", "40 % used; no further release like the last one fits"),
        ("1/100", "40 % used; 6,000 more releases like the last one fit"),
    ],
)
def test_the_used_share_comes_first_and_then_what_still_fits(price: str | None, words: str) -> None:
    assert describe_use(Fraction(40), Fraction(100), None if price is None else Fraction(price)) == words


def test_an_epsilon_stands_beside_the_caps_own() -> None:
    assert describe_epsilon(0.9296, 4.0, 1e-8) == "epsilon 0.93 of 4 at delta 1e-08"
