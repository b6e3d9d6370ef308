"""Known totals in codes: public counts that replace noisy ones.

Not in the paper.  A column with known counts is not measured, so the others share its budget; its codes follow from the
public counts.  This module reads no private row.  Whether rows can have the totals and keep the rules is checked with
the public spec alone, before any budget is spent.

A last repair of codes makes rows match the totals exactly, with the fewest changes.  Sweeps bring rows within a few of
their targets; the repair moves the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.public_counts import KnownTotal
from privsyn.tasks.codecs.categories import BooleanCodec, CategoricalCodec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode, Recode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.rules.repair import find_valid_row

Ints = NDArray[np.int64]

KNOWN_SIGMA = 0.01
"""Standard deviation of a known count in averages, in records: small, but large enough to divide by."""


@dataclass(frozen=True)
class ExactCounts:
    """Counts of an attribute that the rows match exactly, for each code of ``parent`` (None: over all rows).

    ``counts``: of fine codes, shape (codes of the parent, or 1; codes).
    """

    attribute: str
    parent: str | None
    counts: Ints


@dataclass(frozen=True, eq=False)
class KnownTotals:
    """The totals of a spec.

    Attributes:
        rows: The number of rows of the table.
        one_way: Attribute -> count of every fine code.
        pairs: Pair in domain order -> counts of fine codes.
        exact: The counts that rows match exactly, each after its parent.
    """

    rows: int
    one_way: Mapping[str, Ints]
    pairs: Mapping[Clique, Ints]
    exact: tuple[ExactCounts, ...]

    @classmethod
    def of(cls, totals: Sequence[KnownTotal], plan: EncodingPlan) -> KnownTotals:
        """Return the ``totals``, which agree with each other, in the codes of ``plan``.

        Raises FieldError, with its place, if a column's codes are not its values, or counts are missing.
        """
        one_way: dict[str, Ints] = {}
        pairs: dict[Clique, Ints] = {}
        exact: list[Clique] = []
        for i, total in enumerate(totals):
            if not total.known:
                raise FieldError(
                    "names a file, and a run takes none",
                    "Start the release from the spec's file, or give the counts themselves as `counts`",
                    ("totals", i, "table"),
                )
            if not total.columns:
                continue
            clique, counts = _encode_total(total, plan, i)
            exact += [clique] if total.hold == "exact" else []
            if len(clique) > 1:
                pairs[clique] = counts
            for axis, attribute in enumerate(clique):
                one_way[attribute] = counts if counts.ndim == 1 else counts.sum(axis=1 - axis)
        rows = sum(totals[0].by_value().values())
        return cls(rows, one_way, pairs, tuple(_iterate_exact(exact, one_way, pairs)))

    def has(self, attributes: Clique) -> bool:
        """Return whether the counts of these attributes, in domain order, are known."""
        return attributes in self.pairs or (len(attributes) == 1 and attributes[0] in self.one_way)

    def with_recode(self, recode: Recode, attributes: Sequence[str]) -> Recode:
        """Return ``recode`` with the known attributes added, in the order of ``attributes``.

        Every value with rows has a code of its own; other values are left out.
        """
        return {a: _recode(self.one_way[a]) if a in self.one_way else recode[a] for a in attributes}

    def coarse_pairs(self, recode: Recode) -> list[Marginal]:
        """Return the known pairs in coarse codes, each cell with KNOWN_SIGMA."""
        return [
            Marginal((a, b), counts[np.ix_(recode[a].kept, recode[b].kept)].astype(np.float64), KNOWN_SIGMA)
            for (a, b), counts in self.pairs.items()
        ]

    def coarse_exact(self, recode: Recode) -> tuple[ExactCounts, ...]:
        """Return the exact counts in coarse codes."""
        return tuple(
            ExactCounts(
                h.attribute,
                h.parent,
                h.counts[:, recode[h.attribute].kept][slice(None) if h.parent is None else recode[h.parent].kept],
            )
            for h in self.exact
        )

    def key_of_codes(self) -> str:
        """Return a digest of the counts of single attributes, on which codes depend."""
        return _compute_digest(sorted(self.one_way.items()))

    def key(self) -> str:
        """Return a digest of all counts, on which rows depend."""
        exact = [(f"{h.attribute} given {h.parent}", h.counts) for h in self.exact]
        pairs = [(f"{a} and {b}", counts) for (a, b), counts in self.pairs.items()]
        return _compute_digest([("rows", np.array([self.rows])), *sorted(self.one_way.items()), *sorted(pairs), *exact])


def _compute_digest(named: Sequence[tuple[str, Ints]]) -> str:
    digest = hashlib.sha256()
    for name, counts in named:
        digest.update(repr((name, counts.shape)).encode() + np.ascontiguousarray(counts, np.int64).tobytes())
    return digest.hexdigest()


def _encode_total(total: KnownTotal, plan: EncodingPlan, i: int) -> tuple[Clique, Ints]:
    codecs = {codec.attribute: codec for codec in plan.codecs}
    for name in total.columns:
        if not isinstance(codecs.get(name), CategoricalCodec | BooleanCodec):
            raise FieldError(
                f"the column {name!r} is split by the bins of a column that rules compute from it",
                "Take the total out, or drop the computed column",
                ("totals", i, "columns"),
            )
    count_by_value = total.by_value()
    clique = plan.domain.ordered(total.columns)
    counts = np.zeros([codecs[a].size for a in clique], dtype=np.int64)
    places = []
    for a in clique:
        values = [v[total.columns.index(a)] for v in count_by_value]
        places.append(codecs[a].encode({a: pa.array(values)})[0].astype(np.int64))
    np.add.at(counts, tuple(places), np.array(list(count_by_value.values()), dtype=np.int64))
    return clique, counts


def _recode(counts: Ints) -> AttributeRecode:
    has_rows = counts > 0
    coarse = np.where(has_rows, np.cumsum(has_rows) - 1, int(has_rows.sum())).astype(np.int32)
    variance = np.full(len(counts), KNOWN_SIGMA**2)
    return AttributeRecode(coarse, has_rows, has_rows.astype(np.float64), counts.astype(np.float64), variance)


def _iterate_exact(
    exact: Sequence[Clique], one_way: Mapping[str, Ints], pairs: Mapping[Clique, Ints]
) -> Iterator[ExactCounts]:
    """Yield the exact counts along their pairs, which form no cycle, each after its parent."""
    done: set[str] = set()
    for first in (a for clique in exact for a in clique):
        if first in done:
            continue
        done.add(first)
        yield ExactCounts(first, None, one_way[first][None, :])
        queue = [first]
        while queue:
            parent = queue.pop(0)
            for a, b in (clique for clique in exact if len(clique) == 2 and parent in clique):
                child, counts = (b, pairs[a, b]) if parent == a else (a, pairs[a, b].T)
                if child not in done:
                    done.add(child)
                    queue.append(child)
                    yield ExactCounts(child, parent, counts)


def list_exact_in_rules(totals: KnownTotals | None, plan: EncodingPlan) -> tuple[str, ...]:
    """Return the attributes with exact counts that rules use; the repair of rows does not change them."""
    if totals is None or plan.rules is None:
        return ()
    needed = {name for condition in plan.rules.conditions for name in condition.needs}
    return tuple(h.attribute for h in totals.exact if h.attribute in needed)


def check_totals_possible(stated: Sequence[KnownTotal], totals: KnownTotals, plan: EncodingPlan) -> None:
    """Raise FieldError if no rows were found that have the totals and keep the rules.

    Exact totals of several columns in rules are refused, except for one pair, since their feasibility is not checked.
    """
    in_rules = list_exact_in_rules(totals, plan)
    exact_sets = [{*total.columns} for total in stated if total.hold == "exact"]
    if len(in_rules) > 1 and not (len(in_rules) == 2 and {*in_rules} in exact_sets):
        raise FieldError(
            f"are exact for {' and '.join(map(repr, in_rules))}, which rules also use",
            "Write `hold: close` for all but one, or give one total of both columns",
            ("totals",),
        )
    for attributes, codes in _iterate_cells(totals, plan, in_rules):
        if find_valid_row(plan, dict(zip(attributes, codes, strict=True))) is None:
            labels = plan.labels()
            named = " and ".join(f"{a} = {labels[a][code]}" for a, code in zip(attributes, codes, strict=True))
            raise FieldError(
                f"give rows to {named}, but no such row was found that keeps the rules",
                "Correct the totals, or the rules",
                ("totals",),
            )


def _iterate_cells(
    totals: KnownTotals, plan: EncodingPlan, in_rules: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], Sequence[int]]]:
    """Yield the attributes and codes for which a row that keeps the rules must exist."""
    if plan.rules is None:
        return
    needed = {name for condition in plan.rules.conditions for name in condition.needs}
    counts: Mapping[tuple[str, ...], np.ndarray] = {(a,): c for a, c in totals.one_way.items() if a in needed}
    if len(in_rules) == 2:
        counts = {pair: c for pair, c in totals.pairs.items() if set(pair) == set(in_rules)} | dict(counts)
    for attributes, table in counts.items():
        for codes in np.argwhere(table > 0):
            yield attributes, [int(code) for code in codes]


class Quotas:
    """The counts that each shard of a table must hold: integers near the shard's share that sum to the totals."""

    def __init__(self, exact: Sequence[ExactCounts]) -> None:
        self._exact = tuple(exact)
        self._left = [h.counts.copy() for h in exact]

    def take(self, rows: int) -> tuple[ExactCounts, ...]:
        """Return the counts that the next shard, of ``rows`` rows, must hold.

        Raises ValueError if the totals have fewer rows left.
        """
        counts_of: dict[str, Ints] = {}
        taken = []
        for counts, remaining in zip(self._exact, self._left, strict=True):
            wanted = np.array([rows]) if counts.parent is None else counts_of[counts.parent]
            part = np.stack([_select_part(line, int(n)) for line, n in zip(remaining, wanted, strict=True)])
            remaining -= part
            counts_of[counts.attribute] = part.sum(axis=0)
            taken.append(ExactCounts(counts.attribute, counts.parent, part))
        return tuple(taken)


def _select_part(remaining: Ints, rows: int) -> Ints:
    """Return ``rows`` rows of the counts ``remaining``: the share of each rounded down or up, at most what is left."""
    total = int(remaining.sum())
    if rows > total:
        raise ValueError(f"{rows:,} rows are more than the {total:,} rows of the totals")
    part, rest = np.divmod(remaining * rows, max(total, 1))
    part[np.argsort(-rest, kind="stable")[: rows - int(part.sum())]] += 1
    return part


def seed_generator(seed: int) -> np.random.Generator:
    """Return this step's random generator for ``synthesis.seed``."""
    return np.random.default_rng([seed, 0x707A15])


def hold(codes: CodeTable, exact: Sequence[ExactCounts], rng: np.random.Generator) -> CodeTable:
    """Return rows with the counts ``exact``, with the fewest changes of each attribute; rows are chosen at random.

    exact: each after its parent, with as many rows as ``codes``.  A table that has these counts is returned unchanged.
    """
    columns = dict(zip(codes.domain.attributes, codes.columns, strict=True))
    for counts in exact:
        parent = None if counts.parent is None else columns[counts.parent]
        columns[counts.attribute] = _move_rows(columns[counts.attribute], parent, counts.counts, rng)
    return CodeTable(codes.domain, tuple(columns[a] for a in codes.domain.attributes))


def _move_rows(
    column: NDArray[np.unsignedinteger],
    parent: NDArray[np.unsignedinteger] | None,
    wanted: Ints,
    rng: np.random.Generator,
) -> NDArray[np.unsignedinteger]:
    size = wanted.shape[1]
    group = np.zeros(len(column), np.int64) if parent is None else parent.astype(np.int64)
    cell = group * size + column
    surplus = np.bincount(cell, minlength=wanted.size) - wanted.ravel()
    if not surplus.any():
        return column
    moved = column.copy()
    order = np.argsort(cell, kind="stable")
    ends = np.cumsum(np.bincount(cell, minlength=wanted.size))
    for g in range(len(wanted)):
        group_surplus = surplus[g * size : (g + 1) * size]
        if group_surplus.sum():
            raise ValueError("the totals have a different number of rows")
        leaving = [
            rng.choice(
                order[ends[g * size + c] - group_surplus[c] - wanted[g, c] : ends[g * size + c]],
                group_surplus[c],
                replace=False,
            )
            for c in np.flatnonzero(group_surplus > 0)
        ]
        if leaving:
            arriving = np.repeat(np.arange(size), np.maximum(-group_surplus, 0))
            moved[np.concatenate(leaving)] = rng.permutation(arriving).astype(column.dtype)
    return moved
