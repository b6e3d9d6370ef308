"""The steps of an itemset release, in the order of PrivBasis: tuple of steps from a public request."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.certificate import Manifest
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import PROFILE_SCHEMA, REPAIRS
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step, fund
from privsyn.extras.itemsets import tables as contracts
from privsyn.extras.itemsets.algorithm import basis_marginals, basis_set, estimates, item_counts, pair_counts
from privsyn.extras.itemsets.algorithm.basis_set import Basis
from privsyn.extras.itemsets.algorithm.estimates import Measured
from privsyn.extras.itemsets.algorithm.item_counts import choose_frequent_items, compute_threshold
from privsyn.extras.itemsets.algorithm.transactions import ROW_SCHEMA, Transactions, gather_transactions
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.itemset_spec_file import read_released_itemset_spec
from privsyn.extras.itemsets.transaction_source import iterate_held_items
from privsyn.pipelines.common_steps import RELEASED, list_released_tables, publish_noisy
from privsyn.tasks.codecs.encode_rows import Repairs

if TYPE_CHECKING:
    import networkx as nx

ROWS = "transactions.transaction_rows"

SHARES = {"item_counts": Fraction(1, 4), "pair_counts": Fraction(1, 4), "basis_marginals": Fraction(1, 2)}
"""Parts of the budget; constants (PrivBasis: .1 for lambda, .4 for items and pairs, .5 for the marginals)."""

ITEMS_MARGIN = 0.8
"""An item is looked at from this part of the count that makes a set frequent: noise may have lowered it."""

PAIR_FLOOR = 2.0
"""Pairs whose count is below so many standard deviations of its noise are not taken for frequent (docs/itemsets.md)."""


@dataclass(frozen=True, kw_only=True)
class TransactionLook(ReleaseStep):
    """A release step over transactions; ``items``: the size of the universe."""

    items: int = 0

    def read_rows(self, request: Request, inputs: Inputs) -> Any:
        """Return the private transactions, to be counted: the look at the data."""
        return Transactions.from_arrow(inputs.batches(ROWS), self.items)


def build_itemset_steps(spec: ItemsetSpec) -> tuple[Step, ...]:
    """Return every step of a release of ``spec``."""
    steps = (
        _read_transactions,
        _measure_items,
        _find_frequent,
        _measure_pairs,
        _choose_bases,
        _measure_marginals,
        _estimate_itemsets,
    )
    return fund([make(spec) for make in steps], SHARES)


def list_certified_steps(manifest: Manifest) -> tuple[Step, ...]:
    """Return the steps of a released folder by its own request, for whoever compares it with the ledger."""
    return build_itemset_steps(read_released_itemset_spec(manifest))


def _read_transactions(spec: ItemsetSpec) -> Step:
    universe = hashlib.sha256(json.dumps(spec.items).encode()).hexdigest()

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        repairs = Repairs()
        rows = inputs.private.check_unchanged(_iterate_rows(spec, inputs, repairs))
        return {
            "transaction_rows": RowStream(ROW_SCHEMA, rows, lambda b: _plan_profile(b, spec)),
            "repairs": repairs.to_table,
        }

    return Step(
        name="transactions",
        title="Transactions",
        kind=StepKind.TRANSFORM,
        inputs=(),
        outputs={"transaction_rows": contracts.TRANSACTION_ROWS, "repairs": REPAIRS},
        settings=lambda r: {
            "layout": spec.layout.model_dump(),
            "universe": universe,
            "max_items": spec.max_items,
            "csv": spec.csv.model_dump(),
        },
        run=run,
        encodes=True,
    )


def _iterate_rows(spec: ItemsetSpec, inputs: Inputs, repairs: Repairs) -> Iterator[pa.RecordBatch]:
    for rows, codes, size, unlisted in iterate_held_items(inputs.private.rows(repairs), spec):
        batch, cut = gather_transactions(rows, codes, size, len(spec.items), spec.max_items)
        repaired = {"not in the universe": unlisted, "transaction with more than max_items": cut}
        for repair, times in repaired.items():
            repairs.counts["items", repair] += times
        yield batch


def _plan_profile(batches: Any, spec: ItemsetSpec) -> pa.Table:
    """Return PROFILE_SCHEMA: codes outside the universe, and transactions of too many items, count as outside."""
    rows = []
    for batch in batches:
        column = batch.column(0)
        codes, lengths = column.flatten(), pc.list_value_length(column)
        wrong = int(pc.sum(pc.greater_equal(codes, len(spec.items))).as_py() or 0)
        wrong += int(pc.sum(pc.greater(lengths, spec.max_items)).as_py() or 0)
        matches = batch.schema.equals(ROW_SCHEMA)
        rows.append(
            {
                "column": "items",
                "rows": len(column),
                "unwanted_nulls": column.null_count + codes.null_count,
                "outside": wrong,
                "type_matches": matches,
            }
        )
    return pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA)


def _build_look(
    spec: ItemsetSpec,
    *,
    name: str,
    title: str,
    inputs: tuple[str, ...] = (),
    plan: Any,
    exact: Any,
    look: LookDescription,
    words: str,
) -> ReleaseStep:
    return TransactionLook(
        name=name,
        title=title,
        kind=StepKind.RELEASE,
        measures=LookKind.ITEMS,
        inputs=(ROWS, *inputs),
        outputs=RELEASED,
        settings=lambda r: {"top": spec.top, "largest": spec.largest},
        plan=plan,
        exact=exact,
        look=look,
        rows=ROWS,
        published=publish_noisy(name, words),
        items=len(spec.items),
    )


def _measure_items(spec: ItemsetSpec) -> Step:
    top, most = spec.top, spec.max_items
    rank = "" if top is None else ", and the frequency of the last requested itemset"
    return _build_look(
        spec,
        name="item_counts",
        title="Item counts",
        plan=lambda r, i, rho: item_counts.plan(len(spec.items), most, top, rho, r.records),
        exact=lambda r, i, rows, queries: item_counts.count_exactly(rows, queries, top, spec.largest),
        look=LookDescription(
            counted=f"the number of transactions, and of transactions with each item{rank}",
            reason=lambda r: (
                "k for a single count, because each transaction changes it by at most 1. For the counts of all items k "
                f"times the root of {most}, rounded up, because each transaction changes at most {most} of them by 1"
            ),
        ),
        words="has the noisy number of transactions, the count that an itemset needs, and the counts of all items",
    )


def _find_frequent(spec: ItemsetSpec) -> Step:
    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        queries, answers = inputs.noisy("item_counts")
        codes = choose_frequent_items(queries, answers, spec.at_least, spec.most_frequent_items, ITEMS_MARGIN)
        rows = [
            {"place": place, "code": code, "item": spec.items[code], "count": int(answers[-1][code])}
            for place, code in enumerate(codes)
        ]
        return {"items": pa.Table.from_pylist(rows, schema=contracts.FREQUENT_ITEMS.schema)}

    return Step(
        name="frequent_items",
        title="Frequent items",
        kind=StepKind.POSTPROCESS,
        inputs=list_released_tables("item_counts"),
        outputs={"items": contracts.FREQUENT_ITEMS},
        settings=lambda r: {"at_least": spec.at_least, "most": spec.most_frequent_items},
        run=run,
        published={"items": PublishedFile("marginals/frequent_items.parquet", "names the items looked at together")},
    )


def _locate_items(inputs: Inputs) -> list[int]:
    return inputs.table("frequent_items.items")["code"].to_pylist()


def _measure_pairs(spec: ItemsetSpec) -> Step:
    def exact(request: Request, inputs: Inputs, rows: Any, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        return pair_counts.count_exactly(rows, _locate_items(inputs))

    return _build_look(
        spec,
        name="pair_counts",
        title="Pair counts",
        inputs=("frequent_items.items",),
        plan=lambda r, i, rho: pair_counts.plan(len(_locate_items(i)), spec.max_items, rho, r.records),
        exact=exact,
        look=LookDescription(
            counted="the number of transactions with each pair of the frequent items",
            reason=lambda r: (
                "k times the root, rounded up, of the pairs that one transaction can hold: of at most "
                f"{spec.max_items} items, and of no more than the frequent ones"
            ),
        ),
        words="has the counts of all pairs of these items, row by row of the upper triangle",
    )


def _build_graph(spec: ItemsetSpec, inputs: Inputs) -> nx.Graph:
    """Return the graph of frequent pairs, by places of the frequent items."""
    queries, answers = inputs.noisy("pair_counts")
    size = len(_locate_items(inputs))
    if not queries:
        return basis_set.build_pair_graph(np.empty(0), size, 0.0)
    count, _ = compute_threshold(*inputs.noisy("item_counts"), spec.at_least)
    return basis_set.build_pair_graph(answers[0], size, max(count, PAIR_FLOOR * queries[0].sigma))


def _choose_bases(spec: ItemsetSpec) -> Step:
    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        bases = [] if spec.largest < 3 else basis_set.choose_basis_set(_build_graph(spec, inputs), spec.largest_basis)
        names = inputs.table("frequent_items.items")["item"].to_pylist()
        rows = [{"basis": i, "places": list(b), "items": [names[p] for p in b]} for i, b in enumerate(bases)]
        return {"bases": pa.Table.from_pylist(rows, schema=contracts.BASES.schema)}

    return Step(
        name="basis_set",
        title="Basis set",
        kind=StepKind.POSTPROCESS,
        inputs=("frequent_items.items", *list_released_tables("item_counts"), *list_released_tables("pair_counts")),
        outputs={"bases": contracts.BASES},
        settings=lambda r: {"largest_basis": spec.largest_basis, "at_least": spec.at_least, "largest": spec.largest},
        run=run,
        published={"bases": PublishedFile("marginals/bases.parquet", "names the items of each basis")},
    )


def _measure_marginals(spec: ItemsetSpec) -> Step:
    def exact(request: Request, inputs: Inputs, rows: Any, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        codes = _locate_items(inputs)
        bases = inputs.table("basis_set.bases")["places"].to_pylist()
        return basis_marginals.count_exactly(rows, [[codes[p] for p in basis] for basis in bases])

    return _build_look(
        spec,
        name="basis_marginals",
        title="Basis marginals",
        inputs=("frequent_items.items", "basis_set.bases"),
        plan=lambda r, i, rho: basis_marginals.plan(i.table("basis_set.bases")["items"].to_pylist(), rho, r.records),
        exact=exact,
        look=LookDescription(
            counted="the number of transactions that hold exactly each subset of a basis",
            reason="k: each transaction is in one cell of each marginal",
        ),
        words="has for each basis the counts of its subsets: bit j of a cell's number is its item j",
    )


def _estimate_itemsets(spec: ItemsetSpec) -> Step:
    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        names = inputs.table("frequent_items.items")["item"].to_pylist()
        singles, single_counts = inputs.noisy("item_counts")
        count, total = compute_threshold(singles, single_counts, spec.at_least)
        pairs, pair_answers = inputs.noisy("pair_counts")
        bases, cells = inputs.noisy("basis_marginals")
        places = inputs.table("basis_set.bases")["places"].to_pylist()
        graph = _build_graph(spec, inputs)
        codes, variance = _locate_items(inputs), singles[-1].sigma ** 2
        by_item: dict[Basis, Measured] = {
            (p,): (float(single_counts[-1][code]), variance) for p, code in enumerate(codes)
        }
        by_pair: dict[Basis, Measured] = {}
        if pairs and spec.largest > 1:
            triangle = zip(*np.triu_indices(len(codes), 1), pair_answers[0], strict=True)
            by_pair = {(int(a), int(b)): (float(y), pairs[0].sigma ** 2) for a, b, y in triangle}
        subsets = [
            estimates.iterate_basis_estimates(tuple(p), y, q.sigma, spec.largest)
            for p, q, y in zip(places, bases, cells, strict=True)
        ]
        itemsets = estimates.estimate_itemsets(by_item, by_pair, subsets, graph)
        chosen = estimates.keep_frequent(itemsets, count, spec.top)
        return {"itemsets": build_itemset_table([(s, *itemsets[s]) for s in chosen], names, total, singles[0].sigma)}

    return Step(
        name="itemsets",
        title="Itemsets",
        kind=StepKind.POSTPROCESS,
        inputs=(
            "frequent_items.items",
            "basis_set.bases",
            *(table for look in SHARES for table in list_released_tables(look)),
        ),
        outputs={"itemsets": contracts.ITEMSETS},
        settings=lambda r: {"top": spec.top, "at_least": spec.at_least, "largest": spec.largest},
        run=run,
        published={"itemsets": PublishedFile("itemsets.parquet", "has the itemsets, the most frequent first")},
    )


_Z = NormalDist().inv_cdf(0.975)


def build_itemset_table(
    itemsets: Sequence[tuple[Sequence[int], float, float]], names: Sequence[str], total: float, sigma: float
) -> pa.Table:
    """Return the contract ITEMSETS from (places, count, variance of its noise) in order of rank.

    ``names``: of the items by place; ``total``: the noisy number of transactions, at least 1; ``sigma``: of its noise.
    The share's variance is the first-order variance of a ratio, (v + s^2 sigma^2) / total^2.  The share's 95 % interval
    is cut to the range of a share, 0 to 1.
    """
    rows = []
    for rank, (places, count, variance) in enumerate(itemsets, 1):
        share = count / total
        error = math.sqrt(variance + (share * sigma) ** 2) / total
        rows.append(
            {
                "rank": rank,
                "items": sorted(names[p] for p in places),
                "size": len(places),
                "count": count,
                "count_std_error": math.sqrt(variance),
                "support": share,
                "std_error": error,
                "low": min(max(share - _Z * error, 0.0), 1.0),
                "high": max(min(share + _Z * error, 1.0), 0.0),
            }
        )
    return pa.Table.from_pylist(rows, schema=contracts.ITEMSETS.schema)
