"""Residual-guided sweeps: rows moved one value at a time, each move towards all marginals at once.

Not in the paper.  GUM (section 5.2) works on one marginal at a time and undoes part of what it did for the
others; a sweep looks at every marginal that holds an attribute before it moves a row, and moves it only if
the sum of squared residuals falls.  So there is no alpha and no duplication.  Post-processing of released
counts costs no budget.

Where columns follow from each other, no single move lowers the residuals although much is wrong: sweeps are stuck.
Then some sweeps at falling heat follow, in which records also move where that costs a little (simulated annealing:
Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing", Science 220, 1983).  Whether that is worth its
time a sample of the rows says first, where the settings ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.step_options import Synthesis
from privsyn.tasks.kernels.counting import CodeTable, count_all
from privsyn.tasks.kernels.streams import derive_stream, draw_systematically, draw_uniform, shuffle
from privsyn.tasks.kernels.sweep_moves import share_residuals
from privsyn.tasks.kernels.sweeper import Sweeper
from privsyn.tasks.kernels.updater import TargetMarginal
from privsyn.tasks.synthesis.shards import Shard
from privsyn.tasks.synthesis.targets import find_empty_cells

FIRST_SWEEP_BLOCKS = (8, 4, 2)
"""Row blocks of the first sweeps; all later ones have as many as the last.  Fewer blocks fit better: a block
rounds its quotas."""

LEAST_GAIN = 0.05
"""Sweeps end when one of the smallest number of blocks lowers the sum of absolute residuals by less than this share."""

TEMPERATURES = (0.3, 0.2, 0.1, 0.05)
"""Temperatures of the sweeps that free stuck ones, in units of the cost of a move between settled cells."""

STUCK_THRESHOLD = 0.002
"""Sweeps of an attribute are stuck if what is wrong beyond noise is, on average over its marginals, at least this share
of the rows; where it is less, further moves would follow noise."""

HEAT_SAMPLE_ROWS = (1 << 12, 1 << 14)
"""Rows on which heat is tried, at least and at most.  On few, rounding hides what it gains: of fire2016 at epsilon 1 it
took 6 % off what is wrong in 4,096 rows, 55 % in 16,384, and 93 % in the whole table."""

LEAST_HEAT_SAMPLES = 4
"""Heat is tried where the table has so many samples; on fewer rows trying takes as long as what it may save."""

LEAST_HEAT_GAIN = 0.1
"""Heat is worth its time if it lowers what is wrong in the sample by this share."""

_ROUNDED_ROWS = 4.0
"""Rows in a cell of a shard that are no sign of stuck sweeps.  With 1, heat took most of the time of small shards and
the union of 20 was 12 % farther from the measured pairs than with 4."""

REFINING_SWEEPS = 2
"""Sweeps of a shard towards what all shards together lack.  Of a million rows in 16 shards, one left 14 % more of it
than two, three 6 % less."""

_STILL_SHARE = 0.5  # residuals up to so many standard deviations of their marginal's noise are put down to it

_SAMPLE_ROUNDED_ROWS = 1.0  # a sample's quota of a residual is off by one row at most

_ROUND, _ORDER, _SWEEP, _WARM, _REFINE, _SAMPLE = 10, 11, 12, 13, 16, 17  # purposes of random streams
_UNIT, _ONE_WAY, _HEAVIEST = 4, 16, 64  # weights of a marginal of median noise and of a one-way, and the largest


def sweep(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    settings: Synthesis,
    component: int,
    threads: int,
    report: Callable[[int], None],
    shard: Shard | None = None,
    forbidden: Sequence[tuple[Sequence[int], np.ndarray]] = (),
) -> NDArray[np.int64]:
    """Sweep one component in place, at most ``settings.sweeps`` times; return the residuals that are left.

    columns: codes below ``sizes``, one array per attribute; targets: of one total, the number of rows.
    component addresses the random streams; report: called with the sweeps done.  shard: which of the table's shards
    the rows are (None: the whole table), by which targets are rounded.  forbidden: (attributes' positions, cells) that
    rules forbid.
    """
    shard = shard or Shard(settings.seed)
    residuals = compute_residuals(columns, sizes, targets, component, threads, shard)
    address = (settings.seed, component)
    with _build_sweeper(columns, sizes, targets, residuals, threads, forbidden) as sweeper:
        cool(sweeper, np.arange(len(columns)), settings.sweeps, address, report)
        # few sweeps leave rows on their way: only after more is what is still wrong a place that they cannot leave
        stuck = (
            _find_stuck(sweeper.residuals, targets, len(columns), rounded=shard.count > 1)
            if settings.sweeps > len(FIRST_SWEEP_BLOCKS)
            else np.zeros(0, int)
        )
        if stuck.size and settings.try_heat:
            wrong = np.array(sweeper.residuals)
            if not _gains_by_heat(columns, sizes, targets, wrong, stuck, settings, component, threads, forbidden):
                stuck = stuck[:0]
        if stuck.size:  # every move that lowers the sum is made: only one that raises it leads further
            _heat(sweeper, stuck, len(columns), settings, component, report)
        residuals_after = np.array(sweeper.residuals, dtype=np.int64)
    report(settings.sweeps)
    return residuals_after


def _heat(
    sweeper: Sweeper,
    stuck: np.ndarray,
    attributes: int,
    settings: Synthesis,
    component: int,
    report: Callable[[int], None] = lambda done: None,
) -> None:
    """Sweep the stuck attributes at falling heat, and then all without."""
    order = stuck.copy()
    for t, heat in enumerate(TEMPERATURES):
        shuffle(order, derive_stream(settings.seed, _ORDER, component, _WARM, t))
        sweeper.sweep(order, FIRST_SWEEP_BLOCKS[-1], False, settings.seed, _WARM, component, t, heat=heat)
    address = (settings.seed, component, _WARM)
    cool(sweeper, np.arange(attributes), settings.sweeps, address, report, len(FIRST_SWEEP_BLOCKS))


def _gains_by_heat(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    residuals: np.ndarray,
    stuck: np.ndarray,
    settings: Synthesis,
    component: int,
    threads: int,
    forbidden: Sequence[tuple[Sequence[int], np.ndarray]],
) -> bool:
    """Return whether heat lowers what is wrong by LEAST_HEAT_GAIN in a sample of the rows, which stay as they are.

    The sample is one block of several, with its quota of every residual.
    """
    least, most = HEAT_SAMPLE_ROWS
    parts = max(LEAST_HEAT_SAMPLES, columns[0].size // most)
    if columns[0].size < parts * least:
        return True
    sample = [column[: column.size // parts].copy() for column in columns]
    quota = share_residuals(residuals, 0, parts, derive_stream(settings.seed, _SAMPLE, component))
    with _build_sweeper(sample, sizes, targets, quota, threads, forbidden) as sweeper:
        before = _compute_wrong_shares(sweeper.residuals, targets, len(columns), _SAMPLE_ROUNDED_ROWS, parts)
        _heat(sweeper, stuck, len(columns), settings, component)
        after = _compute_wrong_shares(sweeper.residuals, targets, len(columns), _SAMPLE_ROUNDED_ROWS, parts)
    return bool(after[stuck].sum() < (1 - LEAST_HEAT_GAIN) * before[stuck].sum())


def refine(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    residuals: NDArray[np.int64],
    settings: Synthesis,
    component: int,
    threads: int,
    forbidden: Sequence[tuple[Sequence[int], np.ndarray]] = (),
) -> NDArray[np.int64]:
    """Sweep one component of one shard in place towards what all shards together lack; return what they lack then.

    residuals: of all shards together, rows wanted less rows there, all targets' cells; the others as of :func:`sweep`,
    ``settings`` with the shard's own seed.
    """
    order = np.arange(len(columns))
    with _build_sweeper(columns, sizes, targets, residuals, threads, forbidden) as sweeper:
        for t in range(min(REFINING_SWEEPS, settings.sweeps)):
            shuffle(order, derive_stream(settings.seed, _ORDER, component, _REFINE, t))
            # one block: shared out among several, what is lacking would be too little in each to be worth a move
            sweeper.sweep(order, 1, True, settings.seed, _SWEEP, component, _REFINE, t)
        return np.array(sweeper.residuals, dtype=np.int64)


def _build_sweeper(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    residuals: np.ndarray,
    threads: int,
    forbidden: Sequence[tuple[Sequence[int], np.ndarray]],
) -> Sweeper:
    return Sweeper(
        columns,
        sizes,
        [target.attributes for target in targets],
        weigh_marginals(targets),
        residuals,
        threads,
        forbidden,
        find_empty_cells(targets),  # empty beyond what noise can hide: no row moves there
        [target.merges for target in targets],
    )


def cool(
    sweeper: Sweeper,
    order: np.ndarray,
    sweeps: int,
    address: Sequence[int],
    report: Callable[[int], None] = lambda done: None,
    first: int = 0,
) -> None:
    """Sweep without heat, ``first`` to ``sweeps`` - 1 at most, until a sweep gains less than LEAST_GAIN.

    order: int64, the attributes that they visit, which is shuffled; address: the seed, and where the random streams
    are; report: called with the sweeps done.
    """
    seed, *where = address
    for t in range(first, sweeps):
        shuffle(order, derive_stream(seed, _ORDER, *where, t))
        before = np.abs(sweeper.residuals).sum()
        blocks = FIRST_SWEEP_BLOCKS[min(t, len(FIRST_SWEEP_BLOCKS) - 1)]
        moves = sweeper.sweep(order, blocks, t > 0, seed, _SWEEP, *where, t)
        gained = before - np.abs(sweeper.residuals).sum()
        if moves == 0 or (t >= len(FIRST_SWEEP_BLOCKS) and gained < LEAST_GAIN * before):
            break
        report(t + 1)


def _find_stuck(
    residuals: np.ndarray, targets: Sequence[TargetMarginal], attributes: int, *, rounded: bool
) -> np.ndarray:
    """Return the numbers of the attributes whose sweeps are stuck (STUCK_THRESHOLD).

    ``rounded``: the targets are a shard's, whose whole numbers do not agree with each other in small cells: a few rows
    in a cell are nothing that moves could mend, and all shards together are refined afterwards.
    """
    wrong = _compute_wrong_shares(residuals, targets, attributes, _ROUNDED_ROWS if rounded else 0.0)
    return np.flatnonzero(wrong >= STUCK_THRESHOLD)


def _compute_wrong_shares(
    residuals: np.ndarray, targets: Sequence[TargetMarginal], attributes: int, least: float, parts: int = 1
) -> np.ndarray:
    """Return per attribute what is wrong beyond noise, as a share of the rows, on average over its larger marginals.

    ``least``: rows in a cell that are nothing wrong; ``parts``: the residuals are those of one of so many parts of the
    rows that ``targets`` want.
    """
    wrong, holding = np.zeros(attributes), np.zeros(attributes)
    end = 0
    for target in targets:
        end += target.wanted.size
        if len(target.attributes) > 1:
            noise = max(_STILL_SHARE * target.sigma / parts, least)
            noisy = np.abs(residuals[end - target.wanted.size : end]) - noise
            share = np.maximum(noisy, 0.0).sum() / max(target.wanted.sum() / parts, 1.0)
            for a in target.attributes:
                wrong[a], holding[a] = wrong[a] + share, holding[a] + 1
    return wrong / np.maximum(holding, 1)


def weigh_marginals(targets: Sequence[TargetMarginal]) -> list[int]:
    """Return a positive integer per marginal: 4 / sigma in units of the median sigma, 16 for a one-way.

    All marginals of an attribute agree on its one-way, so that is known better than any of them.
    Without known noise all larger marginals have the weight 4.
    """
    sigmas = [t.sigma for t in targets if len(t.attributes) > 1 and t.sigma > 0]
    median = float(np.median(sigmas)) if sigmas else 0.0
    return [_ONE_WAY if len(t.attributes) == 1 else _compute_weight(median, t.sigma) for t in targets]


def _compute_weight(median: float, sigma: float) -> int:
    return max(1, round(min(_HEAVIEST, _UNIT * median / float(sigma)))) if sigma > 0 else _UNIT


def compute_residuals(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    component: int,
    threads: int,
    shard: Shard,
    purpose: int = _ROUND,
) -> np.ndarray:
    """Return rows wanted less rows there, integers, of all marginals' cells.

    What is wanted sums to the rows in each.
    """
    rows = columns[0].size
    counts = _count(columns, sizes, targets, threads)
    residuals = []
    for number, (target, counted) in enumerate(zip(targets, counts, strict=True)):
        offset = shard.offset(draw_uniform(derive_stream(shard.seed, purpose, component, number)))
        residuals.append(draw_systematically(target.wanted, rows, offset) - counted.ravel())
    return np.concatenate(residuals)


def _count(
    columns: Sequence[np.ndarray], sizes: Sequence[int], targets: Sequence[TargetMarginal], threads: int
) -> Iterator[np.ndarray]:
    """Count the rows in each target's cells, by merged codes where it has them."""
    table = {str(a): (size, column) for a, (size, column) in enumerate(zip(sizes, columns, strict=True))}
    cliques = []
    for number, target in enumerate(targets):
        names = [str(a) for a in target.attributes]
        for i, merge in enumerate(target.merges):
            if merge is not None:
                size, a = target.shape[i], target.attributes[i]
                names[i] = f"{a} of {number}"
                table[names[i]] = size, merge.astype(choose_code_dtype(size))[columns[a]]
        cliques.append(tuple(names))
    domain = Domain.of({name: size for name, (size, _) in table.items()})
    return count_all(CodeTable(domain, tuple(codes for _, codes in table.values())), cliques, threads=threads)
