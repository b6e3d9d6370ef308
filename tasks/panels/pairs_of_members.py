"""Transitions between neighbouring members of a household, for each kind of pair, from released counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.compositions import CompositionCodec
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.panels.link_members import KindsOfPairs
from privsyn.tasks.panels.link_rows import AHEAD
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.panels.transitions import estimate_pairs

Floats: TypeAlias = NDArray[np.float64]

UNMEASURED, FIRST, SECOND = 1.0, 0.3, 0.3
"""How far shares of codes may be off for members of one kind of pair, relative: not by role, of both members by role.

Of the first one more, since a head with children, say, is not like all heads.
"""


def estimate_kinds(
    plan: EncodingPlan,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: Mapping[str, TransitionCodes],
    noisy: Mapping[str, tuple[Floats, float]],
) -> tuple[KindsOfPairs, list[Marginal]]:
    """Return the transitions of every attribute that is followed, and members by AHEAD and each of these attributes.

    ``noisy``: the counts of each attribute and their noise.

    How many pairs of a kind there are follows from the compositions, and what their members are like from the relation
    with the role, where that was measured.
    """
    of, roles = plan.get_compositions(), plan.get_order()[1]
    one_ways = {m.attributes[0]: m.counts for m in marginals if len(m.attributes) == 1}
    r = recode[of.attribute]
    households = np.where(r.kept, r.weight, 0.0) * one_ways[of.attribute][np.minimum(r.coarse, r.size - 1)]
    drawn = households / np.maximum(of.members.sum(axis=1) - 1, 1)
    pairs = drawn @ of.pairs
    before = np.zeros((of.kinds, roles.size))
    for role in range(roles.size):
        others = of.members[:, :role] > 0
        known = (of.members[:, role] > 0) & others.any(axis=1)
        if role:
            last = role - 1 - np.argmax(others[:, ::-1], axis=1)
            before[role * 2] = np.bincount(last[known], weights=drawn[known], minlength=roles.size)
        before[role * 2 + 1, role] = 1.0
    before /= np.maximum(before.sum(axis=1, keepdims=True), 1e-9)
    members, neighbours = households @ of.members, households @ of.pairs
    found, ahead = {}, []
    for a, (counts, sigma) in noisy.items():
        by_role, measured = _share_by_role(a, roles.attribute, roles.size, recode, marginals, codes[a])
        like = _compare_by_kind(a, of, drawn, recode, marginals, codes[a])
        first, second = _scale(before @ by_role * like), _scale(by_role[np.arange(of.kinds) // 2] * like)
        relative = (FIRST, SECOND) if measured else (UNMEASURED, UNMEASURED)
        found[a] = [
            estimate_pairs(counts[k], sigma, pairs[k], first[k], second[k], relative, codes[a].ordered)
            for k in range(of.kinds)
        ]
        counted = neighbours[:, None] * [t.shares for t in found[a]]
        last = np.maximum(members @ by_role - counted.sum(axis=0), 1e-3 * members @ by_role)
        scale = float(neighbours.sum()) / max(float(pairs.sum()), 1e-9)
        noise = sigma * scale * np.sqrt(codes[a].size)
        ahead.append(Marginal((AHEAD, a), np.vstack([counted, last]), noise))
    return found, ahead


def _scale(shares: Floats) -> Floats:
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)


def _compare_by_kind(
    a: str, of: CompositionCodec, drawn: Floats, recode: Recode, marginals: Sequence[Marginal], codes: TransitionCodes
) -> Floats:
    """Return how much more often each code is there in households that have each kind of pair, 1 where unmeasured."""
    for m in marginals:
        if {*m.attributes} == {a, of.attribute}:
            counts = m.counts if m.attributes[0] == of.attribute else m.counts.T
            counts = np.maximum(counts, 0.0) @ codes.split
            whole = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
            shares = _scale(counts + counts.sum(axis=1, keepdims=True) * 1e-2 * whole + 1e-9)
            coarse = np.minimum(recode[of.attribute].coarse, recode[of.attribute].size - 1)
            of_kind = _scale((drawn[:, None] * of.pairs).T) @ shares[coarse]
            return np.where(of_kind > 0, of_kind, 1.0) / np.maximum(whole, 1e-9)
    return np.ones((of.kinds, codes.size))


def _share_by_role(
    a: str, role: str, roles: int, recode: Recode, marginals: Sequence[Marginal], codes: TransitionCodes
) -> tuple[Floats, bool]:
    """Return the shares of the codes of ``a`` among the members of each role, and whether these are measured."""
    for m in marginals:
        if {*m.attributes} == {a, role}:
            counts = m.counts if m.attributes[0] == role else m.counts.T
            counts = np.maximum(counts, 0.0) @ codes.split
            coarse = np.minimum(recode[role].coarse, recode[role].size - 1)
            whole = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
            counts = counts[coarse[:roles]] + 1e-3 * whole
            return counts / counts.sum(axis=1, keepdims=True), True
    one = next(m.counts for m in marginals if m.attributes == (a,)) @ codes.split
    one = np.maximum(one, 0.0) / max(float(one.sum()), 1e-9)
    return np.tile(one, (roles, 1)), False
