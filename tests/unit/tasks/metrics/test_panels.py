"""Survival and regressions of panels, against slow and plain computations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privsyn.tasks.metrics.panels import (
    ALIKE_PERSONS,
    PanelTable,
    _read_regression,
    compare_kinds_of_persons,
    regress_random,
    regress_within,
    survive,
    survive_from_event,
)


def make_table(persons: int = 60, seed: int = 0) -> PanelTable:
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(persons), rng.integers(1, 7, persons))
    own = rng.normal(0, 2, persons)[person]
    x = rng.normal(own / 2, 1.0)
    y = 1.5 * x - own + rng.normal(0, 0.5, len(person))
    x[3] = np.nan
    step = np.arange(len(person))
    job = rng.integers(0, 2, len(person))
    return PanelTable(person, step, {"job": job}, {"job": 2}, {"x": x, "y": y, "job": job.astype(float)})


def test_survival_is_the_product_limit_estimate() -> None:
    table, expected, left = make_table(), [1.0], 1.0
    persons = [table.codes["job"][table.person == p] for p in np.unique(table.person)]
    for k in range(1, max(map(len, persons))):
        at_risk = [c for c in persons if len(c) > k and (c[:k] == c[0]).all()]
        left *= 1 - np.mean([c[k] != c[0] for c in at_risk]) if at_risk else 1.0
        expected.append(left)
    assert np.allclose(survive(table, "job"), expected)


def test_survival_from_an_event_begins_with_the_first_row_that_has_it() -> None:
    table, expected, left = make_table(), [1.0], 1.0
    persons = [list(table.codes["job"][table.person == p]) for p in np.unique(table.person)]
    since = [c[c.index(1) :] for c in persons if 1 in c]
    for k in range(1, max(map(len, since))):
        at_risk = [c for c in since if len(c) > k and all(c[:k])]
        left *= np.mean([c[k] == 1 for c in at_risk]) if at_risk else 1.0
        expected.append(left)
    assert np.allclose(survive_from_event(table, "job", 1), expected)


def test_kinds_of_persons_are_compared_as_in_the_challenge() -> None:
    """By pivot tables, as the challenge's own scorer counts; the limits are those of 20 rows a person."""
    one, other = make_table(), make_table(seed=1)
    rng, off = np.random.default_rng(5), []
    pivots = []
    for table in (one, other):
        rows = pd.DataFrame({"person": table.person, "job": table.codes["job"], "n": 1})
        pivots.append(rows.pivot_table(values="n", index="person", columns="job", aggfunc="count", fill_value=0))
    for _ in range(ALIKE_PERSONS):
        like = pivots[0].to_numpy()[rng.integers(len(pivots[0]))]
        limit = rng.integers(1, 5, endpoint=True, size=2)
        shares = [(np.abs(pivot.to_numpy() - like) <= limit).all(axis=1).mean() for pivot in pivots]
        off.append(abs(shares[0] - shares[1]))
    found = compare_kinds_of_persons(one, other, ["job"], 20, seed=5)
    assert found > 0 and np.isclose(found, np.mean(off))
    assert compare_kinds_of_persons(one, one, ["job"], 20) == 0


def test_slopes_within_persons_are_those_with_a_dummy_of_each() -> None:
    table = make_table()
    y, x, person, spread = _read_regression(table, "y", ["x", "job"])
    dummies = (person[:, None] == np.arange(person.max() + 1)).astype(float)
    slow = np.linalg.lstsq(np.hstack([x, dummies]), y, rcond=None)[0][:2]
    assert np.allclose(regress_within(table, "y", ["x", "job"]), slow * spread)


def test_slopes_of_random_effects_are_generalized_least_squares() -> None:
    """With the variances of Swamy and Arora, by the whole covariance of all rows."""
    table = make_table()
    y, x, person, spread = _read_regression(table, "y", ["x"])
    same = person[:, None] == person
    counts = np.bincount(person)
    means = [np.bincount(person, weights=v) / counts for v in (y, x[:, 0])]
    inner = np.column_stack([x[:, 0] - means[1][person]])
    left = y - means[0][person]
    left = left - inner @ np.linalg.lstsq(inner, left, rcond=None)[0]
    within = left @ left / (len(y) - len(counts) - 1)
    outer = np.column_stack([np.ones(len(counts)), means[1]])
    between = means[0] - outer @ np.linalg.lstsq(outer, means[0], rcond=None)[0]
    own = between @ between / (len(counts) - 2) - within * (1 / counts).mean()
    assert own > 0
    inverse = np.linalg.inv(within * np.eye(len(y)) + own * same)
    design = np.column_stack([np.ones(len(y)), x])
    slow = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ y)
    assert np.allclose(regress_random(table, "y", ["x"]), slow[1:] * spread)


def test_slopes_that_nothing_tells_apart_are_not_known() -> None:
    table = make_table()
    assert np.isnan(regress_within(table, "y", ["x", "x"])).all()
    assert np.isnan(regress_random(table, "y", ["x", "x"])).all()
    none = PanelTable(np.empty(0, int), np.empty(0, int), {"job": np.empty(0, int)}, {"job": 2}, {"y": np.empty(0)})
    assert survive(none, "job").tolist() == [1.0]
    assert regress_random(none, "y", ["y"]).shape == (1,)
