"""Membership inference and uniqueness: does a synthetic row give away who was in the real table?

Source: distance to closest record, as in the synthetic data literature (e.g. Hilprecht, Haerterich and Bernau, PoPETs
2019(4); Yale et al., Neurocomputing 416, 2020); advantage as in Yeom, Giacomelli, Fredrikson and Jha, CSF 2018.  The
disclosure literature (synthpop) calls synthetic rows that repeat a unique real row replicated uniques.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.metrics.samples import make_row_keys, sample_rows

_BLOCK_ROWS = 2_048  # synthetic rows whose distances are in memory at once: 8 KiB
_CHUNK_TARGETS = 64  # targets per unit of work of one thread


@dataclass(frozen=True)
class Membership:
    """``targets`` members and as many non-members were attacked, with ``synthetic_rows`` synthetic rows.

    ``auc``: 0 to 1, chance that a member is nearer than a non-member (ties half); 0.5 is a guess.  ``auc_sd``: its
    standard deviation if the release reveals nothing.  ``advantage``: 0 to 1, largest true minus false positive rate of
    any threshold; a little above 0 by chance.
    """

    targets: int
    synthetic_rows: int
    auc: float
    auc_sd: float
    advantage: float


def measure_membership(
    real: CodeTable,
    holdout: CodeTable | None,
    synthetic: CodeTable,
    ordered: Collection[str],
    max_targets: int = 2_000,
    max_synthetic: int = 50_000,
    seed: int = 0,
    threads: int = 0,
) -> Membership | None:
    """Run the attack "near a synthetic row, so a member": members are real rows, non-members hold-out rows.

    Both groups have the smallest of both tables' sizes and ``max_targets`` rows, drawn by ``seed``; at most
    ``max_synthetic`` synthetic rows are used.  Distance: :func:`find_closest`.  This is one weak attack of many: an AUC
    near 0.5 proves no privacy.  Returns None without a hold-out, or if any of the tables has no rows.  The result does
    not depend on the number of threads (0: all cores).  Raises ValueError for caps below 1 or negative ``threads``.
    """
    if min(max_targets, max_synthetic) < 1:
        raise ValueError("an attack needs at least one target and one synthetic row")
    if holdout is None or not min(real.rows, holdout.rows, synthetic.rows):
        return None
    targets = min(real.rows, holdout.rows, max_targets)
    sampled = sample_rows(synthetic, max_synthetic, seed)
    members = find_closest(sample_rows(real, targets, seed), sampled, ordered, threads)
    others = find_closest(sample_rows(holdout, targets, seed), sampled, ordered, threads)
    return Membership(targets, sampled.rows, **run_attack(members, others))


def run_attack(members: NDArray[np.float32], others: NDArray[np.float32]) -> dict[str, float]:
    """Return auc, auc_sd and advantage of "a smaller distance means member", from both distances (one or more each).

    auc_sd is the null standard deviation of the Mann-Whitney statistic, sqrt((m + n + 1) / (12 m n)), without ties.
    """
    from sklearn.metrics import roc_auc_score, roc_curve

    is_member = np.repeat([1, 0], [members.size, others.size])
    nearness = -np.concatenate([members, others])
    false, true, _ = roc_curve(is_member, nearness, drop_intermediate=False)
    return {
        "auc": float(roc_auc_score(is_member, nearness)),
        "auc_sd": math.sqrt((members.size + others.size + 1) / (12 * members.size * others.size)),
        "advantage": float(max(np.max(true - false), 0.0)),
    }


def find_closest(
    targets: CodeTable, rows: CodeTable, ordered: Collection[str], threads: int = 0
) -> NDArray[np.float32]:
    """Return the distance of each target to the nearest of ``rows`` (one or more), 0 (equal) to 1 (nothing alike).

    The distance of two rows is the mean over attributes of 1 for different nominal codes, or |difference of codes| /
    (number of codes - 1) for ordered codes.  A null's code in an ordered attribute counts at its place in the codes'
    order.  Both tables have one domain.  Raises ValueError for ``rows`` without rows.
    """
    if not rows.rows:
        raise ValueError("there are no rows to be close to")
    attributes = targets.domain.attributes
    weights = np.array([1 / max(width - 1, 1) for width in targets.shape(attributes)], dtype=np.float32)
    is_ordered = np.array([attribute in ordered for attribute in attributes], dtype=np.bool_)
    dtype = np.result_type(*(c.dtype for table in (targets, rows) for c in table.columns))
    codes, others = (np.stack(table.columns).astype(dtype, copy=False) for table in (targets, rows))
    nearest = np.empty(targets.rows, dtype=np.float32)

    def work(first: int) -> None:
        chunk = slice(first, first + _CHUNK_TARGETS)
        _find_closest(np.ascontiguousarray(codes[:, chunk]), others, is_ordered, weights, nearest[chunk])

    with ThreadPoolExecutor(choose_thread_count(threads)) as pool:
        list(pool.map(work, range(0, targets.rows, _CHUNK_TARGETS)))
    return nearest / np.float32(len(attributes))


@njit(nogil=True, cache=True)
def _find_closest(codes, others, is_ordered, weights, nearest):  # type: ignore[no-untyped-def]
    """Write the least sum over attributes; codes: (attributes, targets), others: (attributes, rows), of one dtype.

    weights: float32 (attributes), per step of an ordered code; nearest: float32 (targets), written.
    """
    rows = others.shape[1]
    sums = np.empty(_BLOCK_ROWS, np.float32)
    for t in range(codes.shape[1]):
        best = np.float32(np.inf)
        for first in range(0, rows, _BLOCK_ROWS):
            size = min(_BLOCK_ROWS, rows - first)
            sums[:size] = 0
            for a in range(codes.shape[0]):
                _add_distances(sums, others[a, first : first + size], codes[a, t], is_ordered[a], weights[a])
            for i in range(size):
                best = min(best, sums[i])
        nearest[t] = best


@njit(nogil=True, cache=True)
def _add_distances(sums, column, code, is_ordered, weight):  # type: ignore[no-untyped-def]
    """Add one attribute's distances to ``code``."""
    if is_ordered:
        for i in range(column.shape[0]):
            sums[i] += weight * np.float32(abs(np.int32(column[i]) - np.int32(code)))
    else:
        for i in range(column.shape[0]):
            sums[i] += np.float32(column[i] != code)


@dataclass(frozen=True)
class Uniqueness:
    """Shares, each 0..1; 0 for a table of no rows.

    ``share``: synthetic rows equal to a unique real row.  ``holdout_share``: hold-out rows equal to one, the share for
    a table that knows the population but nobody in the release; None without a hold-out.  ``unique``: real rows that
    are unique.
    """

    share: float
    holdout_share: float | None
    unique: float


def measure_uniqueness(real: CodeTable, synthetic: CodeTable, holdout: CodeTable | None = None) -> Uniqueness:
    """Return the share of synthetic rows that equal, in all released columns, a row that occurs once in the real table.

    Rows are compared by their codes, in public bins.  In a narrow table a match is often chance, so compare the share
    with ``holdout_share``; a share well above it means that the release repeats its people.
    """
    groups = group_equal_rows([real, synthetic] if holdout is None else [real, synthetic, holdout])
    number = max((int(g.max()) + 1 for g in groups if g.size), default=0)
    once = np.bincount(groups[0], minlength=number) == 1
    return Uniqueness(
        share=_share(once[groups[1]]),
        holdout_share=_share(once[groups[2]]) if holdout is not None else None,
        unique=int(once.sum()) / max(real.rows, 1),
    )


def group_equal_rows(tables: Sequence[CodeTable]) -> list[NDArray[np.int64]]:
    """Return a number for every row of every table; two rows have the same number exactly if all their codes are equal.

    Numbers start at 0, without gaps.  Exact for any number of attributes.  The tables share one domain.
    """
    attributes = tables[0].domain.attributes
    _, numbers = np.unique(make_row_keys(tables, attributes), return_inverse=True)
    edges = np.cumsum([table.rows for table in tables])[:-1]
    return np.split(numbers.astype(np.int64, copy=False), edges)


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if mask.size else 0.0
