"""Errors in three vocabularies, copies of them about another field, and the words for a budget."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest

from privsyn.base.errors import (
    BudgetRefusedError,
    ContractError,
    LedgerMissingError,
    PeriodReleasedError,
    PrivsynError,
    RequestError,
)
from privsyn.base.wording import API, Vocabulary, describe_epsilon, describe_use, format_share, mention, refer_to_action
from privsyn.cli.common import COMMAND_LINE
from privsyn.flows.private_errors import FORM


@pytest.mark.parametrize(
    ("error", "command_line", "form", "api"),
    [
        (
            RequestError("a period is drawn once", "Leave out one of them", "release.fresh"),
            "--fresh: a period is drawn once. Leave out one of them.",
            "the field Fresh of the run form: a period is drawn once. Leave out one of them.",
            "fresh: a period is drawn once. Leave out one of them.",
        ),
        (
            RequestError("the table is lost", "Restore it, or " + refer_to_action("redraw") + " to draw new noise"),
            "the table is lost. Restore it, or run with --fresh to draw new noise.",
            "the table is lost. Restore it, or run again with the field Fresh of the run form ticked to draw new "
            "noise.",
            "the table is lost. Restore it, or release again with `fresh=True` to draw new noise.",
        ),
        (
            LedgerMissingError("/l.sqlite"),
            "the ledger /l.sqlite is missing. Restore it from a backup, or set PRIVSYN_LEDGER to where it is; a new "
            "one would forget what was spent.",
            "the ledger /l.sqlite is missing. Restore it from a backup, or set PRIVSYN_LEDGER of the worker to where "
            "it is; a new one would forget what was spent.",
            "the ledger /l.sqlite is missing. Restore it from a backup, or set PRIVSYN_LEDGER to where it is; a new "
            "one would forget what was spent.",
        ),
        (
            RequestError("is `a`, but must be a number", "Correct the value", "columns.age.min", 7),
            *["columns.age.min (line 7): is `a`, but must be a number. Correct the value."] * 3,
        ),
        (
            RequestError("is not there", "Name it with " + mention("evaluate.data"), "evaluate.data"),
            "--data: is not there. Name it with --data.",
            "the field Data of the run form: is not there. Name it with the field Data of the run form.",
            "data: is not there. Name it with data.",
        ),
        (
            RequestError("goes wrong", "Look at it with " + refer_to_action("verify_ledger")),
            "goes wrong. Look at it with `privsyn ledger verify`.",
            "goes wrong. Look at it with the flow `budget-report`.",
            "goes wrong. Look at it with `privsyn.ledger().verify()`.",
        ),
    ],
)
def test_an_error_in_three_vocabularies(error: PrivsynError, command_line: str, form: str, api: str) -> None:
    assert error.paragraph(COMMAND_LINE) == command_line
    assert error.paragraph(FORM) == form
    assert error.paragraph() == str(error) == error.paragraph(API) == api


def test_an_error_may_have_a_vocabulary_of_its_own() -> None:
    error = RequestError("is wrong", field="release.fresh")
    error.vocabulary = FORM
    assert str(error) == "the field Fresh of the run form: is wrong."
    assert error.paragraph(COMMAND_LINE) == "--fresh: is wrong."


def test_a_word_that_is_missing_fails() -> None:
    for text in (mention("release.frehs"), refer_to_action("look_it_up")):
        with pytest.raises(LookupError, match="no word"):
            RequestError("a", "b " + text).paragraph(COMMAND_LINE)
    with pytest.raises(LookupError, match="no word"):
        str(RequestError("a", field="settings.legder"))
    with pytest.raises(LookupError, match="no word"):
        str(RequestError("a", field="release.fresh").paragraph(Vocabulary({}, {})))


def test_about_another_field_its_texts_follow_and_the_first_error_stays() -> None:
    cure = "At most 0.5 fits: lower " + mention("privacy.epsilon") + " to that"
    first = BudgetRefusedError("the budget does not allow this", cure, "budget", 3)
    second = first.about("evaluate.epsilon_report", {"privacy.epsilon": "evaluate.epsilon_report"})
    assert second.paragraph(COMMAND_LINE) == (
        "--epsilon-report: the budget does not allow this. At most 0.5 fits: lower --epsilon-report to that."
    )
    assert type(second) is BudgetRefusedError
    assert (
        str(first)
        == "budget (line 3): the budget does not allow this. At most 0.5 fits: lower privacy.epsilon to that."
    )


def test_what_people_write_is_never_taken_for_a_mention() -> None:
    path = "{field:release.fresh}{} %s ⟦x⟧"
    assert str(RequestError(f"there is no file {path}")) == f"there is no file {path}."


def test_line_breaks_and_marks_do_not_print() -> None:
    assert str(RequestError("a\nb", "c\x1b[1m")) == "a\ufffdb. c\ufffd[1m."


@pytest.mark.parametrize(
    "error",
    [
        RequestError("a", "b " + mention("settings.out"), "data", 2),
        PeriodReleasedError("people", "2026-11", "people-1"),
        LedgerMissingError("here"),
        ContractError("a", [{"b": "c"}], "d"),
    ],
)
def test_errors_are_copied_and_pickled_whole(error: PrivsynError) -> None:
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - what was just made
        assert (type(same), str(same), vars(same)) == (type(error), str(error), vars(error))


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
