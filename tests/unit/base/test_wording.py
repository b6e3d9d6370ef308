"""Texts with fields in them."""

from __future__ import annotations

from privsyn.base.wording import Phrase, mention


def test_phrases_join_from_both_sides() -> None:
    phrase = "a " + mention("data") + " b" + mention("release.fresh")
    assert isinstance(phrase, Phrase)
    assert str(phrase) == "a data bfresh"
