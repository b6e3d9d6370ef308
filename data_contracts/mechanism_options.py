"""The options of every mechanism, as in the field ``mechanism`` of a release spec.

Each class is one mechanism, identified by ``name``.  If a default differs from the paper's value, the field's
description says why.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from privsyn.data_contracts.frozen_model import FrozenModel
from privsyn.data_contracts.step_options import (
    LEAST_SHARE,
    MAX_CELLS,
    MEMORY_LIMIT,
    Compression,
    Consistency,
    Rows,
    Selection,
    Split,
    Synthesis,
)

MOST_ROUNDS = 9
"""The most further rounds."""

MOST_AIM_ROUNDS = 16
"""The most rounds of `aim`."""


class Mechanism(FrozenModel):
    """What the options of every mechanism have."""

    name: str
    synthesis: Rows = Field(default=Rows(), description="How many synthetic rows are made.")

    @property
    def package(self) -> tuple[str, str] | None:
        """The optional package that the options need, and the extra that installs it; None if there is none."""
        return None

    @model_serializer(mode="wrap")
    def _serialize_name_first(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Put the name first, even if defaults are left out, because it identifies the mechanism."""
        return {"name": self.name, **serialize(self)}


class PrivSyn(Mechanism):
    """PrivSyn: one-ways, scores of all pairs, the chosen marginals (paper, Algorithm 3)."""

    name: Literal["privsyn"] = Field(default="privsyn", description="PrivSyn, in the paper's steps.")
    split: Split = Field(
        default=Split(), description="How rho is split over the three looks at the data; the shares sum to 1."
    )
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")
    selection: Selection = Field(
        default=Selection(), description="Which pairs of columns, or cliques of them, are measured."
    )
    consistency: Consistency = Field(default=Consistency(), description="Bringing the noisy marginals into agreement.")
    synthesis: Synthesis = Field(default=Synthesis(), description="Making the synthetic rows.")


class RoundShares(NamedTuple):
    """Shares of the third stage: of its first measurement, and of each further round's scores and measurement.

    ``first`` + rounds x (``scores`` + ``measurement``) is the stage's share of the budget.
    """

    first: Fraction
    scores: Fraction
    measurement: Fraction


class Adaptive(PrivSyn):
    """PrivSyn with further rounds: make rows from what is known, ask privately where they are worst, measure there."""

    name: Literal["adaptive"] = Field(  # type: ignore[assignment]
        default="adaptive", description="PrivSyn with further rounds of measuring."
    )
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_ROUNDS,
        description="Rounds after the first measurement. On the public tables tried they cost about what they gain "
        "(docs/algorithm.md). Not in the paper.",
    )
    rounds_share: float = Field(
        default=0.5,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of the third stage's budget that is kept for the further rounds, in equal parts.",
    )
    scores_share: float = Field(
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

    def exact_rounds(self) -> RoundShares:
        """Return the parts of the third stage's share of the budget, exact for the decimals as written."""
        measurement = self.split.exact()[2]
        share, scores = Fraction(repr(self.rounds_share)), Fraction(repr(self.scores_share))
        each = measurement * share / self.rounds
        return RoundShares(measurement * (1 - share), each * scores, each * (1 - scores))


class Independent(Mechanism):
    """Every column on its own: the one-ways have the whole budget, and no relation between columns is kept."""

    name: Literal["independent"] = Field(default="independent", description="Every column on its own.")
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")


class Mst(Mechanism):
    """MST (McKenna, Miklau and Sheldon 2021): one tree of pairs through all columns; each look has a third of rho."""

    name: Literal["mst"] = Field(default="mst", description="A tree of pairs that links all columns.")
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)
    rows_by: Literal["sweeps", "mbi"] = Field(
        default="sweeps",
        description="`sweeps` as in every mechanism; `mbi`: the graphical model of the package mbi, as in the paper "
        "(needs the extra `pgm`; takes of `synthesis` only `rows`, `seed` and `shard_rows`).",
    )
    synthesis: Synthesis = Field(default=Synthesis(), description="Making the synthetic rows.")

    @property
    def package(self) -> tuple[str, str] | None:
        """The module that the options need and its extra; None if no extra is needed."""
        return ("mbi", "pgm") if self.rows_by == "mbi" else None


class PrivBayes(Mechanism):
    """PrivBayes (Zhang and others 2014): a Bayesian network of bounded degree, and rows drawn along it."""

    name: Literal["privbayes"] = Field(
        default="privbayes", description="A Bayesian network; every column is drawn given its parents."
    )
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")
    degree: int = Field(default=3, ge=1, le=8, description="Parents of a column at most.")
    usefulness: float = Field(
        default=4.0,
        gt=0,
        le=1e6,
        description="theta: a column and its parents have at most so many cells that the mean count is this many times "
        "the mean noise (paper: 4).",
    )
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)


class Aim(Mechanism):
    """AIM (McKenna and others 2022) over rows: rounds that ask where the rows are worst, and measure a little there."""

    name: Literal["aim"] = Field(
        default="aim", description="Rounds that measure the few marginals in which the rows made so far are worst."
    )
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")
    rounds: int = Field(
        default=4,
        ge=1,
        le=MOST_AIM_ROUNDS,
        description="Rounds of scores and measurement, a public number; each after the first makes rows once.",
    )
    per_column: float = Field(
        default=0.5,
        gt=0,
        le=100,
        description="Marginals that a round measures at most, for each column; rounded up. AIM measures one a round, "
        "in many more rounds.",
    )
    one_way_share: float = Field(
        default=0.3,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of rho of the one-ways. AIM's is a sixteenth; more did better on two public tables.",
    )
    scores_share: float = Field(
        default=0.1,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of a round's budget that asking where the rows are worst costs (AIM: 0.1).",
    )
    annealing: float = Field(
        default=2.0,
        ge=1,
        le=4,
        description="How many times the budget of a round the next one has: coarse questions first. AIM decides from "
        "what it sees; here it is fixed.",
    )
    triples: bool = Field(
        default=False,
        description="Whether marginals of three columns are candidates from round 2 on: as many as there are pairs.",
    )
    gamma: int = Field(default=5_000, ge=1, le=10**7, description="Largest number of cells of a triple.")
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)
    synthesis: Synthesis = Field(default=Synthesis(), description="Making the synthetic rows.")

    def at_once(self, columns: int) -> int:
        """Return the most marginals that a round measures in a table with this many columns; at least 1."""
        return max(1, math.ceil(Fraction(repr(self.per_column)) * columns))

    def exact_one_ways(self) -> Fraction:
        """Return the one-ways' share of the budget, exact for the decimal as written."""
        return Fraction(repr(self.one_way_share))

    def exact_rounds(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """Return each round's shares of scores and measurement; with the one-ways' share they sum to exactly 1."""
        growth, scores = Fraction(repr(self.annealing)), Fraction(repr(self.scores_share))
        weights = [growth**i for i in range(self.rounds)]
        remaining = 1 - self.exact_one_ways()
        shares = [remaining * weight / sum(weights) for weight in weights]
        return tuple((share * scores, share * (1 - scores)) for share in shares)


MOST_GROUPS = 1_000
"""The most groups of `prior`, by the values that the spec lists."""


class PriorLevels(Mechanism):
    """A public table, updated to answer noisy counts: first those of large groups, then those of the groups in them."""

    name: Literal["prior"] = Field(
        default="prior", description="Rows of the spec's public table, as often as noisy counts by group say."
    )
    group: tuple[str, ...] = Field(
        default=(),
        description="Columns of a few values whose combinations are the groups: region, or state and year. Counts of "
        "single other columns are taken in every group.",
    )
    large: tuple[str, ...] = Field(
        default=(),
        description="Those of `group` that make larger groups, updated first (the paper's states). Not given: the "
        "whole table is the one large group.",
    )
    compression: Compression = Field(default=Compression(), description="Low-count values: combined or kept.")
    edge: float = Field(
        default=0.3,
        gt=0,
        le=100,
        description="Nats of mutual information in the public table from which two columns are counted together in the "
        "large groups.",
    )
    most_cells: int = Field(
        default=500, ge=2, le=10**6, description="Largest number of cells of columns that are counted together."
    )
    turns: int = Field(
        default=5, ge=1, le=1_000, description="Updates by each marginal of a level (the paper had two)."
    )
    shrink: bool = Field(
        default=True,
        description="Whether a group's noisy counts are first drawn to what is known before, by what their noise "
        "explains of the difference. The paper believes them entirely.",
    )


AnyMechanism = Annotated[
    PrivSyn | Adaptive | Independent | Mst | PrivBayes | Aim | PriorLevels, Field(discriminator="name")
]
"""The options of one mechanism, identified by ``name``."""
