"""Columns that are null together, found in noisy pairs: their joint cells of null and a value are then empty.

Not in the paper.  Post-processing of released counts with a public sigma costs no budget.

Surveys skip questions in blocks: people who were not asked one question were not asked others.  Then a pair has one or
two empty blocks of cells: null in one column and a value in the other.  Noise leaves rows in these cells, and no table
can match what many pairs leave there.  So the rows of each block are estimated, and empirical Bayes finds the empty
blocks (expectation maximization over all blocks).  The prior for any other block is uniform up to its largest possible
number of rows.  The relation "null wherever another column is null" is transitive.

In a chain of columns with slightly rising numbers of nulls, noise may tie each column to the next and so all to one
another.  The one-ways prevent it: columns are tied only if all of their numbers of nulls agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.tables import EMPTY_CELLS
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SURE = 0.9
"""Least probability that a block is empty, for a block that is treated as empty."""

LEAST_EVIDENCE = 3.0
"""Least likelihood ratio of a block's own rows for an empty block: without it, other blocks alone would decide."""

MOST_DEVIATIONS = 3.0
"""Largest difference between numbers of nulls that agree, in standard deviations."""

_ROUNDS = 100
_CLOSE = 1e-4


def find_null_codes(recode: Recode, nullable: Iterable[str]) -> dict[str, int]:
    """Return the coarse code of null for each ``nullable`` attribute with several codes, one of them null's alone.

    Null is the last fine code of an attribute.
    """
    null_codes = {}
    for a in nullable:
        if a in recode and recode[a].kept[-1] and recode[a].size > 1:
            code = int(recode[a].coarse[-1])
            if int((recode[a].coarse[recode[a].kept] == code).sum()) == 1:
                null_codes[a] = code
    return null_codes


def find_null_zeros(
    pairs: Sequence[Marginal],
    one_ways: Mapping[str, tuple[Floats, Floats]],
    nulls: Mapping[str, int],
    others: Collection[Clique] = (),
) -> KnownZeros:
    """Return the cells of null and a value that are empty by noisy counts, in ``pairs`` and ``others``.

    pairs: noisy, without merged codes; one_ways: attribute -> noisy counts and their variances; nulls: attribute ->
    code of null (:func:`find_null_codes`); pairs with other attributes are not used.
    """
    sides = [(pair, axis) for pair in pairs for axis in (0, 1) if set(pair.attributes) <= nulls.keys()]
    sides = [(pair, axis) for pair, axis in sides if pair.sigma > 0]
    if not sides:
        return KnownZeros()
    rows, deviation, most = np.array([_estimate_rows(pair, axis, one_ways, nulls) for pair, axis in sides]).T
    empty, clear = find_empty_blocks(rows, deviation, most), rows > MOST_DEVIATIONS * deviation
    directions = [(pair.attributes[axis], pair.attributes[1 - axis]) for pair, axis in sides]
    number = {
        a: (float(counts[nulls[a]]), float(variance[nulls[a]]))
        for a, (counts, variance) in one_ways.items()
        if a in nulls
    }
    follows = _list_implied_nulls([direction for direction, e in zip(directions, empty, strict=True) if e], number)
    contradicted = {direction for direction, c in zip(directions, clear, strict=True) if c}
    sizes = {a: len(counts) for a, (counts, _) in one_ways.items()}
    tables = []
    for a, b in dict.fromkeys([*(pair.attributes for pair in pairs), *others]):
        zero = np.zeros((sizes[a], sizes[b]), dtype=bool)
        if b in follows.get(a, ()) and (a, b) not in contradicted:
            zero[nulls[a], np.arange(sizes[b]) != nulls[b]] = True
        if a in follows.get(b, ()) and (b, a) not in contradicted:
            zero[np.arange(sizes[a]) != nulls[a], nulls[b]] = True
        if zero.any():
            tables.append(((a, b), zero))
    return KnownZeros(implied=tuple(tables))


def tabulate_empty_cells(zeros: KnownZeros, measured: Collection[Clique]) -> pa.Table:
    """Return a table of the contract EMPTY_CELLS; ``measured``: the pairs with measured joint counts."""
    parts = [pa.Table.from_pylist([], schema=EMPTY_CELLS.schema)]
    for (a, b), zero in zeros.implied:
        codes, other_codes = (code.astype(np.int32) for code in np.nonzero(zero))
        names = [pa.array([name] * len(codes), pa.string()) for name in (a, b)]
        arrays = [*names, codes, other_codes, np.full(len(codes), (a, b) in measured)]
        parts.append(pa.table(arrays, schema=EMPTY_CELLS.schema))
    return pa.concat_tables(parts)


def read_empty_cells(table: pa.Table, domain: Domain, *, unmeasured: bool) -> KnownZeros:
    """Return the zeros of an EMPTY_CELLS table; ``unmeasured``: also the zeros of unmeasured pairs."""
    zeros: dict[Clique, Bools] = {}
    for row in table.to_pylist():
        if row["measured"] or unmeasured:
            pair = row["attribute"], row["other"]
            zero = zeros.setdefault(pair, np.zeros(domain.shape(pair), dtype=bool))
            zero[row["code"], row["other_code"]] = True
    return KnownZeros(implied=tuple(zeros.items()))


def _estimate_rows(
    pair: Marginal, axis: int, one_ways: Mapping[str, tuple[Floats, Floats]], nulls: Mapping[str, int]
) -> tuple[float, float, float]:
    """Return a block's rows (null in the attribute of ``axis``, a value in the other), their noise, and their maximum.

    The estimate pools the sum of the block's cells with all nulls minus the rows with both null.
    """
    null, other_null = (nulls[pair.attributes[i]] for i in (axis, 1 - axis))
    counts = pair.counts.take(null, axis=axis)
    nulls_of_both, variance = float(counts[other_null]), pair.sigma**2
    all_nulls, variance_of_all = (float(x[null]) for x in one_ways[pair.attributes[axis]])
    by_cells, by_rest = float(counts.sum()) - nulls_of_both, all_nulls - nulls_of_both
    precisions = 1 / (variance * (len(counts) - 1)), 1 / (variance + variance_of_all)
    rows = (by_cells * precisions[0] + by_rest * precisions[1]) / sum(precisions)
    values = one_ways[pair.attributes[1 - axis]][0].sum() - one_ways[pair.attributes[1 - axis]][0][other_null]
    return rows, sum(precisions) ** -0.5, max(min(all_nulls, float(values)), 1.0)


def find_empty_blocks(rows: Floats, deviation: Floats, limit: Floats) -> Bools:
    """Return which blocks are empty, from noisy ``rows`` with standard ``deviation``; all of shape (blocks,).

    ``limit``: largest possible rows of each block.  The prior counts one empty block and one filled block.
    """
    from scipy.special import ndtr  # here: it loads slowly

    if_empty = np.exp(-0.5 * (rows / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
    if_filled = np.maximum(ndtr((limit - rows) / deviation) - ndtr(-rows / deviation), 1e-300) / limit
    share = 0.5
    for _ in range(_ROUNDS):
        chance = share * if_empty / (share * if_empty + (1 - share) * if_filled)
        before, share = share, float((chance.sum() + 1) / (len(chance) + 2))
        if abs(share - before) < _CLOSE:
            break
    return np.asarray((chance >= SURE) & (if_empty >= LEAST_EVIDENCE * if_filled))


def _list_implied_nulls(
    seen: Sequence[tuple[str, str]], number: Mapping[str, tuple[float, float]]
) -> dict[str, frozenset[str]]:
    """Return attribute -> the attributes that are null wherever it is.

    ``seen``: (attribute, another that is null wherever it is); ``number``: attribute -> noisy nulls and their variance.
    """
    import networkx as nx  # here: most releases have no such pair

    graph: nx.DiGraph = nx.DiGraph((a, b) for a, b in seen if _is_fewer(a, b, number))
    for tied in [c for c in nx.strongly_connected_components(graph) if not _agree([number[a] for a in c])]:
        wrong = [(a, b) for a, b in graph.subgraph(tied).edges if (number[a], a) > (number[b], b)]
        graph.remove_edges_from(wrong)
    classes = nx.condensation(graph)  # a class holds attributes that are null in the same rows
    follows: dict[str, frozenset[str]] = {}
    for n in classes:
        reached = {a for m in (n, *nx.descendants(classes, n)) for a in classes.nodes[m]["members"]}
        follows |= {
            a: frozenset(b for b in reached if b != a and _is_fewer(a, b, number)) for a in classes.nodes[n]["members"]
        }
    return follows


def _is_fewer(a: str, b: str, number: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether ``a`` may be null in no more rows than ``b``, within the noise."""
    (first, variance), (second, second_variance) = number[a], number[b]
    return first - second <= MOST_DEVIATIONS * (variance + second_variance) ** 0.5


def _agree(numbers: Sequence[tuple[float, float]]) -> bool:
    """Return whether noisy (number, variance) pairs may have one true number (chi-squared test of their spread)."""
    values, variances = np.array(numbers).T
    mean = (values / variances).sum() / (1 / variances).sum()
    degrees = len(values) - 1
    return bool(((values - mean) ** 2 / variances).sum() <= degrees + MOST_DEVIATIONS * (2 * degrees) ** 0.5)
