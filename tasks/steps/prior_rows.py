"""Step *prior rows* (postprocess): draw rows of a public table in proportion to the groups' noisy counts.

Paper: "Public prior: distribution estimation", Algorithm 2 and section 3.2; tasks/estimation/prior_levels.py updates
the distribution.  Not in the paper: groups that the public table lacks, known zeros, and systematic draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, choose_code_dtype
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import apply_norm_sub
from privsyn.tasks.estimation.prior_levels import PublicSupport
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]

STANDS_OUT = 3.0
"""Noisy counts of at least this many standard deviations give rows to a group that the public table lacks."""

ROW_COUNT_TOLERANCE = 1e-6
"""Fractional row numbers closer than this count as equal in rounding, so that last bits do not decide."""

AT_A_TIME = 131_072
"""Rows per batch."""

_PURPOSE = 0x9207  # of the random generator; no other step's


def coarsen_rows(public: CodeTable, recode: Recode) -> CodeTable:
    """Return the public rows in coarse codes, without rows of filtered values.

    If every row has a filtered value, all rows stay, with the nearest kept codes.
    """
    domain = build_coarse_domain(recode)
    columns = [recode[a].coarse[public.column(a)] for a in domain.attributes]
    inside = np.logical_and.reduce([c < n for c, n in zip(columns, domain.sizes, strict=True)])
    if not inside.any():
        inside[:] = True
    codes = (
        np.minimum(c[inside], n - 1).astype(choose_code_dtype(n)) for c, n in zip(columns, domain.sizes, strict=True)
    )
    return CodeTable(domain, tuple(codes))


class GroupSizes(NamedTuple):
    """The groups that have rows: ``codes``, shape (groups, columns), and ``rows``, the number of rows of each."""

    codes: NDArray[np.int64]
    rows: NDArray[np.int64]


def list_groups_with_rows(
    public: CodeTable, group: Clique, noisy: Floats, sigma: float, rows: int, can: Sequence[NDArray[np.bool_]] | None
) -> GroupSizes:
    """Return how many of ``rows`` rows each group has.

    noisy: the groups' noisy numbers of rows, shape (cells of ``group``,), each with standard deviation ``sigma``.  A
    group that the ``public`` table lacks has rows only if its noisy number stands out (STANDS_OUT).  A group without a
    possible row (``can``, from :func:`list_possible_rows`) has none.  The numbers are the least-squares fit that is
    nonnegative and sums to ``rows``, rounded.
    """
    shape = public.domain.shape(group)
    has = np.zeros(noisy.size, bool)
    has[np.ravel_multi_index([public.column(a).astype(np.int64) for a in group], shape)] = True
    able = has | (noisy >= STANDS_OUT * sigma)
    some = np.ones(noisy.size, bool) if can is None else np.array([rows.any() for rows in can])
    able &= some if (able & some).any() else True
    cells = np.flatnonzero(able)
    wanted = apply_norm_sub(noisy[cells], float(rows))
    sizes = np.floor(wanted + ROW_COUNT_TOLERANCE).astype(np.int64)
    most = np.argsort(-np.rint((wanted - sizes) / ROW_COUNT_TOLERANCE), kind="stable")[: rows - int(sizes.sum())]
    sizes[most] += 1
    cells, sizes = cells[sizes > 0], sizes[sizes > 0]
    return GroupSizes(np.stack(np.unravel_index(cells, shape), axis=1).astype(np.int64), sizes)


def list_possible_rows(support: PublicSupport, zeros: KnownZeros | None) -> Sequence[NDArray[np.bool_]] | None:
    """Return, for every group's cell, the distinct public rows that ``zeros`` allows; None if it forbids none."""
    if zeros is None or not zeros.cliques:
        return None
    cells, shape = support.domain.cells(support.group), support.domain.shape(support.group)
    codes = np.stack(np.unravel_index(np.arange(cells), shape), axis=1)
    return [~_find_forbidden(support, zeros, group) for group in codes]


def _find_forbidden(support: PublicSupport, zeros: KnownZeros, group: NDArray[np.integer]) -> NDArray[np.bool_]:
    is_forbidden = np.zeros(support.shares.size, bool)
    for clique, forbidden in zeros.tables:
        of_group = {a: int(group[support.group.index(a)]) for a in clique if a in support.group}
        codes = tuple(of_group[a] if a in of_group else support.distinct.column(a).astype(np.int64) for a in clique)
        is_forbidden |= forbidden[codes]
    return is_forbidden


def draw_rows(
    support: PublicSupport,
    groups: GroupSizes,
    shares: Iterable[Floats],
    can: Sequence[NDArray[np.bool_]] | None,
    seed: int,
) -> Iterator[CodeTable]:
    """Yield the rows, in random order, at most AT_A_TIME at once.

    shares: one distribution over the distinct public rows per group, in order; ``can``: from
    :func:`list_possible_rows`.  Draws are systematic: among n rows, a public row of share p comes floor(n p) or ceil(n
    p) times, so counts match the distribution up to rounding.  Memory: two integers per row.
    """
    generator = np.random.default_rng([seed, _PURPOSE])
    shape, drawn = support.domain.shape(support.group), []
    for code, number, share in zip(groups.codes, groups.rows, shares, strict=True):
        if can is not None:
            possible = np.where(can[int(np.ravel_multi_index(tuple(code), shape))], share, 0.0)
            share = possible if possible.sum() > 0 else share
        drawn.append(_draw_systematically(share, int(number), generator.random()))
    which = np.repeat(np.arange(len(drawn)), groups.rows)
    members = np.concatenate(drawn) if drawn else np.zeros(0, np.int64)
    order = generator.permutation(members.size)
    for start in range(0, members.size, AT_A_TIME):
        rows = order[start : start + AT_A_TIME]
        yield support.rows(groups.codes[which[rows]], members[rows])


def _draw_systematically(shares: Floats, number: int, start: float) -> NDArray[np.int64]:
    """Return ``number`` draws at equal steps along the cumulative shares, from ``start`` in [0, 1)."""
    cumulative = np.cumsum(shares)
    points = (np.arange(number) + start) / max(1, number) * cumulative[-1]
    last = int(np.flatnonzero(shares)[-1])
    return np.minimum(np.searchsorted(cumulative, points, side="right"), last)
