"""New rows of many persons moved towards the measured relations, while what the persons had before stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.updater import Target
from privsyn.tasks.synthesis.shards import Shard

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[Any]

KIND = "(kind of pair)"
"""The codes of new members of a household that say what they are to the one before; no attribute has the name."""

AHEAD = "(kind of pair ahead)"
"""The codes of members of a household that say what the one after is to them, the last for none; likewise no name."""

SWEEPS = 6
"""Sweeps at most."""

KEPT = 256
"""Weight of the transitions beside 4 of a relation of median noise: persons stay what they are, before all else."""

ROUNDS = 20
"""Rounds in which a measured relation is brought to the shares that the new rows have."""


def fit_relations(
    new: dict[str, Codes],
    now: Mapping[str, Codes],
    held: Mapping[str, Codes],
    sizes: Mapping[str, int],
    joints: Mapping[str, tuple[Floats, float]],
    relations: Sequence[Marginal],
    seed: int,
    threads: int,
) -> None:
    """Move the codes ``new`` of the next rows, in place, towards transitions and relations at once.

    now: the same attributes' codes in the rows before; held: codes that the next rows have already; joints: of each
    attribute the wanted number of next rows by code before and code, and its noise; KIND comes first, where that is
    held and decides, too; none where rows follow from no others; relations: measured
    counts over attributes of both, of which the association is taken, and the shares of single codes from the rows.
    """
    from privsyn.tasks.kernels.sweeper import Sweeper  # these here: compiled code loads slowly
    from privsyn.tasks.synthesis.sweep import compute_residuals, cool, weigh_marginals

    moved = [a for a in new if any(a in m.attributes for m in relations)]
    if not moved:
        return
    rows = len(new[moved[0]])
    before = {a: i + len(moved) for i, a in enumerate(moved)}
    place = {a: i for i, a in enumerate(moved)} | {a: i + 2 * len(moved) for i, a in enumerate(held)}
    columns = [np.ascontiguousarray(c) for c in (*(new[a] for a in moved), *(now[a] for a in moved), *held.values())]
    shares = {a: np.bincount(c, minlength=sizes[a]).astype(np.float64) for a, c in held.items()}
    targets: list[Target] = []
    kept: list[int] = []
    for a in moved:
        if a not in joints:
            shares[a] = np.bincount(new[a], minlength=sizes[a]).astype(np.float64)
            targets.append(Target((place[a],), shares[a].shape, shares[a]))
            continue
        joint, sigma = joints[a]
        shares[a] = joint.reshape(-1, sizes[a]).sum(axis=0)
        by = (place[KIND],) if joint.ndim > 2 else ()
        targets.append(Target((place[a],), shares[a].shape, shares[a]))
        kept.append(len(targets))
        targets.append(Target((*by, before[a], place[a]), joint.shape, joint.ravel(), sigma))
    for m in relations:
        fitted = fit_to_shares(m.counts, [shares[a] for a in m.attributes])
        scale = rows / max(float(m.counts.sum()), 1.0)
        targets.append(Target(tuple(place[a] for a in m.attributes), fitted.shape, fitted.ravel(), m.sigma * scale))
    all_sizes = [sizes[a] for a in (*moved, *moved, *held)]
    residuals = compute_residuals(columns, all_sizes, targets, 0, threads, Shard(seed))
    cliques = [target.attributes for target in targets]
    weights = weigh_marginals(targets)
    for number in kept:
        weights[number] = KEPT
    with Sweeper(columns, all_sizes, cliques, weights, residuals, threads) as sweeper:
        cool(sweeper, np.arange(len(moved)), SWEEPS, (seed, 0))
    for a, column in zip(moved, columns, strict=False):
        new[a] = column


def fit_to_shares(counts: Floats, shares: Sequence[Floats]) -> Floats:
    """Return counts of the same association, whose sums along each axis are ``shares``, by proportional fitting."""
    total = float(shares[0].sum())
    found = counts + 1e-6 * max(float(counts.mean()), 1e-9)
    for _ in range(ROUNDS):
        for axis, wanted in enumerate(shares):
            others = tuple(i for i in range(found.ndim) if i != axis)
            sums = found.sum(axis=others)
            ratio = np.where(sums > 0, wanted / np.maximum(sums, 1e-300), 0.0)
            found = found * ratio.reshape([-1 if i == axis else 1 for i in range(found.ndim)])
    return np.asarray(found * (total / max(float(found.sum()), 1e-300)))
