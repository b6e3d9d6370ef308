"""Residual-guided sweeps: rows move one value at a time, each move towards all marginals at once.

A sweep's targets are marginals scaled to the number of rows, and their cells that must be empty.

Not in the paper.  GUM (section 5.2) works on one marginal at a time and partly undoes its work on the others.  A sweep
checks every marginal on an attribute before it moves a row, and moves it only if the sum of squared residuals falls.
So it needs no alpha and no duplication.  Post-processing of released counts costs no budget.

If columns determine each other, sweeps can get stuck: no single move lowers the residuals although much is wrong.  A
few sweeps at falling temperatures then also make slightly worse moves (simulated annealing: Kirkpatrick, Gelatt and
Vecchi, "Optimization by Simulated Annealing", Science 220, 1983).  If the settings ask for it, a sample of the rows
first shows whether this is worth its time.

Initial rows for the sweeps: drawn along a tree, with each attribute settled before the next one is drawn.  An attribute
is drawn given others with exact conditional shares; other steps draw attributes so too.

Not in the paper.  A tree keeps one relation per attribute.  Before later attributes are drawn given an attribute, a few
sweeps move it alone towards its marginals with all attributes drawn so far.  This makes rows coherent.  If columns
determine each other, moves of one value at a time cannot repair rows later, because the row's other values oppose each
move.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal, list_by_attribute, sum_to_one_ways
from privsyn.tasks.kernels.counting import CodeTable, count, fill_keys
from privsyn.tasks.kernels.gum_update import TargetMarginal, index_rows
from privsyn.tasks.kernels.small_kernels import shuffle, shuffle_segments
from privsyn.tasks.kernels.streams import derive_stream, draw_systematically, draw_uniform, draw_uniforms
from privsyn.tasks.kernels.sweep_moves import Sweeper, share_residuals
from privsyn.tasks.synthesis.shards import Shard

MIN_IMPLIED_SHARE = 0.95
"""A value determines another attribute if at least this share of the value's wanted rows are in one cell."""

MIN_EXPECTED_COUNT = 2.0
"""Least independent count, in standard deviations of noise, of a cell that is treated as empty."""

MAX_WANTED_DEVIATIONS = 0.1
"""Largest wanted count, in standard deviations of noise, of a cell that is treated as empty."""

FIRST_SWEEP_BLOCKS = (8, 4, 2)
"""Row blocks of the first sweeps; later sweeps have as many as the last of these.  Fewer blocks fit better, since each
block rounds its quotas."""

LEAST_GAIN = 0.05
"""Sweeps end when one with the fewest blocks lowers the sum of absolute residuals by less than this share."""

TEMPERATURES = (0.3, 0.2, 0.1, 0.05)
"""Temperatures of heated sweeps, in units of the cost of a move between settled cells."""

STUCK_THRESHOLD = 0.002
"""Sweeps of an attribute are stuck if its error beyond noise, averaged over its marginals, is at least this share of
the rows; below it, further moves would follow noise."""

HEAT_SAMPLE_ROWS = (1 << 12, 1 << 14)
"""Least and most rows of the sample on which heat is tried.  In few rows, rounding hides the gain: on fire2016 at
epsilon 1, heat removed 6 % of the error in 4,096 rows, 55 % in 16,384, and 93 % in the whole table."""

LEAST_HEAT_SAMPLES = 4
"""Heat is tried on a sample only if the table holds this many samples; otherwise the trial takes too long."""

LEAST_HEAT_GAIN = 0.1
"""Least share of the sample's error that heat must remove to be worth its time."""

_ROUNDED_ROWS = 4.0
"""Residual rows in a shard's cell that do not count as error.  With 1, heat took most of the time of small shards, and
the union of 20 shards was 12 % farther from the measured pairs than with 4."""

REFINING_SWEEPS = 2
"""Sweeps of a shard towards the residuals of all shards together.  On a million rows in 16 shards, one sweep left 14 %
more residuals than two, and three left 6 % less."""

_STILL_SHARE = 0.5  # residuals up to this many standard deviations of their marginal's noise do not count as error

_SAMPLE_ROUNDED_ROWS = 1.0  # rounding moves a sample's quota of a residual by at most one row

_ROUND, _ORDER, _SWEEP, _WARM, _REFINE, _SAMPLE = 10, 11, 12, 13, 16, 17  # purposes of random streams
_UNIT, _ONE_WAY, _HEAVIEST = 4, 16, 64  # weights of a marginal with median noise, of a one-way, and the largest weight


def draw_attribute(
    attribute: str,
    marginal: Marginal | None,
    columns: Mapping[str, np.ndarray],
    rows: int,
    one_way: np.ndarray,
    address: np.uint64,
) -> np.ndarray:
    """Return codes of ``attribute`` for ``rows`` rows, from the ``marginal`` on it and on attributes already drawn.

    ``columns``: the codes of these attributes, each of shape (rows,).  ``one_way``: counts of the attribute's codes,
    used if there is no marginal (None) or in cells where the marginal has no counts.  ``address``: the random stream.
    """
    if marginal is None:
        marginal = Marginal((attribute,), one_way)
    conditions = {a: n for a, n in zip(marginal.attributes, marginal.counts.shape, strict=True) if a != attribute}
    merges = {a: marginal.get_merge(a) for a in conditions}
    codes = (columns[a] if m is None else m.astype(columns[a].dtype)[columns[a]] for a, m in merges.items())
    table = CodeTable(Domain.of(conditions), tuple(codes))
    return draw_given(table, rows, _split_merged(marginal, attribute, one_way), one_way, address)


def _split_merged(marginal: Marginal, attribute: str, one_way: np.ndarray) -> np.ndarray:
    """Return the counts by the attribute's codes, which split a merged code by the one-way, or else evenly."""
    joint, merge = marginal.by_code(attribute), marginal.get_merge(attribute)
    if merge is None:
        return joint
    cells, sums = np.bincount(merge), np.bincount(merge, weights=one_way)
    shares = np.where(sums[merge] > 0, one_way, 1.0) / np.where(sums > 0, sums, cells)[merge]
    return np.ascontiguousarray(joint[:, merge] * shares)


def draw_given(
    given_codes: CodeTable, rows: int, joint: np.ndarray, one_way: np.ndarray, address: np.uint64
) -> np.ndarray:
    """Return codes for ``rows`` rows given their cell of ``given_codes``; joint: float64, shape (cells, codes).

    Within a cell, the codes have the joint's conditional shares up to rounding, in random order.  A cell without counts
    in the joint uses ``one_way``.  address: the random stream.
    """
    cells, size = joint.shape
    rows_by_cell = (
        count(given_codes, given_codes.domain.attributes).reshape(-1) if given_codes.columns else np.array([rows])
    )
    edges = np.concatenate([[0], np.cumsum(rows_by_cell)])
    weights = np.where(joint.sum(axis=1, keepdims=True) > 0, joint, one_way)
    quotas = draw_systematically(weights, rows_by_cell, draw_uniforms(address, cells))
    values = np.repeat(np.tile(np.arange(size, dtype=choose_code_dtype(size)), cells), quotas.ravel())
    shuffle_segments(values, edges, derive_stream(int(address), 1))
    if not given_codes.columns:
        return values
    keys, places = np.zeros(rows, np.uint32), edges[None, :-1].copy()
    fill_keys(keys, given_codes.columns, given_codes.domain.sizes)
    index = np.empty(rows, np.uint32)
    index_rows(keys, np.array([0, rows]), places, 0, 1, index)
    column = np.empty_like(values)
    column[index] = values
    return column


def scale_target(marginal: Marginal, group: Clique, rows: int, zeros: KnownZeros | None = None) -> TargetMarginal:
    """Return the marginal scaled to ``rows``, with attributes as positions in ``group``; uniform if all counts are 0.

    zeros: cells that rules forbid; the target keeps the ones on its attributes.
    """
    wanted = marginal.counts.astype(np.float64).ravel()
    total = wanted.sum()
    scale = rows / total if total > 0 else 0.0
    wanted = wanted * scale if total > 0 else np.full(wanted.size, rows / wanted.size)
    attributes = tuple(group.index(a) for a in marginal.attributes)
    unknown = zeros is None or bool(marginal.merges)
    zero_cells = None if unknown or zeros is None else zeros.on(marginal.attributes, marginal.counts.shape)
    return TargetMarginal(
        attributes, marginal.counts.shape, wanted, marginal.sigma * scale, zero_cells, marginal.merges
    )


def find_empty_cells(targets: Sequence[TargetMarginal]) -> NDArray[np.bool_]:
    """Return the mask of the targets' cells, concatenated in row-major order, that are surely empty.

    Not in the paper.  Besides forbidden cells, these are cells of pairs with known noise.  If a value determines the
    other attribute (MIN_IMPLIED_SHARE), a cell is empty if independence would put many rows in it (MIN_EXPECTED_COUNT)
    and almost none are wanted (MAX_WANTED_DEVIATIONS).
    """
    return np.concatenate([_find_empty(target) for target in targets])


def _find_empty(target: TargetMarginal) -> NDArray[np.bool_]:
    zero_cells = np.zeros(target.wanted.size, bool) if target.zero is None else target.zero.ravel()
    if len(target.shape) != 2 or target.sigma <= 0:
        return zero_cells
    wanted = target.wanted.reshape(target.shape)
    first, second = wanted.sum(axis=1, keepdims=True), wanted.sum(axis=0, keepdims=True)
    expected = first * second / max(float(wanted.sum()), 1.0)
    follows = wanted.max(axis=1, keepdims=True) >= MIN_IMPLIED_SHARE * first
    follows = follows | (wanted.max(axis=0, keepdims=True) >= MIN_IMPLIED_SHARE * second)
    bare = (expected >= MIN_EXPECTED_COUNT * target.sigma) & (wanted <= MAX_WANTED_DEVIATIONS * target.sigma)
    return zero_cells | (follows & bare).ravel()


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
    """Sweep one component in place, at most ``settings.sweeps`` times; return the remaining residuals.

    columns: codes below ``sizes``, one array per attribute; targets: each sums to the number of rows.  component:
    addresses the random streams; report: called with the sweeps done.  shard: the rows' shard of the table (None: the
    whole table), which decides how targets are rounded.  forbidden: (attributes' positions, cells) that rules forbid.
    """
    shard = shard or Shard(settings.seed)
    residuals = compute_residuals(columns, sizes, targets, component, threads, shard)
    address = (settings.seed, component)
    with _build_sweeper(columns, sizes, targets, residuals, threads, forbidden) as sweeper:
        cool(sweeper, np.arange(len(columns)), settings.sweeps, address, report)
        # after few sweeps rows are still improving: only later sweeps can be stuck
        stuck = (
            _find_stuck(sweeper.residuals, targets, len(columns), rounded=shard.count > 1)
            if settings.sweeps > len(FIRST_SWEEP_BLOCKS)
            else np.zeros(0, int)
        )
        if stuck.size and settings.try_heat:
            wrong = np.array(sweeper.residuals)
            if not _gains_by_heat(columns, sizes, targets, wrong, stuck, settings, component, threads, forbidden):
                stuck = stuck[:0]
        if stuck.size:  # all improving moves are made: only moves that raise the sum can lead further
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
    """Sweep the stuck attributes at falling temperatures, and then all attributes without heat."""
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
    """Return whether heat lowers the error by LEAST_HEAT_GAIN in a sample of the rows; the rows do not change.

    The sample is one of several blocks, with its quota of every residual.
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
    """Sweep one component of a shard in place towards the residuals of all shards; return the new residuals.

    residuals: wanted minus present rows of all shards together, in all targets' cells.  ``settings`` has the shard's
    own seed; other arguments are as in :func:`sweep`.
    """
    order = np.arange(len(columns))
    with _build_sweeper(columns, sizes, targets, residuals, threads, forbidden) as sweeper:
        for t in range(min(REFINING_SWEEPS, settings.sweeps)):
            shuffle(order, derive_stream(settings.seed, _ORDER, component, _REFINE, t))
            # one block: shared among several blocks, the residuals would be too small for moves
            sweeper.sweep(order, 1, True, settings.seed, _SWEEP, component, _REFINE, t)
        return np.array(sweeper.residuals, dtype=np.int64)


def _build_sweeper(
    columns: Sequence[np.ndarray],
    sizes: Sequence[int],
    targets: Sequence[TargetMarginal],
    residuals: np.ndarray,
    threads: int,
    forbidden: Sequence[tuple[Sequence[int], np.ndarray]],
    visited: frozenset[int] | None = None,
) -> Sweeper:
    return Sweeper(
        columns,
        sizes,
        [target.attributes for target in targets],
        weigh_marginals(targets),
        residuals,
        threads,
        forbidden,
        find_empty_cells(targets),  # surely empty: no row moves there
        [target.merges for target in targets],
        visited,
    )


def cool(
    sweeper: Sweeper,
    order: np.ndarray,
    sweeps: int,
    address: Sequence[int],
    report: Callable[[int], None] = lambda done: None,
    first: int = 0,
) -> None:
    """Run sweeps ``first`` to ``sweeps`` - 1 without heat, ending early once a sweep gains less than LEAST_GAIN.

    order: int64, the attributes to visit, shuffled in place; address: the seed and the address of the random streams;
    report: called with the sweeps done.
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

    ``rounded``: the targets are a shard's, whose rounded counts disagree in small cells.  Moves cannot repair a few
    rows in a cell, and all shards together are refined afterwards.
    """
    wrong = _compute_wrong_shares(residuals, targets, attributes, _ROUNDED_ROWS if rounded else 0.0)
    return np.flatnonzero(wrong >= STUCK_THRESHOLD)


def _compute_wrong_shares(
    residuals: np.ndarray, targets: Sequence[TargetMarginal], attributes: int, least: float, parts: int = 1
) -> np.ndarray:
    """Return each attribute's error beyond noise, as a share of the rows, averaged over its larger marginals.

    ``least``: residual rows in a cell that do not count; ``parts``: the residuals are for one of so many equal parts of
    the targets' rows.
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
    """Return a positive integer weight per marginal: 4 times the median sigma / sigma, at most 64; 16 for a one-way.

    All marginals of an attribute agree on its one-way, so the one-way is more precise than any of them.  Without known
    noise, all larger marginals have the weight 4.
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
    """Return wanted minus present rows in all targets' cells, as integers.

    The wanted rows are rounded to sum to the number of rows in each target.
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
    """Count the rows in each target's cells, by merged codes if the target has them."""
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
    return CodeTable(domain, tuple(codes for _, codes in table.values())).counts(cliques, threads=threads)


MOST_SWEEPS = 6
"""Largest number of sweeps of one attribute; each takes a fraction of a sweep of all attributes."""

_TREE, _SETTLE = 4, 14  # purposes of random streams, used by no other method


def start_settled(
    marginals: Sequence[Marginal], domain: Domain, settings: Synthesis, rows: int, threads: int, zeros: KnownZeros
) -> list[np.ndarray]:
    """Return columns of ``rows`` codes over ``domain``, in its order.

    marginals: every one-way and any larger marginals; zeros: joint codes that rules forbid.  Each attribute takes at
    most ``settings.sweeps`` sweeps.
    """
    one_ways = sum_to_one_ways(marginals, domain)
    holding = list_by_attribute(marginals, domain)
    drawn: set[str] = set()

    def settle(attribute: str, columns: Mapping[str, np.ndarray]) -> None:
        drawn.add(attribute)
        drawn_marginals = [m for m in holding[attribute] if drawn.issuperset(m.attributes)]
        tables = [(c, cells) for c, cells in zeros.tables if attribute in c and drawn.issuperset(c)]
        if rows and (len(drawn_marginals) > 1 or tables):
            cliques = [*(m.attributes for m in drawn_marginals), *(c for c, _ in tables)]
            group = domain.ordered({a for c in cliques for a in c})
            forbidden = [(tuple(group.index(a) for a in c), cells) for c, cells in tables]
            targets = [
                scale_target(m, group, rows, zeros)
                for m in (Marginal((attribute,), one_ways[attribute]), *drawn_marginals)
            ]
            chosen, sizes, number = [columns[a] for a in group], domain.shape(group), domain.index(attribute)
            residuals = compute_residuals(chosen, sizes, targets, number, threads, Shard(settings.seed), _SETTLE)
            position = group.index(attribute)
            visited = frozenset({position})
            with _build_sweeper(chosen, sizes, targets, residuals, threads, forbidden, visited) as sweeper:
                cool(sweeper, np.array([position]), min(MOST_SWEEPS, settings.sweeps), (settings.seed, _SETTLE, number))

    return start_from_tree(marginals, domain, rows, settings.seed, _TREE, settle)


Settle = Callable[[str, Mapping[str, np.ndarray]], None]


def start_from_tree(
    marginals: Sequence[Marginal],
    domain: Domain,
    rows: int,
    seed: int,
    purpose: int,
    settle: Settle = lambda attribute, columns: None,
) -> list[np.ndarray]:
    """Return columns of ``rows`` codes over ``domain``, in its order; marginals: every one-way and any larger ones.

    Up to rounding, every attribute has its one-way's shares, or the conditional shares of its marginal given the
    attributes drawn before.  Attributes that no chain of marginals connects are independent.  seed, purpose: address
    the random streams.  settle: called with each drawn attribute and all columns so far; it may change the attribute's
    codes.
    """
    one_ways = sum_to_one_ways(marginals, domain)
    columns: dict[str, np.ndarray] = {}
    for attribute, marginal in order_drawing([m for m in marginals if len(m.attributes) > 1], domain):
        address = derive_stream(seed, purpose, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, marginal, columns, rows, one_ways[attribute], address)
        settle(attribute, columns)
    return [columns[a] for a in domain.attributes]


def order_drawing(larger: Sequence[Marginal], domain: Domain) -> Iterator[tuple[str, Marginal | None]]:
    """Yield every attribute once, with the marginal on it and the earlier attributes it is drawn from, or None.

    The next attribute is the one with the largest mutual information with the drawn attributes of one marginal.  A
    component begins with the attribute of the strongest relation.  The first attribute wins ties.
    """
    holding = list_by_attribute(larger, domain)
    strongest = dict.fromkeys(domain.attributes, 0.0)
    for m in larger:
        for a in m.attributes:
            strongest[a] = max(strongest[a], compute_mutual_information(m, a))
    drawn: set[str] = set()
    reach: dict[str, tuple[float, Marginal]] = {}
    while len(drawn) < len(domain.attributes):
        if reach:
            attribute = max(reach, key=lambda a: (reach[a][0], -domain.index(a)))
            yield attribute, reach.pop(attribute)[1]
        else:
            attribute = max((a for a in domain.attributes if a not in drawn), key=lambda a: strongest[a])
            yield attribute, None
        drawn.add(attribute)
        for m in holding[attribute]:
            for a in m.attributes:
                if a not in drawn:
                    conditional = m.project({a, *(b for b in m.attributes if b in drawn)})
                    weight = compute_mutual_information(conditional, a)
                    if a not in reach or weight > reach[a][0]:
                        reach[a] = (weight, conditional)


def compute_mutual_information(marginal: Marginal, attribute: str) -> float:
    """Return the mutual information in nats of ``attribute`` and the marginal's other attributes; 0 without counts.

    Rounded to nine decimals: further digits differ between CPUs, and near 0 they would decide the order.
    """
    joint = marginal.by_code(attribute)
    total = joint.sum()
    if total <= 0:
        return 0.0
    entropy_of_others, entropy, joint_entropy = (
        _compute_entropy(counts / total) for counts in (joint.sum(axis=1), joint.sum(axis=0), joint)
    )
    return round(max(0.0, entropy_of_others + entropy - joint_entropy), 9)


def _compute_entropy(shares: np.ndarray) -> float:
    positive = shares[shares > 0]
    return -float((positive * np.log(positive)).sum())
