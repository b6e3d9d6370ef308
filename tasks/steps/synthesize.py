"""Steps *synthesize* and *append attributes* (postprocess): make rows whose marginals approach the given ones.

Rows are made by GUM or by sweeps.  Then attributes that are in at most one marginal are drawn (paper, section 5.3).
Post-processing of released counts costs no budget.  The same marginals, settings and rows give the same table on any
number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype, drop_attributes
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros, restrict_to_domain
from privsyn.tasks.estimation.marginals import Marginal, fit_to_sums, list_by_attribute, sum_to_one_ways
from privsyn.tasks.kernels.counting import CodeTable, check_cells, choose_thread_count
from privsyn.tasks.kernels.streams import derive_stream, draw_systematically, draw_uniform
from privsyn.tasks.knowledge.prior_pairs import PriorGuide
from privsyn.tasks.synthesis.implied_pairs import MOST_SWEEPS, compute_row_factor, imply_pairs, list_missing_pairs
from privsyn.tasks.synthesis.shards import Residuals, Shard

if TYPE_CHECKING:
    from privsyn.tasks.kernels.gum_update import TargetMarginal


Progress = Callable[[int, int], None]

MAX_ROWS = (1 << 31) - 1
"""Most rows of one table."""

_START, _JOIN, _PRIOR = 0, 3, 15  # purposes of random streams; the methods have others

_APPEND = 100  # purpose of the random streams; no other step's


def synthesize(
    marginals: Sequence[Marginal],
    domain: Domain,
    settings: Synthesis,
    rows: int,
    threads: int = 0,
    progress: Progress | None = None,
    shard: Shard | None = None,
    residuals: Residuals | None = None,
    zeros: KnownZeros | None = None,
    prior: PriorGuide | None = None,
) -> CodeTable:
    """Make ``rows`` rows of codes over ``domain`` that follow ``marginals``, by ``settings.method``.

    marginals: the one-way of every attribute, then any larger ones; finite, non-negative, consistent, with one common
    total.  They are scaled to ``rows``; a marginal without any count is treated as uniform.  threads: 0 for all cores.
    progress: called with (iterations or sweeps done, at most).  shard: the rows' part of a larger table (None: all of
    it).  residuals: filled with the rows' residuals (`sweep` only).  zeros: joint codes that rules forbid; sweeps
    respect them, GUM does not.  Raises ValueError for missing one-ways, wrong shapes, negative counts, or rows outside
    0 .. 2**31 - 1.
    """
    if not 0 <= rows <= MAX_ROWS:
        raise ValueError(f"rows must be from 0 to {MAX_ROWS:,}, not {rows:,}")
    for marginal in marginals:
        _check(marginal, domain)
    shard = shard or Shard(settings.seed)
    settings = settings.vary(seed=shard.own_seed)
    zeros = restrict_to_domain(zeros or KnownZeros(), domain)
    if prior is None:
        columns = _start(marginals, domain, settings, rows, choose_thread_count(threads), zeros)
    else:
        columns = _resample(prior.rows, domain, rows, settings.seed)
    groups = _list_groups(marginals, domain, zeros, prior)
    steps = settings.sweeps if settings.method == "sweep" else settings.iterations
    for g, group in enumerate(groups if rows else []):
        numbers = [domain.index(a) for a in group]
        own_marginals = [m for m in marginals if m.attributes and m.attributes[0] in group]
        if settings.method == "sweep" and shard.count == 1:  # shards are large, with little sampling error
            inner = Domain.of({a: domain.size(a) for a in group})
            own_marginals += (
                _list_implied(own_marginals, inner, settings, rows, threads, zeros) if prior is None else prior.pairs
            )
        report = _make_reporter(progress, g, len(groups), steps)
        chosen = [columns[i] for i in numbers]
        component_residuals = _fit_component(
            chosen, own_marginals, group, domain, settings, threads, report, shard, zeros
        )
        if residuals is not None and component_residuals is not None:
            residuals[numbers[0]] = component_residuals
        if g > 0:  # else the drawing order would relate components
            _reorder(columns, numbers, derive_stream(settings.seed, _JOIN, numbers[0]))
    return CodeTable(domain, tuple(columns))


def refine_shard(
    codes: CodeTable,
    marginals: Sequence[Marginal],
    settings: Synthesis,
    shard: Shard,
    residuals: Residuals,
    threads: int = 0,
    zeros: KnownZeros | None = None,
    prior: PriorGuide | None = None,
) -> tuple[CodeTable, Residuals]:
    """Move a shard's rows towards the summed residuals of all shards; return the rows and the new residuals.

    codes: as :func:`synthesize` made them with the same marginals, settings, shard, zeros and prior; residuals: summed
    over all shards.
    """
    from privsyn.tasks.synthesis.sweep import refine  # here: compiled code loads slowly

    domain, settings = codes.domain, settings.vary(seed=shard.own_seed)
    zeros = restrict_to_domain(zeros or KnownZeros(), domain)
    columns, residuals_after = [np.array(column) for column in codes.columns], dict(residuals)
    for group in _list_groups(marginals, domain, zeros, prior):
        first = domain.index(group[0])
        chosen = [columns[domain.index(a)] for a in group]
        own_marginals = [m for m in marginals if m.attributes and m.attributes[0] in group]
        targets, forbidden = _scale_targets(own_marginals, group, codes.rows, zeros)
        residuals_after[first] = refine(
            chosen,
            domain.shape(group),
            targets,
            residuals[first],
            settings,
            first,
            choose_thread_count(threads),
            forbidden,
        )
    return CodeTable(domain, tuple(columns)), residuals_after


def _list_groups(
    marginals: Sequence[Marginal], domain: Domain, zeros: KnownZeros, prior: PriorGuide | None
) -> list[Clique]:
    """Return the sets of two or more attributes that are fitted together."""
    cliques = [*(m.attributes for m in marginals if len(m.attributes) > 1), *zeros.cliques]
    # the prior's rows have relations that no marginal holds; separate components would lose them
    cliques += [domain.attributes] if prior is not None else []
    return [group for group in list_components(cliques, domain) if len(group) > 1]


def _scale_targets(
    marginals: Sequence[Marginal], group: Clique, rows: int, zeros: KnownZeros
) -> tuple[list[TargetMarginal], list[tuple[tuple[int, ...], np.ndarray]]]:
    """Return the marginals scaled to ``rows``, and (attributes' positions, cells) that rules forbid in the group."""
    from privsyn.tasks.synthesis.sweep import scale_target  # here: compiled code loads slowly

    forbidden = [(tuple(group.index(a) for a in c), mask) for c, mask in zeros.tables if set(c) <= set(group)]
    return [scale_target(m, group, rows, zeros) for m in marginals], forbidden


def _fit_component(
    columns: list[np.ndarray],
    marginals: Sequence[Marginal],
    group: Clique,
    domain: Domain,
    settings: Synthesis,
    threads: int,
    report: Callable[[int], None],
    shard: Shard,
    zeros: KnownZeros,
) -> NDArray[np.int64] | None:
    """Move one component's rows in place towards its marginals; return the residuals after sweeps, None for GUM."""
    from privsyn.tasks.kernels.gum_update import run_gum  # these here: compiled code loads slowly
    from privsyn.tasks.synthesis.sweep import sweep

    threads, first = choose_thread_count(threads), domain.index(group[0])
    targets, forbidden = _scale_targets(marginals, group, len(columns[0]), zeros)
    if settings.method == "gum":  # starts from one-ways; a merged cell has no single code to give a row
        larger = [target for target in targets if len(target.attributes) > 1 and not target.merges]
        run_gum(columns, larger, settings, first, threads, report)
        return None
    return sweep(columns, domain.shape(group), targets, settings, first, threads, report, shard, forbidden)


def _resample(table: CodeTable, domain: Domain, rows: int, seed: int) -> list[np.ndarray]:
    """Return ``rows`` rows of the table in random order; how often its rows are taken differs by at most one."""
    from privsyn.tasks.kernels.small_kernels import shuffle  # here: compiled code loads slowly

    order = np.arange(table.rows, dtype=np.uint32)
    shuffle(order, derive_stream(seed, _PRIOR, 0))
    chosen = np.resize(order, rows)
    shuffle(chosen, derive_stream(seed, _PRIOR, 1))
    return [np.ascontiguousarray(table.column(a)[chosen]) for a in domain.attributes]


def _list_implied(
    marginals: Sequence[Marginal], domain: Domain, settings: Synthesis, rows: int, threads: int, zeros: KnownZeros
) -> list[Marginal]:
    """Return the pairs of one component that no marginal holds, counted on an oversampled table.

    Returns none if the marginals' noise is unknown: they then count as exact, and no pairs are added.
    """
    times = compute_row_factor(rows, len(domain.attributes), settings.oversample)
    larger = [m for m in marginals if len(m.attributes) > 1]
    sigma = float(np.median([m.sigma for m in larger])) if larger else 0.0
    held_pairs = [m.attributes for m in larger if not m.merges]
    missing = list_missing_pairs(held_pairs, domain) if times > 1 and sigma > 0 else []
    if not missing:
        return []
    few_sweeps = min(settings.sweeps, MOST_SWEEPS)
    settings_of_more_rows = settings.vary(oversample=1, sweeps=few_sweeps)
    larger_table = synthesize(marginals, domain, settings_of_more_rows, times * rows, threads, zeros=zeros)
    return imply_pairs(larger_table, missing, float(larger[0].counts.sum()), sigma, threads)


def compute_output_rows(total: float, settings: Synthesis) -> int:
    """Return the number of rows to make: the setting, or ``total``, the noisy number of private rows, rounded.

    The exact number of private records is private and not used.
    """
    return max(0, round(total)) if settings.rows == "auto" else settings.rows


def list_components(cliques: Sequence[Clique], domain: Domain) -> list[Clique]:
    """Return the connected components of the attributes under the cliques, each and all in domain order.

    Separate and join (section 5.3): components share no marginal, so each is synthesized on its own.
    """
    import networkx as nx  # here: a release that is found again makes no graph

    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(domain.attributes)
    for clique in cliques:
        nx.add_path(graph, clique)
    return sorted((domain.ordered(c) for c in nx.connected_components(graph)), key=lambda c: domain.index(c[0]))


def _check(marginal: Marginal, domain: Domain) -> None:
    names = ", ".join(marginal.attributes)
    shape = marginal.get_shape(domain)
    check_cells(shape, marginal.attributes)
    if marginal.counts.shape != shape:
        raise ValueError(f"{names}: counts of shape {marginal.counts.shape} do not fit this domain")
    if not np.isfinite(marginal.counts).all() or (marginal.counts < 0).any():
        raise ValueError(f"{names}: counts must be finite and not negative")


def _start(
    marginals: Sequence[Marginal], domain: Domain, settings: Synthesis, rows: int, threads: int, zeros: KnownZeros
) -> list[np.ndarray]:
    """Return the initial rows: drawn along a tree for sweeps, from independent one-ways for GUM as in the paper."""
    if settings.method == "sweep":
        from privsyn.tasks.synthesis.sweep import start_settled  # here: compiled code loads slowly

        return start_settled(marginals, domain, settings, rows, threads, zeros)
    one_ways = sum_to_one_ways(marginals, domain)
    return [_draw_independently(one_ways[a], rows, settings.seed, domain.index(a)) for a in domain.attributes]


def _draw_independently(one_way: np.ndarray, rows: int, seed: int, attribute: int) -> np.ndarray:
    """Return a column of ``rows`` codes with the one-way's shares, in random order."""
    from privsyn.tasks.kernels.small_kernels import shuffle  # here: compiled code loads slowly

    draws = derive_stream(seed, _START, attribute)
    quotas = draw_systematically(one_way, rows, draw_uniform(draws))
    column = np.repeat(np.arange(one_way.size, dtype=choose_code_dtype(one_way.size)), quotas)
    shuffle(column, derive_stream(seed, _START, attribute, 1))
    return column


def _reorder(columns: list[np.ndarray], numbers: list[int], start: np.uint64) -> None:
    """Put a component's rows in a new random order, so that joining it to the others is independent."""
    from privsyn.tasks.kernels.small_kernels import shuffle  # here: compiled code loads slowly

    order = np.arange(columns[numbers[0]].size, dtype=np.uint32)
    shuffle(order, start)
    for i in numbers:
        columns[i] = columns[i][order]


def _make_reporter(progress: Progress | None, group: int, groups: int, steps: int) -> Callable[[int], None]:
    def report(done: int) -> None:
        if progress is not None:
            progress(group * steps + done, groups * steps)

    return report


def split_appended(
    cliques: Sequence[Clique], domain: Domain, tied: AbstractSet[str] = frozenset()
) -> tuple[list[Clique], list[tuple[str, Clique | None]]]:
    """Return the cliques that synthesis works on, and the appended attributes in the order of drawing.

    An attribute in exactly one clique of two or more attributes is drawn given the rest of that clique.  Its second
    item is that clique without the attributes drawn later, or None if the attribute is in no clique.  If no attribute
    of a clique is in another clique, the first stays in the core, and so does the first attribute of a domain without
    any other core attribute.

    The core cliques are the given ones without appended attributes: a clique of three or more keeps the joint of its
    core attributes.  Single attributes and duplicates are left out.  Attributes in ``tied`` are never appended, because
    rules tie them to others.
    """
    larger = [domain.ordered(clique) for clique in cliques if len(clique) > 1]
    degree = Counter(a for clique in larger for a in clique)
    appended: list[tuple[str, Clique | None]] = [
        (a, None) for a in domain.attributes if degree[a] == 0 and a not in tied
    ]
    core: dict[Clique, None] = {}
    for clique in larger:
        leaves = [a for a in clique if degree[a] == 1 and a not in tied]
        if len(leaves) == len(clique):
            leaves = leaves[1:]
        drawn_before = [a for a in clique if a not in leaves]
        if len(drawn_before) > 1:
            core[tuple(drawn_before)] = None
        for leaf in leaves:
            drawn_before.append(leaf)
            appended.append((leaf, domain.ordered(drawn_before)))
    if len(appended) == len(domain.attributes) and appended:
        appended = appended[1:]
    return list(core), appended


def select_core_marginals(
    marginals: Sequence[Marginal], domain: Domain, tied: AbstractSet[str] = frozenset()
) -> tuple[list[Marginal], Domain]:
    """Return the marginals left for synthesis, one-ways first, and their domain; see :func:`split_appended`."""
    cliques, appended = split_appended([m.attributes for m in marginals], domain, tied)
    core = drop_attributes(domain, {attribute for attribute, _ in appended})
    one_ways = sum_to_one_ways(marginals, domain)
    core_one_ways = [Marginal((a,), one_ways[a]) for a in core.attributes]
    holding = list_by_attribute(marginals, domain)
    marginal_of = {frozenset(m.attributes): m for m in reversed(marginals)}  # most cliques are marginals themselves
    measured = ((clique, marginal_of.get(frozenset(clique))) for clique in cliques)
    larger = (m if m and m.attributes == c else _find_covering(c, holding) for c, m in measured)
    return [*core_one_ways, *larger], core


def append_attributes(
    core: CodeTable, marginals: Sequence[Marginal], domain: Domain, seed: int, tied: AbstractSet[str] = frozenset()
) -> CodeTable:
    """Draw the attributes that ``core`` lacks; returns all attributes of ``domain``, in its order.

    core: rows over the domain of ``select_core_marginals(marginals, domain, tied)``, else ValueError; marginals: all
    marginals, including every attribute's one-way.  Within rows that share the conditioning values, the new codes have
    exactly the marginal's conditional shares, up to rounding, in random order; the marginal is first fitted to the
    one-ways.  If the marginal has no counts for the conditioning values, the one-way is used.
    """
    from privsyn.tasks.synthesis.sweep import draw_attribute  # here: compiled code loads slowly

    _, appended = split_appended([m.attributes for m in marginals], domain, tied)
    if core.domain.attributes != drop_attributes(domain, {attribute for attribute, _ in appended}).attributes:
        raise ValueError("the table's attributes are not the core attributes of these marginals")
    one_ways = sum_to_one_ways(marginals, domain)
    holding = list_by_attribute(marginals, domain)
    columns = dict(zip(core.domain.attributes, core.columns, strict=True))
    for attribute, clique in appended:
        marginal = None if clique is None else _keep_agreeing(_find_covering(clique, holding), attribute, one_ways)
        address = derive_stream(seed, _APPEND, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, marginal, columns, core.rows, one_ways[attribute], address)
    return CodeTable(domain, tuple(columns[a] for a in domain.attributes))


def _keep_agreeing(marginal: Marginal, attribute: str, one_ways: Mapping[str, NDArray[np.float64]]) -> Marginal:
    """Return ``marginal`` fitted to ``one_ways``: a pair to both one-ways, a larger marginal to ``attribute``'s.

    The consistency rounds do not fully reconcile very noisy counts; rows drawn from the unfitted counts would have a
    different one-way.
    """
    conditions = [(a, n) for a, n in zip(marginal.attributes, marginal.counts.shape, strict=True) if a != attribute]
    joint, one_way = marginal.by_code(attribute), one_ways[attribute]
    if joint.sum() <= 0 or one_way.sum() <= 0:
        return marginal
    sums = one_ways[conditions[0][0]] if len(conditions) == 1 else joint.sum(axis=1)
    fitted = fit_to_sums(joint / joint.sum(), (sums, one_way * (sums.sum() / one_way.sum())))
    return Marginal(
        (*(a for a, _ in conditions), attribute), fitted.reshape(*(n for _, n in conditions), -1), marginal.sigma
    )


def _find_covering(clique: Clique, holding: Mapping[str, Sequence[Marginal]]) -> Marginal:
    """Return the smallest marginal that covers ``clique``, summed down to it, with the axes in the clique's order."""
    fewest = min((holding[a] for a in clique), key=len)
    covering = [m for m in fewest if set(clique) <= set(m.attributes)]
    smallest = min(covering, key=lambda m: len(m.attributes)).project(clique)
    order = [smallest.attributes.index(a) for a in clique]
    return Marginal(clique, smallest.counts.transpose(order), smallest.sigma)
