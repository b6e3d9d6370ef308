"""Transitions between neighbouring members of a household, for each kind of pair, from released counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.panels.link_members import KindsOfPairs
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.panels.transitions import estimate_pairs

Floats: TypeAlias = NDArray[np.float64]

UNMEASURED, FIRST, SECOND = 1.0, 0.7, 0.3
"""How far shares of codes may be off for members of one kind of pair, relative: not by role, of both members by role.

Of the first one more, since a head with children, say, is not like all heads.
"""


def estimate_kinds(
    plan: EncodingPlan,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: Mapping[str, TransitionCodes],
    noisy: Mapping[str, tuple[Floats, float]],
) -> KindsOfPairs:
    """Return the transitions of every attribute that is followed; ``noisy``: its counts and their noise.

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
    found = {}
    for a, (counts, sigma) in noisy.items():
        by_role, measured = _share_by_role(a, roles.attribute, roles.size, recode, marginals, codes[a])
        first = before @ by_role
        relative = (FIRST, SECOND) if measured else (UNMEASURED, UNMEASURED)
        found[a] = [
            estimate_pairs(counts[k], sigma, pairs[k], first[k], by_role[k // 2], relative, codes[a].ordered)
            for k in range(of.kinds)
        ]
    return found


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
