"""Bug class: a public prior that lets private rows in, or a score against it that one record moves by more than one.

It does not see a prior beside person_id, linked rows, linked tables or itemsets, nor one whose publisher had the
private rows.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step, check_shares
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.estimation.recode import AttributeRecode, recode_to_table
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.prior_pairs import PriorPairs
from privsyn.tasks.steps import score_columns
from tests.support.releases import few
from tests.support.specs import STATED_PRIOR, make_spec, mechanism_fields, people, with_public_inputs

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
    return score_columns.compute_l1_distance(counts, reference.counts("a", "b"))


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
        spec = with_public_inputs(few(data, prior={"table": "last_year.parquet", "statement": STATEMENT}), tmp_path)
        request = Request(spec, tuple(spec.released_columns))
        assert request.prior is not None
        found.append(
            (
                {s.name: (s.key_json(request), s.inputs) for s in build_steps(request)},
                [column.tolist() for column in request.prior.columns],
            )
        )
    assert found[0] == found[1] == found[2]
    without = Request(few("absent.parquet"), ("age", "region"))
    using = {s.name for s in build_steps(request) if "prior" in s.key_json(request)}
    assert using == {"compress_domain", "indif_scores", "make_consistent", "synthesize", "append_attributes"}
    assert not any("prior" in s.key_json(without) for s in build_steps(without))


# the mechanism `prior`

THREE = {name: {"kind": "boolean"} for name in ("a", "b", "c")}
SIZES = dict.fromkeys(THREE, 2)


def rows_of(codes: np.ndarray) -> CodeTable:
    """Rows of three columns with two codes each."""
    return CodeTable(Domain.of(SIZES), tuple(np.ascontiguousarray(c) for c in codes.astype(np.uint8).T))


def asked_of(public: CodeTable) -> list[list[list[str]]]:
    """What is counted in large groups, of groups and in them, by the mechanism `prior` with this public table."""
    request = Request(make_spec(THREE, **mechanism_fields("prior", "c")), tuple(THREE), prior_rows=public)
    (step,) = (s for s in build_steps(request) if s.name == "public_workload")
    recode = recode_of(SIZES, 40.0, np.random.default_rng(1))
    table = recode_to_table(recode, {a: ["no", "yes"] for a in SIZES})
    assert step.run is not None and step.inputs == ("compress_domain.recode",)
    made = step.run(request, Inputs({"compress_domain.recode": lambda: table}), lambda done, total: None)
    return [made[name]["attributes"].to_pylist() for name in ("large", "groups", "in_groups")]  # type: ignore[index]


RELATED = np.repeat([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0]], [2, 1, 1, 2, 1], axis=0)
"""a and b go together, and c with neither."""


def test_07_what_a_prior_asks_follows_from_the_public_table_and_released_tables() -> None:
    """The step gets no access to rows, and reads one released table; another public table changes what it asks."""
    request = Request(make_spec(THREE, **mechanism_fields("prior", "c")), tuple(THREE))
    (step,) = (s for s in build_steps(request) if s.name == "public_workload")
    released = {
        f"{s.name}.{t}" for s in build_steps(request) for t, c in s.outputs.items() if c.zone.value == "released"
    }
    assert set(step.inputs) <= released and STATED_PRIOR["sha256"] in step.key_json(request)
    assert asked_of(rows_of(RELATED)) == [[["a", "b"]], [["c"]], [["a", "c"]]]
    apart = np.array([[i, j, k] for i in range(2) for j in range(2) for k in range(2)])
    assert asked_of(rows_of(apart)) == [[["a"], ["b"]], [["c"]], [["a", "c"], ["b", "c"]]]


def test_07_mutant_a_workload_of_the_private_rows() -> None:
    """Planted mutant: the private rows in the public table's place, so that one record changes what is asked."""
    private = np.vstack([np.repeat([[0, 0, 0], [1, 1, 1]], 2, axis=0), np.repeat([[0, 1, 0], [1, 0, 1]], 1, axis=0)])
    asked = [asked_of(rows_of(np.delete(private, i, axis=0))) for i in range(len(private))]
    assert any(other != asked_of(rows_of(private)) for other in asked)


def test_08_the_four_looks_of_a_prior_have_a_quarter_each() -> None:
    request = Request(make_spec(THREE, **mechanism_fields("prior", "c")), tuple(THREE))
    shares = [s.share for s in build_steps(request) if isinstance(s, ReleaseStep)]
    assert shares == [Fraction(1, 4)] * 4


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 2)])
def test_08_mutant_a_level_that_has_another_price(share: Fraction) -> None:
    """Planted mutant: the counts in small groups are taken for free, or at twice their part."""
    request = Request(make_spec(THREE, **mechanism_fields("prior", "c")), tuple(THREE))

    def other(step: Step) -> Step:
        return replace(step, shares={**step.shares, step.name: share}) if step.name == "measure_in_groups" else step

    with pytest.raises(ValueError, match="must sum to 1"):
        check_shares([other(step) for step in build_steps(request)])
