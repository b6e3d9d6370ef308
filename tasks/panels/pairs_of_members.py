"""Transitions between neighbouring members of a household, for each kind of pair, from released counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.compositions import CompositionCodec
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.panels.link_members import KindsOfPairs, PairsOfMembers
from privsyn.tasks.panels.link_rows import KIND_OF_NEXT
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.panels.transitions import estimate_pairs

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

UNMEASURED, FIRST, SECOND = 1.0, 0.3, 0.3
"""Relative errors of the expected shares of codes in a kind of pair: without role shares; by role, first and second.

The first member's error is larger, because heads with children, for example, differ from all heads.
"""


NoisyPairs: TypeAlias = Mapping[str, tuple[Floats, float]]
"""Attribute -> its noisy counts by kind of pair and both codes, shape (kinds, k, k), and their noise."""


def estimate_kinds(
    plan: EncodingPlan,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: Mapping[str, TransitionCodes],
    neighbours: NoisyPairs,
    with_first: NoisyPairs,
    zeros: KnownZeros | None,
) -> PairsOfMembers:
    """Return the transitions of every followed attribute; ``zeros``: joint ``codes`` that rules forbid.

    The number of pairs of each kind follows from the compositions.  The expected shares of codes follow from the
    relation with the role, if it was measured.
    """
    compositions, roles = plan.get_compositions(), plan.get_order()[1]
    one_ways = {m.attributes[0]: m.counts for m in marginals if len(m.attributes) == 1}
    r = recode[compositions.attribute]
    households = np.where(r.kept, r.weight, 0.0) * one_ways[compositions.attribute][np.minimum(r.coarse, r.size - 1)]
    members = households @ compositions.members
    by_role = {a: _share_by_role(a, roles, recode, marginals, c, zeros) for a, c in codes.items()}

    def estimate(counted: NoisyPairs, pairs: Integers, first_kinds: Floats) -> KindsOfPairs:
        drawn = households[:, None] * pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1)
        number = drawn.sum(axis=0)
        by_attribute = {}
        for a, (counts, sigma) in counted.items():
            shares, measured = by_role[a]
            like = _compare_by_kind(a, compositions, drawn, recode, marginals, codes[a])
            first, second = (
                _scale(first_kinds @ shares * like),
                _scale(shares[np.arange(compositions.kinds) // 2] * like),
            )
            relative = (FIRST, SECOND) if measured else (UNMEASURED, UNMEASURED)
            by_attribute[a] = [
                estimate_pairs(counts[k], sigma, number[k], first[k], second[k], relative, codes[a].ordered)
                for k in range(compositions.kinds)
            ]
        return by_attribute

    transitions = estimate(neighbours, compositions.pairs, _share_roles_before(compositions, households))
    every, ahead = households @ compositions.pairs, []
    number = float((households * (compositions.members.sum(axis=1) > 1)).sum())
    for a, (_, sigma) in neighbours.items():
        counted = every[:, None] * [t.shares for t in transitions[a]]
        last = np.maximum(members @ by_role[a][0] - counted.sum(axis=0), 1e-3 * members @ by_role[a][0])
        noise = sigma * float(every.sum()) / max(number, 1e-9) * np.sqrt(codes[a].size)
        ahead.append(Marginal((KIND_OF_NEXT, a), np.vstack([counted, last]), noise))
    beside_first = estimate(with_first, compositions.pairs_with_first, _share_first_roles(compositions, households))
    limited = {a: shares for a, (shares, _) in by_role.items() if not shares.all()}
    return PairsOfMembers(transitions, beside_first, ahead, limited)


def _share_roles_before(compositions: CompositionCodec, households: Floats) -> Floats:
    """Return, for each kind of pair, the shares of roles among its first members, shape (kinds, roles)."""
    drawn = households / np.maximum(compositions.members.sum(axis=1) - 1, 1)
    roles = compositions.members.shape[1]
    before = np.zeros((compositions.kinds, roles))
    for role in range(roles):
        others = compositions.members[:, :role] > 0
        have_others = (compositions.members[:, role] > 0) & others.any(axis=1)
        if role:
            last = role - 1 - np.argmax(others[:, ::-1], axis=1)
            before[role * 2] = np.bincount(last[have_others], weights=drawn[have_others], minlength=roles)
        before[role * 2 + 1, role] = 1.0
    return before / np.maximum(before.sum(axis=1, keepdims=True), 1e-9)


def _share_first_roles(compositions: CompositionCodec, households: Floats) -> Floats:
    """Return the shares of roles among first members that have a later member of each kind, shape (kinds, roles)."""
    later = compositions.pairs_with_first
    drawn = households[:, None] * later / np.maximum(later.sum(axis=1, keepdims=True), 1)
    return np.asarray(_scale(drawn.T @ np.eye(compositions.members.shape[1])[compositions.find_first(0)]))


def _scale(shares: Floats) -> Floats:
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)


def _compare_by_kind(
    a: str,
    compositions: CompositionCodec,
    pairs: Floats,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: TransitionCodes,
) -> Floats:
    """Return how much more frequent each code is in households with each kind of pair, 1 if unmeasured.

    ``pairs``: the number of pairs by composition and kind.
    """
    counts = _find_pair(marginals, compositions.attribute, a, codes)
    if counts is None:
        return np.ones((compositions.kinds, codes.size))
    overall = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
    shares = _scale(counts + counts.sum(axis=1, keepdims=True) * 1e-2 * overall + 1e-9)
    coarse = np.minimum(recode[compositions.attribute].coarse, recode[compositions.attribute].size - 1)
    of_kind = _scale(pairs.T) @ shares[coarse]
    return np.where(of_kind > 0, of_kind, 1.0) / np.maximum(overall, 1e-9)


def _find_pair(marginals: Sequence[Marginal], first: str, a: str, codes: TransitionCodes) -> Floats | None:
    """Return the counts of ``first`` by the followed codes of ``a``, nonnegative; None if no marginal has both."""
    for m in marginals:
        if {*m.attributes} == {a, first}:
            counts = m.counts if m.attributes[0] == first else m.counts.T
            return np.asarray(np.maximum(counts, 0.0) @ codes.split)
    return None


def _share_by_role(
    a: str,
    role_codec: Codec,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: TransitionCodes,
    zeros: KnownZeros | None,
) -> tuple[Floats, bool]:
    """Return the shares of the codes of ``a`` among the members of each role, and whether they are measured.

    A code that rules forbid to a role has the share 0.
    """
    role, roles = role_codec.attribute, role_codec.size
    coarse = np.minimum(recode[role].coarse, recode[role].size - 1)[:roles]
    forbidden = None if zeros is None else zeros.on((role, a), (recode[role].size, codes.size))
    allowed = np.ones((roles, codes.size)) if forbidden is None else (~forbidden[coarse]).astype(np.float64)
    allowed[allowed.sum(axis=1) == 0] = 1.0
    counts = _find_pair(marginals, role, a, codes)
    if counts is not None:
        overall = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
        return _scale((counts[coarse] + 1e-3 * overall + 1e-9) * allowed), True
    one_way = next(m.counts for m in marginals if m.attributes == (a,)) @ codes.split
    one_way = np.maximum(one_way, 0.0) / max(float(one_way.sum()), 1e-9)
    return _scale((one_way + 1e-9) * allowed), False
