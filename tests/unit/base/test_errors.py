"""Errors in three vocabularies, and copies of them about another field."""

from __future__ import annotations

import copy
import pickle

import pytest

from privsyn.base.errors import (
    BudgetRefusedError,
    ContractError,
    LedgerMissingError,
    PeriodReleasedError,
    PrivsynError,
    RequestError,
)
from privsyn.base.wording import API, Vocabulary, mention, refer_to_action
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
