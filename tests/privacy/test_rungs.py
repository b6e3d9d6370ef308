"""Bug classes 2, 5 and 6 of the first look at rungs: its sensitivity, and what cells follow from.

It does not see person_id, linked rows or linked tables, nor which rows of a person are kept: records_per_person of 1
and 2, two columns with one description, and tables of at most one row and the rows of one person.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, get_step
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.rung_steps import RUNG_COUNTS
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.rungs import choose_cells, list_looked_at
from privsyn.tasks.kernels.counting import CodeTable
from tests.support.specs import make_spec
from tests.unit.tasks.estimation.test_frequent_values import noisy_counts
from tests.unit.tasks.estimation.test_rungs import WEIGHT, look
from tests.unit.tasks.estimation.test_single_values import plan_one

VALUES = (3, 150, 170)


@cache
def plan_look(records: int) -> tuple[Request, ReleaseStep, list[Query]]:
    request = Request(make_spec({"x": WEIGHT, "y": WEIGHT}, unit={"records_per_person": records}))
    step = get_step(build_steps(request), RUNG_COUNTS)
    assert isinstance(step, ReleaseStep)
    return request, step, step.plan(request, Inputs({}), step.rho(request))


def count(rows: Sequence[int], records: int = 1) -> np.ndarray:
    """The exact counts of the cells of x among these rows."""
    request, step, queries = plan_look(records)
    batch = pa.record_batch({name: pa.array(rows, pa.int64()) for name in ("x", "y")})
    codes = encode_batch(batch, request.encoding, Repairs())
    return next(iter(step.exact(request, Inputs({}), CodeTable.from_arrow([codes], request.encoding.domain), queries)))


@pytest.mark.parametrize("records", [1, 2])
def test_05_rough_counts_of_cells(records: int) -> None:
    """The declared k is never exceeded, and is reached."""
    _, _, queries = plan_look(records)
    assert [q.sensitivity for q in queries] == [records, records]
    moved = [
        float(np.linalg.norm(count([*rows, *added], records) - count(rows, records)))
        for rows in combinations_with_replacement(VALUES, 1)
        for added in combinations_with_replacement(VALUES, records)
    ]
    assert max(moved) == records


def test_05_mutant_rungs_counted_with_pairs_of_them() -> None:
    """Planted mutant: a tree of rungs and of pairs of these, at the price of one histogram."""
    _, _, queries = plan_look(1)
    tree = [np.append(counts, counts[:-1] + counts[1:]) for counts in (count([3]), count([3, 150]))]
    assert np.linalg.norm(tree[1] - tree[0]) > queries[0].sensitivity


def test_06_all_columns_together_cost_their_budget() -> None:
    request, step, queries = plan_look(2)
    assert Fraction(99, 100) * step.rho(request) < sum_rho(queries) <= step.rho(request)


def test_02_mutant_cells_found_by_the_rows() -> None:
    """Planted mutant: cells follow from exact counts, so that one row shows in what is asked from then on."""
    made = plan_one(WEIGHT)
    exact = [noisy_counts(made, {100: 1_000, 9_000: far}) for far in (49, 50)]
    before, after = (choose_cells(list_looked_at(made), look(y, 10.0), {"x": 10.0}) for y in exact)
    assert before != after
    request, _, _ = plan_look(1)
    find = get_step(build_steps(request), "choose_cells")
    assert {name.split(".")[0] for name in find.inputs} == {RUNG_COUNTS}
