"""Persons are taken so often that their rows have the measured shares, and each once where noise hides these."""

from __future__ import annotations

import numpy as np

from privsyn.tasks.panels.choose_persons import choose_persons


def make_rows(persons: int = 4_000) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of persons with 1 to 5 rows, a constant and a column that changes."""
    rng = np.random.default_rng(1)
    rows = rng.integers(1, 6, persons)
    person = np.repeat(np.arange(persons), rows)
    sex = np.repeat((rng.random(persons) < 0.5).astype(np.uint8), rows)
    return person, {"sex": sex, "job": rng.integers(0, 4, len(person)).astype(np.uint8)}


def test_rows_of_the_persons_taken_have_the_measured_shares() -> None:
    person, codes = make_rows()
    wanted = {
        "sex": (np.array([4_000.0, 6_000.0]), 10.0),
        "job": (np.array([3_000.0, 3_000.0, 2_000.0, 2_000.0]), 10.0),
    }
    times = choose_persons(person, codes, wanted, 0)
    assert (times >= 0).all()
    assert abs(times.sum() - len(times)) < 0.01 * len(times)
    for a, (counts, _) in wanted.items():
        made = np.bincount(codes[a], weights=times[person])
        assert np.abs(made / made.sum() - counts / counts.sum()).max() < 0.003
    before, after = (np.bincount(np.bincount(person), weights=w) / w.sum() for w in (np.ones(len(times)), times))
    assert np.abs(before - after).max() < 0.003, "persons keep their numbers of rows"


def test_where_noise_hides_the_shares_every_person_is_taken_once() -> None:
    person, codes = make_rows()
    assert (choose_persons(person, codes, {"sex": (np.array([4_000.0, 6_000.0]), 1e5)}, 0) == 1).all()
    assert (choose_persons(person, codes, {"sex": (np.array([-40.0, -60.0]), 1.0)}, 0) == 1).all()
    assert (choose_persons(person, codes, {}, 0) == 1).all()


def test_a_code_that_no_row_has_changes_no_person() -> None:
    """A share that cannot be had is not waited for, and the others are."""
    person, codes = make_rows()
    counts = np.array([3_000.0, 3_000.0, 2_000.0, 2_000.0, 500.0])
    times = choose_persons(person, codes, {"job": (counts, 10.0)}, 0)
    made = np.bincount(codes["job"], weights=times[person]) / times[person].sum()
    assert np.abs(made - counts[:4] / counts[:4].sum()).max() < 0.02


def test_no_person_makes_no_person() -> None:
    none = np.empty(0, np.int64)
    assert choose_persons(none, {"sex": none}, {"sex": (np.array([1.0, 2.0]), 1.0)}, 0).shape == (0,)


def test_groups_of_persons_come_out_as_they_should() -> None:
    person, own = np.repeat(np.arange(1_000), 2), np.arange(1_000) % 2
    should = (np.arange(1_000) % 10 < 7).astype(np.int64)
    times = choose_persons(person, {}, {}, 0, [(own, should)])
    assert abs(times[own == 1].sum() / times.sum() - 0.7) < 0.02
    assert abs(times.sum() - 1_000) < 40
    none = np.empty(0, np.int64)
    assert choose_persons(none, {}, {}, 0, [(none, none)]).shape == (0,)
