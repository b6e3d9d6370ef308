"""Rounding, causes and the verdict, on cases worked out by hand."""

from __future__ import annotations

import pytest

from privsyn.data_contracts.evaluation import Evaluation, OneWay
from privsyn.evaluation.report.page import (
    compare_to_sample,
    explain_column,
    format_number,
    format_part,
    format_percent,
    list_worst_columns,
    list_worst_pairs,
    make_sentence,
    write_verdict,
)
from tests.support.evaluations import make_evaluation


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.13149, "0.131"),
        (1.0, "1"),
        (17_137.0, "17,137"),
        (893.27, "893.3"),
        (2_345.6, "2,346"),
        (0.000021, "2.1e-05"),
        (-0.5, "-0.5"),
        (12_345_678.0, "12,345,678"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.124, "12 %"), (0.0996, "10 %"), (0.0994, "9.9 %"), (0.004, "0.4 %"), (1e-6, "less than 0.01 %")],
)
def test_percentages_have_two(share: float, text: str) -> None:
    assert format_percent(share) == text


def test_parts_and_sentences() -> None:
    assert (format_part(0.03, 0.12), format_part(0.0, 0.0)) == ("25 %", "0 %")
    assert [make_sentence(t) for t in ("no hold-out", "Yes.", "", "why?")] == ["No hold-out.", "Yes.", "", "Why?"]


@pytest.mark.parametrize(
    ("l1", "noise", "cause"), [(0.2, 0.1, "noise"), (0.21, 0.1, "synthesis"), (0.0, None, "not known"), (0, 0, "noise")]
)
def test_a_column_is_noise_up_to_twice_the_expected(l1: float, noise: float | None, cause: str) -> None:
    column = OneWay(
        column="a", ordered=True, labels=("x",), real=(1.0,), synthetic=(1.0,), noise_sd=None, l1=l1, noise_l1=noise
    )
    assert explain_column(column) == cause


def _changed(evaluation: Evaluation, **changes: object) -> Evaluation:
    return evaluation.model_copy(update=changes)


def test_the_verdict_of_two_columns() -> None:
    evaluation = make_evaluation(2)
    first, second = evaluation.one_ways
    pair = evaluation.pairs[0].model_copy(update={"l1": 0.08, "cause": "not selected"})
    noisy = first.model_copy(update={"l1": 0.1, "noise_l1": 0.09})
    off = second.model_copy(update={"l1": 0.1, "noise_l1": 0.01})
    # An L1 of 0.08: 4 % of the rows would have to be others; the fake metric of pairs has a subsample of 12.4 %.
    assert write_verdict(_changed(evaluation, one_ways=(noisy, off), pairs=(pair,))) == (
        "On average 4 % of the rows would have to be different for a table of two columns to agree with the real one, "
        "about as close as a random sample of 12 % of the real rows; 1 of 2 columns on their own are within the noise; "
        "the worst pair is age with education (the pair was not selected for measuring)."
    )
    assert "all 2 columns on their own are within the noise" in write_verdict(
        _changed(evaluation, one_ways=(noisy, noisy))
    )


def test_what_no_sample_was_small_enough_for_is_not_called_as_close() -> None:
    evaluation = make_evaluation(2)
    metrics = tuple(m.model_copy(update={"subsample": 0.01}) for m in evaluation.release.metrics)
    worst = evaluation.release.model_copy(update={"metrics": metrics})
    text = write_verdict(_changed(evaluation, scores=(worst, *evaluation.scores[1:])))
    assert "no closer than a random sample of 1 % of the real rows" in text and "as close as" not in text
    assert compare_to_sample(0.011) == "as close as a random sample of 1.1 % of the real rows"


def test_the_verdict_without_pairs_noise_or_columns() -> None:
    evaluation = make_evaluation(1)
    one = evaluation.one_ways[0].model_copy(update={"l1": 0.02, "noise_l1": None})
    bare = evaluation.release.model_copy(update={"metrics": ()})
    assert write_verdict(_changed(evaluation, one_ways=(one,), scores=(bare,))) == (
        "On average 1 % of the rows would have to be different for a table of one column to agree with the real one."
    )
    assert write_verdict(_changed(evaluation, one_ways=(), scores=(bare,))) == "There is no column to compare."


@pytest.mark.parametrize(
    ("real", "synthetic", "subject"),
    [(0, 5, "The real table has"), (5, 0, "The synthetic table has"), (0, 0, "The real and the synthetic table have")],
)
def test_the_verdict_of_a_table_without_rows_says_only_that(real: int, synthetic: int, subject: str) -> None:
    evaluation = make_evaluation(2)
    release = evaluation.release.model_copy(update={"rows": synthetic})
    empty = _changed(evaluation, rows_real=real, scores=(release,))
    assert write_verdict(empty) == f"{subject} no rows: how close the two are cannot be said."


def test_worst_first() -> None:
    evaluation = make_evaluation(22)
    assert [o.l1 for o in list_worst_columns(evaluation)] == sorted((o.l1 for o in evaluation.one_ways), reverse=True)
    same = [p.model_copy(update={"association_real": 0.1, "association_synthetic": 0.1}) for p in evaluation.pairs]
    alike = _changed(evaluation, pairs=tuple(same))
    assert [p.l1 for p in list_worst_pairs(alike)] == sorted((p.l1 for p in alike.pairs), reverse=True)


def test_a_lost_correlation_is_worse_than_rows_in_wrong_cells_and_is_said() -> None:
    evaluation = make_evaluation(3)
    pairs = [p.model_copy(update={"association_real": None, "l1": 0.3}) for p in evaluation.pairs]
    lost = {"association_real": 0.95, "association_synthetic": 0.23, "l1": 0.05, "cause": "noise"}
    pairs[-1] = pairs[-1].model_copy(update=lost)
    changed = _changed(evaluation, pairs=tuple(pairs))
    assert list_worst_pairs(changed)[0] == pairs[-1]
    worst = pairs[-1]
    said = f"the worst pair is {worst.a} with {worst.b}, whose association went from 0.95 to 0.23 (mostly noise)"
    assert said in write_verdict(changed)
