"""Known totals in codes, and rows that are brought to have them: random totals, shards and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Rows
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode, sum_coarse_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.totals import KNOWN_SIGMA, ExactCounts, KnownTotals, Quotas, hold, seed_generator
from privsyn.tasks.steps.make_consistent import make_consistent
from privsyn.tasks.synthesis.shards import plan_shards
from tests.support.examples import choose_example_count
from tests.support.specs import COLUMNS, make_spec

STATEMENT = "Residents by region, published by the office on 2026-01-01."
BOOLEANS = {**COLUMNS, "wet": {"kind": "boolean"}, "cold": {"kind": "boolean", "nullable": True}}


def totals_of(*stated: dict[str, Any]) -> KnownTotals:
    spec = make_spec(BOOLEANS, totals=[{"statement": STATEMENT, **total} for total in stated])
    return KnownTotals.of(spec.totals, plan(spec))


def table(rng: np.random.Generator, sizes: dict[str, int], rows: int) -> CodeTable:
    return CodeTable(Domain.of(sizes), tuple(rng.integers(0, n, rows).astype(np.uint8) for n in sizes.values()))


def test_totals_are_coded_as_rows_are() -> None:
    known = totals_of(
        {"columns": ["cold", "region"], "counts": [
            {"cold": None, "region": "other", "count": 4}, {"cold": True, "region": "north", "count": 6}]},
        {"columns": ["wet"], "counts": [{"wet": False, "count": 10}], "hold": "close"},
    )  # fmt: skip
    assert known.rows == 10 and list(known.pairs) == [("region", "cold")]
    assert known.one_way["region"].tolist() == [6, 0, 0, 4] and known.one_way["cold"].tolist() == [0, 6, 4]
    assert known.one_way["wet"].tolist() == [10, 0]
    assert [(h.attribute, h.parent) for h in known.exact] == [("region", None), ("cold", "region")]
    recode = known.with_recode({}, ["region", "cold", "wet"])
    assert recode["region"].coarse.tolist() == [0, 2, 2, 1] and recode["region"].size == 2
    (pair,) = known.coarse_pairs(recode)
    assert pair.counts.tolist() == [[6, 0], [0, 4]] and pair.sigma == KNOWN_SIGMA
    assert [h.counts.tolist() for h in known.coarse_exact(recode)] == [[[6, 4]], [[6, 0], [0, 4]]]
    assert known.has(("region", "cold")) and known.has(("wet",)) and not known.has(("region", "wet"))


def test_keys_are_of_the_counts_alone() -> None:
    counts = [{"wet": False, "count": 4}, {"wet": True, "count": 6}]
    one = totals_of({"columns": ["wet"], "counts": counts})
    same = totals_of({"columns": ["wet"], "counts": counts[::-1], "statement": "Words that are others than before."})
    close = totals_of({"columns": ["wet"], "counts": counts, "hold": "close"})
    assert one.key() == same.key() != close.key() and one.key_of_codes() == close.key_of_codes()
    other = totals_of({"columns": ["wet"], "counts": [{"wet": False, "count": 10}]})
    assert other.key() != one.key() and other.key_of_codes() != one.key_of_codes()
    assert totals_of({"rows": 10}).key_of_codes() == totals_of({"rows": 11}).key_of_codes()
    assert totals_of({"rows": 10}).key() != totals_of({"rows": 11}).key()


@st.composite
def trees(draw: st.DrawFn) -> tuple[tuple[ExactCounts, ...], int]:
    """Exact totals of a root and of a chain below it, counted on a random table, with its number of rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, sizes = draw(st.integers(1, 400)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    columns = [rng.integers(0, rng.integers(1, n + 1), rows) for n in sizes]
    held = [ExactCounts("a0", None, np.bincount(columns[0], minlength=sizes[0])[None, :])]
    for i in range(1, len(sizes)):
        counts = np.zeros((sizes[i - 1], sizes[i]), dtype=np.int64)
        np.add.at(counts, (columns[i - 1], columns[i]), 1)
        held.append(ExactCounts(f"a{i}", f"a{i - 1}", counts))
    return tuple(held), rows


@settings(max_examples=choose_example_count(60), deadline=None)
@given(trees(), st.integers(1, 100), st.integers(0, 2**32))
def test_rows_of_all_shards_together_have_the_totals_exactly(
    made: tuple[tuple[ExactCounts, ...], int], shard_rows: int, seed: int
) -> None:
    held, rows = made
    rng = np.random.default_rng(seed)
    sizes = {h.attribute: h.counts.shape[1] for h in held} | {"free": 5}
    quotas = Quotas(held)
    counted = [np.zeros_like(h.counts) for h in held]
    for s in plan_shards(rows, Rows(shard_rows=shard_rows)):
        before = table(rng, sizes, s.rows)
        wanted = quotas.take(s.rows)
        after = hold(before, wanted, seed_generator(s.own_seed))
        assert after.column("free") is before.column("free")
        again = hold(after, wanted, seed_generator(seed))
        assert all((again.column(a) == after.column(a)).all() for a in sizes)  # nothing is left to change
        for h, found in zip(held, counted, strict=True):
            parent = np.zeros(s.rows, int) if h.parent is None else after.column(h.parent)
            np.add.at(found, (parent, after.column(h.attribute)), 1)
        changed = int((after.column("a0") != before.column("a0")).sum())
        surplus = np.bincount(before.column("a0"), minlength=sizes["a0"]) - wanted[0].counts[0]
        assert changed == np.abs(surplus).sum() // 2  # the fewest
    assert all((found == h.counts).all() for h, found in zip(held, counted, strict=True))


def test_every_shard_has_about_its_share() -> None:
    quotas = Quotas([ExactCounts("a", None, np.array([[100, 30, 1]]))])
    parts = [quotas.take(s.rows)[0].counts[0] for s in plan_shards(131, Rows(shard_rows=14))]
    assert np.sum(parts, axis=0).tolist() == [100, 30, 1]
    assert all(abs(part[0] - 10) <= 1 and abs(part[1] - 3) <= 1 for part in parts)
    with pytest.raises(ValueError, match="more than the 0 rows of the totals"):
        quotas.take(1)


def test_consistency_takes_known_counts_as_they_are() -> None:
    known = totals_of({"columns": ["happy"], "counts": [{"happy": False, "count": 40}, {"happy": True, "count": 60}]})
    noisy = AttributeRecode(
        np.arange(2, dtype=np.int32), np.ones(2, bool), np.ones(2), np.array([70.0, 20.0]), np.full(2, 25.0)
    )
    recode = known.with_recode({"wet": noisy}, ["happy", "wet"])
    one_way, variance = sum_coarse_one_ways(recode)
    pair = Marginal(("happy", "wet"), np.array([[30.0, 25.0], [35.0, 2.0]]), 5.0)
    for weight in (1.0, 10.0):
        found = make_consistent(
            one_way, variance, [pair], [5.0], 10, one_way_weight=weight, shrink=weight > 1, known=known
        )
        assert found[0].counts.tolist() == [40, 60]
        assert [m.counts.sum() for m in found] == pytest.approx([100, 100, 100])
        assert found[2].counts.sum(axis=1) == pytest.approx([40, 60], abs=0.5)
