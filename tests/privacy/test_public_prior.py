"""Bug class: a public prior that lets private rows in, or a score against it that one record moves by more than one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.mechanisms.registry import steps_of
from privsyn.run.request import Request
from privsyn.spec.public_priors import with_prior
from privsyn.tasks import indif_scores
from privsyn.tasks.compress_domain import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.prior_pairs import PriorPairs
from tests.support.releases import few
from tests.support.specs import people

STATEMENT = "People of another register, who published their rows themselves."


def recode_of(sizes: dict[str, int], total: float, rng: Any) -> dict[str, AttributeRecode]:
    """A released recoding that keeps every code, with variances as where a public table made some counts surer."""
    found = {}
    for a, n in sizes.items():
        estimate = rng.dirichlet(np.ones(n)) * total
        variance = 1.0 + rng.random(n)
        found[a] = AttributeRecode(np.arange(n, dtype=np.int32), np.ones(n, bool), np.ones(n), estimate, variance)
    return found


def score(table: np.ndarray, reference: Any) -> int:
    counts = np.zeros((4, 5), dtype=np.int64)
    np.add.at(counts, (table[:, 0], table[:, 1]), 1)
    return indif_scores.l1_distance(counts, reference.counts("a", "b"))


def test_05_scores_against_a_prior() -> None:
    rng = np.random.default_rng(5)
    moved = set()
    for _ in range(20):
        sizes = {"a": 3, "b": 4}
        public = np.column_stack([rng.integers(0, n, 30) for n in sizes.values()])
        rows = CodeTable(Domain.of(sizes), tuple(public[:, i].astype(np.uint8) for i in range(2)))
        reference = PriorPairs.of(rows, recode_of(sizes, 12.0, rng))
        private = np.column_stack([rng.integers(0, n, 12) for n in sizes.values()])
        own = score(private, reference)
        more = [np.vstack([private, [i, j]]) for i in range(3) for j in range(4)]
        for neighbour in [*(np.delete(private, i, axis=0) for i in range(12)), *more]:
            moved.add(abs(score(neighbour, reference) - own))
    assert moved <= {0, 1} and 1 in moved  # indif_scores.REFERENCE_SENSITIVITY


def test_05_mutant_a_prior_of_the_private_rows() -> None:
    """Planted mutant: the reference is made of the private pair itself, so that a record moves all that is expected."""
    rng = np.random.default_rng(6)
    sizes = {"a": 3, "b": 4}

    def own_score(table: np.ndarray, recode: dict[str, AttributeRecode]) -> int:
        rows = CodeTable(Domain.of(sizes), tuple(table[:, i].astype(np.uint8) for i in range(2)))
        return score(table, PriorPairs.of(rows, recode))

    moved = []
    for _ in range(20):
        recode, first = recode_of(sizes, 60.0, rng), rng.integers(0, 3, 12)
        private = np.column_stack([first, first])
        moved += [abs(own_score(np.delete(private, i, axis=0), recode) - own_score(private, recode)) for i in range(12)]
    assert max(moved) > 1


@pytest.mark.usefixtures("places")
def test_01_a_prior_and_its_settings_do_not_follow_the_private_table(save: Any, tmp_path: Path) -> None:
    """With no private table there at all, the public rows and every step's key are those with one or another."""
    pq.write_table(people(40), tmp_path / "last_year.parquet")
    found = []
    for data in (str(tmp_path / "absent.parquet"), save(people(9)), save(people(90), "more.parquet")):
        spec = with_prior(few(data, prior={"table": "last_year.parquet", "statement": STATEMENT}), tmp_path)
        request = Request(spec, tuple(spec.released_columns))
        assert request.prior is not None
        found.append(
            (
                {s.name: (s.settings_json(request), s.inputs) for s in steps_of(request)},
                [column.tolist() for column in request.prior.columns],
            )
        )
    assert found[0] == found[1] == found[2]
    without = Request(few("absent.parquet"), ("age", "region"))
    using = {s.name for s in steps_of(request) if "prior" in s.settings_json(request)}
    assert using == {"compress_domain", "indif_scores", "make_consistent", "synthesize", "append_attributes"}
    assert not any("prior" in s.settings_json(without) for s in steps_of(without))
