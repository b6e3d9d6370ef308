"""What is simulated: releases of the model by its steps, rows that have the released counts, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.answers.question import estimate_best_linear
from privsyn.answers.simulated import (
    answer_function,
    answer_regression,
    iterate_replicates,
    make_replicate,
    refit_rows,
    remake_rows,
)
from tests.support.answered import released, spec, table
from tests.support.examples import keep_first

ROWS = table(3_000)


@pytest.mark.parametrize("mechanism", ["privsyn", "independent", "adaptive", "mst", "privbayes", "aim"])
@pytest.mark.parametrize("epsilon", keep_first([3.0, 0.2]))
def test_the_released_counts_make_the_released_rows_again(mechanism: str, epsilon: float) -> None:
    asked = spec(epsilon, synthesis={}, mechanism={"name": mechanism})
    found = released(ROWS, asked, 5)
    again = remake_rows(found, found.measured)
    assert again.cast(found.table.schema).equals(found.table)
    assert not make_replicate(found, 0).cast(found.table.schema).equals(found.table)


def test_rows_get_the_counts_that_were_released() -> None:
    found = released(ROWS, spec(0.3), 5)
    linear = estimate_best_linear(found, ("region", "happy"))
    assert linear is not None
    wanted = np.maximum(linear.cells, 0).reshape(found.domain.shape(("region", "happy")))
    fitted = refit_rows(found, ["happy", "region"]).select(["region", "happy"]).to_pandas()
    before = found.table.select(["region", "happy"]).to_pandas()
    labels = found.codecs["region"].labels()
    off, was = 0.0, 0.0
    for code, label in enumerate(labels[: wanted.shape[0]]):
        for happy in (0, 1):
            count = wanted[code, happy]
            off += abs(((fitted.region == label) & (fitted.happy == bool(happy))).sum() - count)
            was += abs(((before.region == label) & (before.happy == bool(happy))).sum() - count)
    assert off < was / 2


def test_what_the_rows_lost_of_the_counts_is_part_of_the_error() -> None:
    found = released(ROWS, spec(0.3), 5)
    rate = lambda rows: rows[rows.region == "north"].happy.mean()  # noqa: E731
    answer = answer_function(found, rate, ["region", "happy"], 0.95, lambda done, total: None)
    own = rate(found.table.select(["region", "happy"]).to_pandas())
    noise = np.sqrt(np.mean([(rate(t.to_pandas()) - own) ** 2 for t in iterate_replicates(found)]))
    moved = rate(refit_rows(found, ["region", "happy"]).to_pandas()) - own
    assert moved != 0 and answer.std_error[0] >= np.hypot(noise, moved) * (1 - 1e-9)


@pytest.mark.slow
def test_a_logistic_regression_has_no_interval_where_cut_noise_outweighs_the_rarer_value() -> None:
    for epsilon, known in ((0.1, False), (20.0, True)):
        found = released(ROWS, spec(epsilon), 5)
        answer, kind = answer_regression(found, "happy ~ region", "logistic", 0.95, lambda done, total: None)
        assert kind == "logistic" and np.isfinite(answer.estimate).all()
        assert (answer.source, bool(np.isfinite(answer.low).all())) == (("simulated" if known else "not known"), known)
        assert known == (answer.why == "") and not answer.missing
