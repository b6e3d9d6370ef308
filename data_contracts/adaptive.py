"""Further rounds of measuring: how many, and what they may cost.

Belongs here: the spec's fields and the exact split of the third stage's budget over the rounds.  Does not belong here:
what a round does (tasks/residual_scores.py, tasks/select_again.py, flows/rounds.py).
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from pydantic import Field

from data_contracts.columns import FrozenModel

MOST_ROUNDS = 9
"""Further rounds at most."""

LEAST_SHARE = 0.01
"""Smallest part that anything may be split into here: less would draw noise that no integer holds, after paying."""


class RoundShares(NamedTuple):
    """The third stage's budget: of its first measurement, and of the scores and the measurement of each further round.

    ``first`` + rounds x (``scores`` + ``measurement``) is the whole.
    """

    first: Fraction
    scores: Fraction
    measurement: Fraction


class Adaptive(FrozenModel):
    """Further rounds: make rows from what is known, ask privately where they are worst, measure there."""

    rounds: int = Field(
        default=0,
        ge=0,
        le=MOST_ROUNDS,
        description="Rounds after the first measurement. None is the default: on the public tables tried the further "
        "looks cost about what they gain (docs/algorithm.md). Not in the paper.",
    )
    share: float = Field(
        default=0.5,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of the third stage's budget that is kept for the further rounds, in equal parts.",
    )
    scores: float = Field(
        default=0.1,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of a round's budget that asking where the rows are worst costs.",
    )
    triples: bool = Field(
        default=False,
        description="Whether marginals of three columns are candidates, too: as many as there are pairs, those whose "
        "pairs are related most, of at most `selection.gamma` cells.",
    )

    def exact(self, measurement: Fraction) -> RoundShares:
        """The parts of ``measurement``, from the decimals that were written, exactly."""
        if not self.rounds:
            return RoundShares(measurement, Fraction(0), Fraction(0))
        share, scores = Fraction(repr(self.share)), Fraction(repr(self.scores))
        each = measurement * share / self.rounds
        return RoundShares(measurement * (1 - share), each * scores, each * (1 - scores))
