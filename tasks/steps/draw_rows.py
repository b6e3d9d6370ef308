"""Steps *build network*, *ancestral rows*, *prior rows* and *graphical rows* (postprocess): rows of a model.

**Build network**: a Bayesian network of noisy pair scores.
Zhang, Cormode, Procopiuc, Srivastava, Xiao: *PrivBayes*, SIGMOD 2014 (and ACM TODS 42(4), 2017), Algorithms 2 and 4 and
theta-usefulness.  PrivBayes scores a column with all its parents by the exponential mechanism.  Here the score of a
parent set is the sum of its pairs' noisy scores, which are already released, so the network costs no budget.

**Ancestral rows** are PrivBayes' (2014, section 3): negative counts become 0, and each column is drawn given its
parents.  Not in the paper: rows that share the parents' codes get exactly the conditional shares, up to rounding, in
random order, instead of independent draws.  Post-processing of released counts costs no budget.

**Prior rows** are rows of a public table, drawn in proportion to the groups' noisy counts.
Paper: "Public prior: distribution estimation", Algorithm 2 and section 3.2; tasks/estimation/prior_levels.py updates
the distribution.  Not in the paper: groups that the public table lacks, known zeros, and systematic draws.

**Graphical rows** are of the graphical model that the package mbi fits to noisy counts.
Private-PGM (McKenna, Sheldon and Miklau 2019): the maximum-entropy distribution among the weighted least-squares fits
to the measured marginals.  The package itself rounds its marginals to rows.  It is optional:
``pip install 'privsyn-flows[pgm]'``.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.receipts import compute_sigma
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal, apply_norm_sub
from privsyn.tasks.estimation.prior_levels import PublicSupport
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import derive_stream

Floats = NDArray[np.float64]

STANDS_OUT = 3.0
"""Noisy counts of at least this many standard deviations give rows to a group that the public table lacks."""

ROW_COUNT_TOLERANCE = 1e-6
"""Fractional row numbers closer than this count as equal in rounding, so that last bits do not decide."""

AT_A_TIME = 131_072
"""Rows per batch."""

_PURPOSE = 0x9207  # of the random generator; no other step's

ITERATIONS = 1_000
"""Largest number of mirror descent steps; fewer if the fit stops changing."""

TOLERANCE = 1e-7

_GRAPHICAL = 103  # purpose of the random streams, used by no other step


def count_useful_cells(total: float, families: int, rho: Fraction, records: int, usefulness: float) -> int:
    """Return the most cells of a theta-useful family: mean count at least ``usefulness`` times the mean absolute noise.

    total: noisy number of rows; families: the number of families that share ``rho`` evenly, each with sensitivity
    ``records``.  Returns 0 if no family is useful.
    """
    noise = NORMAL_MEAN_ABSOLUTE * compute_sigma(rho / max(families, 1), records)
    return math.floor(max(total, 0.0) / (usefulness * noise))


def build_bayesian_network(
    scores: Mapping[tuple[str, str], float], domain: Domain, degree: int, most_cells: int
) -> list[Clique]:
    """Return the families (an attribute with its parents) in the order of drawing, each in domain order.

    The next attribute is the one whose parents among the earlier attributes have the largest summed score.  Parents
    are chosen strongest first, all with positive score: at most ``degree`` parents, with at most ``most_cells`` cells
    together with the attribute.  If no attribute has such parents, the one with the strongest relation becomes a
    new root.  Attributes without a relation are in no family.
    """
    score_of = {frozenset(pair): s for pair, s in scores.items() if s > 0 and domain.cells(pair) <= most_cells}
    strongest: dict[str, float] = {}
    for related, score in score_of.items():
        for a in related:
            strongest[a] = max(strongest.get(a, 0.0), score)
    undrawn = dict.fromkeys(a for a in domain.attributes if a in strongest)
    ranked: dict[str, list[tuple[float, int]]] = {a: [] for a in undrawn}
    families: list[Clique] = []
    while undrawn:
        best = {a: _choose_parents(a, ranked[a], domain, degree, most_cells) for a in undrawn if ranked[a]}
        if best:
            child = max(best, key=lambda a: (best[a][0], -domain.index(a)))
            families.append(domain.ordered((child, *best[child][1])))
        else:
            child = max(undrawn, key=lambda a: (strongest[a], -domain.index(a)))
        del undrawn[child]
        for a in undrawn:
            pair = frozenset((a, child))
            if pair in score_of:
                insort(ranked[a], (-score_of[pair], domain.index(child)))
    return families


def _choose_parents(
    child: str, ranked: list[tuple[float, int]], domain: Domain, degree: int, most_cells: int
) -> tuple[float, list[str]]:
    """Return the strongest parents from ``ranked`` (-score, position), as many as fit, after their summed score."""
    cells, score, members = domain.size(child), 0.0, list[str]()
    for negative, position in ranked:
        if len(members) == degree:
            break
        if cells * domain.sizes[position] <= most_cells:
            cells *= domain.sizes[position]
            score -= negative
            members.append(domain.attributes[position])
    return score, members


_ANCESTRAL = 101  # purpose of the random streams; no other step's


def draw_ancestral_rows(
    families: Sequence[Marginal], one_ways: Mapping[str, NDArray[np.float64]], domain: Domain, rows: int, seed: int
) -> CodeTable:
    """Draw ``rows`` rows of codes over ``domain``.

    families: measured counts in the order of drawing, possibly negative; an attribute is drawn from the first family
    that contains it, given the family's attributes drawn before.  one_ways: attribute -> counts, used for root
    attributes, attributes in no family, and rows whose family has no positive count.
    """
    from privsyn.tasks.synthesis.sweep import draw_attribute  # here: compiled code loads slowly

    shares = {a: np.maximum(one_ways[a], 0.0) for a in domain.attributes}
    columns: dict[str, NDArray[np.unsignedinteger]] = {}

    def draw(attribute: str, conditional: Marginal | None) -> None:
        address = derive_stream(seed, _ANCESTRAL, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, conditional, columns, rows, shares[attribute], address)

    for family in families:
        counts = Marginal(family.attributes, np.maximum(family.counts, 0.0))
        for attribute in family.attributes:
            if attribute not in columns:
                earlier = [a for a in family.attributes if a in columns]
                draw(attribute, counts.project((attribute, *earlier)) if earlier else None)
    for attribute in domain.attributes:
        if attribute not in columns:
            draw(attribute, None)
    return CodeTable(domain, tuple(columns[a] for a in domain.attributes))


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
    public: CodeTable,
    group: Clique,
    noisy: Floats,
    sigma: float,
    rows: int,
    possible_rows: Sequence[NDArray[np.bool_]] | None,
) -> GroupSizes:
    """Return how many of ``rows`` rows each group has.

    noisy: the groups' noisy numbers of rows, shape (cells of ``group``,), each with standard deviation ``sigma``.  A
    group that the ``public`` table lacks has rows only if its noisy number stands out (STANDS_OUT).  A group without a
    possible row (``possible_rows``, from :func:`list_possible_rows`) has none.  The numbers are the least-squares fit
    that is nonnegative and sums to ``rows``, rounded.
    """
    shape = public.domain.shape(group)
    has = np.zeros(noisy.size, bool)
    has[np.ravel_multi_index([public.column(a).astype(np.int64) for a in group], shape)] = True
    able = has | (noisy >= STANDS_OUT * sigma)
    some = np.ones(noisy.size, bool) if possible_rows is None else np.array([rows.any() for rows in possible_rows])
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
    possible_rows: Sequence[NDArray[np.bool_]] | None,
    seed: int,
) -> Iterator[CodeTable]:
    """Yield the rows, in random order, at most AT_A_TIME at once.

    shares: one distribution over the distinct public rows per group, in order; ``possible_rows``: from
    :func:`list_possible_rows`.  Draws are systematic: among n rows, a public row of share p comes floor(n p) or ceil(n
    p) times, so counts match the distribution up to rounding.  Memory: two integers per row.
    """
    generator = np.random.default_rng([seed, _PURPOSE])
    shape, drawn = support.domain.shape(support.group), []
    for code, number, share in zip(groups.codes, groups.rows, shares, strict=True):
        if possible_rows is not None:
            possible = np.where(possible_rows[int(np.ravel_multi_index(tuple(code), shape))], share, 0.0)
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


def draw_graphical_rows(
    measured: Sequence[Marginal],
    one_ways: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    domain: Domain,
    rows: int,
    seed: int,
) -> CodeTable:
    """Draw ``rows`` rows of codes over ``domain``.

    measured: noisy counts of cliques, which may be negative, with their sigma.  Their graph should be close to a tree:
    time and memory grow with its largest junction clique.  one_ways: attribute -> (noisy counts, variances).  Rows
    depend on floating-point work of jax: the same seed gives the same rows with the same versions on one machine.
    Raises ModuleNotFoundError if mbi is not installed.
    """
    if rows == 0:
        return CodeTable(domain, tuple(np.zeros(0, choose_code_dtype(n)) for n in domain.sizes))
    mbi = _load_mbi()
    space = mbi.Domain(domain.attributes, domain.sizes)
    looks = [_build_one_way(mbi, a, *one_ways[a]) for a in domain.attributes]
    looks += [mbi.LinearMeasurement(m.counts.ravel(), m.attributes, m.sigma) for m in measured]
    total = max(1.0, float(np.mean([one_ways[a][0].sum() for a in domain.attributes])))
    model = mbi.estimation.MirrorDescent().estimate(space, looks, total, iters=ITERATIONS, tol=TOLERANCE)
    number = int(derive_stream(seed, _GRAPHICAL) >> np.uint64(33))  # the package takes 31 bits
    with _hide_hints():
        drawn = mbi.extensions.synthetic_data(model, rows, number).to_dict()
    return CodeTable(domain, tuple(drawn[a].astype(choose_code_dtype(domain.size(a))) for a in domain.attributes))


def estimate_model_mb(cliques: Sequence[tuple[str, ...]], domain: Domain) -> float:
    """Return the size of the cliques' junction tree in MB.  Raises ModuleNotFoundError if mbi is not installed."""
    mbi = _load_mbi()
    return float(mbi.junction_tree.hypothetical_model_size(mbi.Domain(domain.attributes, domain.sizes), list(cliques)))


@contextmanager
def _hide_hints() -> Iterator[None]:
    """Drop the package's log records on the root logger, which are hints about its compiler's speed."""
    root = logging.getLogger()

    def other(record: logging.LogRecord) -> bool:
        return record.module != "synthetic_data"

    root.addFilter(other)
    try:
        yield
    finally:
        root.removeFilter(other)


def _load_mbi() -> Any:
    """Return the package, set to double precision and without a cache on disk."""
    if importlib.util.find_spec("mbi") is None:
        raise ModuleNotFoundError("No module named 'mbi': pip install 'privsyn-flows[pgm]'", name="mbi")
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    import mbi

    return mbi


def _build_one_way(mbi: Any, attribute: str, counts: NDArray[np.float64], variance: NDArray[np.float64]) -> Any:
    """Return the measurement of one attribute, each cell in units of its own standard deviation."""
    sigma = np.sqrt(variance)
    return mbi.LinearMeasurement(counts / sigma, (attribute,), 1.0, mbi.WeightedQuery(1.0 / sigma))
