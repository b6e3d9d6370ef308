"""Answers in groups of rows, by counted columns and by columns that rules compute; about rows or persons."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from privsyn.answers.answer_table import NOT_A_SAMPLE, POPULATION_NOTE, answer_table, collect_labels
from privsyn.answers.cell_weights import split_by_level
from privsyn.answers.computed import ask_by_levels, check_column, list_levels
from privsyn.answers.conditions import Condition
from privsyn.answers.counted import Estimates, answer_counts, answer_shares
from privsyn.answers.question import Question
from privsyn.answers.released_counts import ReleasedCounts, describe_kept_rows, describe_known_totals

if TYPE_CHECKING:
    import pandas as pd

Ask = Callable[[tuple[str, ...], "str | Condition | None"], "pd.DataFrame"]
"""A question by counted columns, where a condition holds."""


def answer_in_groups(
    released: ReleasedCounts, groups: tuple[str, ...], where: str | None, subject: str, ask: Ask
) -> pd.DataFrame:
    """Return the answers in groups, by counted columns and by columns that rules compute."""
    checked = [check_column(released, name) for name in groups]
    if all(name in released.columns for name in checked):
        return ask(groups, where)
    table = ask_by_levels(released, groups, where, ask)
    table.attrs["about"] = subject
    return table


def ask_counts(released: ReleasedCounts, level: float, subject: str, population: bool = False) -> Ask:
    """Return the question "how many rows are there"."""

    def ask(by: tuple[str, ...], where: str | Condition | None) -> pd.DataFrame:
        question = Question.of(released, by, where, population=population)
        return build_answer_table(question, answer_counts(question, level), subject)

    return ask


def ask_shares(released: ReleasedCounts, event: Condition, level: float, subject: str, population: bool = False) -> Ask:
    """Return the question "for what share of rows does ``event`` hold"."""

    def ask(by: tuple[str, ...], where: str | Condition | None) -> pd.DataFrame:
        question = Question.of(released, by, where, event=event, population=population)
        return build_answer_table(question, answer_shares(question, event, level), subject)

    return ask


def list_levels_within(
    released: ReleasedCounts, column: str, groups: tuple[str, ...], where: str | None
) -> list[tuple[str, Condition]]:
    """Return the levels of a column, with the condition of each, as an answer in ``groups`` distinguishes them."""
    if column not in released.columns:
        return list_levels(released, column)
    behind = released.language.list_attributes(groups)
    return split_by_level(Question.of(released, (), where, (column, *behind)).cells, column)


def build_answer_table(question: Question, estimates: Estimates, subject: str) -> pd.DataFrame:
    """Return the table of answers to a question, with the notes on them."""
    sources = np.where(np.isnan(estimates.low), "not known", estimates.source)
    table = answer_table(collect_labels(question.by, estimates.labels), *estimates[1:5], sources.tolist(), subject)
    table.attrs["words"] += [
        *describe_known_totals(question.released, question.columns),
        *describe_kept_rows(question.released),
    ]
    if question.population:
        table.attrs["words"] = [POPULATION_NOTE if word == NOT_A_SAMPLE else word for word in table.attrs["words"]]
    return table
