"""Texts with fields in them."""

from __future__ import annotations

from privsyn.base.wording import API, join_sentences, mention, refer_to_action


def test_a_vocabulary_words_the_fields_and_actions_of_a_text() -> None:
    text = f"a {mention('data')} b" + mention("release.fresh") + ", or " + refer_to_action("draft_spec")
    assert API.text(text) == "a data bfresh, or `privsyn.draft_spec()`"


def test_sentences_end_in_one_mark_also_after_a_field() -> None:
    assert API.text(join_sentences(["Is it?", "", "no. ", mention("data")])) == "Is it? no. data."
