"""Transitions of linked rows, from the released counts of pairs of rows: shares, with intervals for the noise."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from privsyn.answers.released_counts import ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.engine.step import release_steps
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.panels.transition_codes import TransitionCodes, build_transition_codes

Floats = NDArray[np.float64]

LEAST = 3.0
"""Standard errors that the number of pairs from a code must reach, so that their shares are known."""


@dataclass(frozen=True)
class TransitionShares:
    """The share of each second code among pairs with a given first code; one entry a pair of codes.

    ``kind``: the kind of pair of household members; empty for persons.
    """

    kind: list[str]
    first: list[str]
    second: list[str]
    estimate: list[float]
    error: list[float]
    low: list[float]
    high: list[float]
    source: list[str]


def answer_transitions(released: ReleasedCounts, column: str, level: float) -> TransitionShares:
    """Return the transitions of a column.  Raises RequestError if none were measured."""
    plan, spec = released.encoding, released.request.spec
    if spec.panel is None:
        raise RequestError(
            "the rows of this release are not linked, so no row follows another",
            "Ask a release whose spec has `order`",
            "query.columns",
        )
    measured = [name for name in plan.following if name in spec.columns]
    if column not in measured:
        raise RequestError(
            f"no transitions of {column!r} were measured: it is constant, follows from the order, or is not a column",
            f"Name one of {', '.join(measured)}",
            "query.columns",
        )
    step = next(s for s in release_steps(released.steps) if s.name == "measure_transitions")
    codes = build_transition_codes(plan, released.recode, step.rho(released.request))[column]
    counts, sigma = released.find_noisy("measure_transitions", column)
    names = label_codes(plan.get_codec(column), codes)
    shares = TransitionShares([], [], [], [], [], [], [], [])
    if spec.panel.household:
        roles = plan.get_order()[1].labels()
        tables = counts.reshape(-1, codes.size, codes.size)
        for kind, table in enumerate(tables):
            same, role = bool(kind % 2), roles[kind // 2]
            if (kind // 2 in spec.panel.once and same) or (kind < 2 and not same):
                continue  # no household can have such a pair
            words = f"{role} after {role}" if same else f"first {role}, after another role"
            _add(shares, words, names, table, np.full(table.shape, sigma), level)
    else:
        table = counts.reshape(codes.size, codes.size + 1)
        joint = table[:, :-1] + np.diag(table[:, -1])
        _add(shares, "", names, joint, sigma * np.sqrt(1 + np.eye(codes.size)), level)
    return shares


def _add(shares: TransitionShares, kind: str, names: list[str], counts: Floats, sigma: Floats, level: float) -> None:
    z = NormalDist().inv_cdf((1 + level) / 2)
    for first, (row, noise) in enumerate(zip(counts, sigma, strict=True)):
        total, spread = float(row.sum()), float(np.sqrt((noise**2).sum()))
        is_clear = total >= LEAST * spread
        for second, (count, sigma_of_pair) in enumerate(zip(row, noise, strict=True)):
            share = count / total if is_clear else float("nan")
            variance = ((1 - share) * sigma_of_pair) ** 2 + share**2 * (spread**2 - sigma_of_pair**2)
            error = float(np.sqrt(variance)) / total if is_clear else float("nan")
            shares.kind.append(kind)
            shares.first.append(names[first])
            shares.second.append(names[second])
            shares.estimate.append(float(np.clip(share, 0.0, 1.0)) if is_clear else share)
            shares.error.append(error)
            shares.low.append(max(share - z * error, 0.0) if is_clear else 0.0)
            shares.high.append(min(share + z * error, 1.0) if is_clear else 1.0)
            shares.source.append("measured" if is_clear else "not known")


def label_codes(codec: Codec, codes: TransitionCodes) -> list[str]:
    """Return a label of each code: its only value, the first and last of neighbouring values, or all its values."""
    labels, has_code = codec.labels(), codes.recode.kept
    names = []
    for code in range(codes.size):
        members = np.flatnonzero(has_code & (codes.recode.coarse == code))
        if code < codes.ordered and len(members) > 1:
            names.append(f"{labels[members[0]]} to {labels[members[-1]]}")
        else:
            names.append(", ".join(labels[m] for m in members))
    return names
