"""The options of every mechanism, as in the field ``mechanism`` of a release spec.

Each class is one mechanism, identified by ``name``.  If a default differs from the paper's value, the field's
description says why.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

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
    """The options of every mechanism."""

    name: str
    synthesis: Rows = Field(default=Rows(), description="How many synthetic rows are made.")

    @property
    def package(self) -> tuple[str, str] | None:
        """The optional package that the options need, and the extra that installs it; None if there is none."""
        return None

    def having(self, part: str, **values: Any) -> Self:
        """Return the same mechanism with other values of some fields of one part, checked by the caller."""
        return self.model_copy(update={part: getattr(self, part).model_copy(update=values)})

    @model_serializer(mode="wrap")
    def _serialize_name_first(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Put the name first, even if defaults are left out, because it identifies the mechanism."""
        return {"name": self.name, **serialize(self)}


class PrivSyn(Mechanism):
    """PrivSyn: one-way counts, scores of all pairs, then the chosen marginals (paper, Algorithm 3)."""

    name: Literal["privsyn"] = Field(default="privsyn", description="PrivSyn, in the paper's steps.")
    split: Split = Field(default=Split(), description="How rho is split over the three looks at the data.")
    compression: Compression = Field(default=Compression(), description="How low-count values are treated.")
    selection: Selection = Field(default=Selection(), description="Which pairs, or cliques, are measured.")
    consistency: Consistency = Field(
        default=Consistency(), description="How noisy marginals are brought into agreement."
    )
    synthesis: Synthesis = Field(default=Synthesis(), description="How the synthetic rows are made.")


class RoundShares(NamedTuple):
    """Shares of the third stage: of its first measurement, and of each further round's scores and measurement.

    ``first`` + rounds x (``scores`` + ``measurement``) is the stage's share of the budget.
    """

    first: Fraction
    scores: Fraction
    measurement: Fraction


class Adaptive(PrivSyn):
    """PrivSyn with further rounds: make rows, ask privately where they are worst, and measure there."""

    name: Literal["adaptive"] = Field(  # type: ignore[assignment]
        default="adaptive", description="PrivSyn with further rounds of measuring."
    )
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_ROUNDS,
        description="Rounds after the first measurement (docs/algorithm.md). Not in the paper.",
    )
    rounds_share: float = Field(
        default=0.5,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of the third stage's budget for the further rounds.",
    )
    scores_share: float = Field(
        default=0.1,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of a round's budget for asking where the rows are worst.",
    )
    triples: bool = Field(
        default=False,
        description="Also consider marginals of three columns, of at most `selection.gamma` cells: as many as "
        "pairs, the most related first.",
    )

    def exact_rounds(self) -> RoundShares:
        """Return the parts of the third stage's share of the budget, exact for the decimals as written."""
        measurement = self.split.exact()[2]
        share, scores = Fraction(repr(self.rounds_share)), Fraction(repr(self.scores_share))
        each = measurement * share / self.rounds
        return RoundShares(measurement * (1 - share), each * scores, each * (1 - scores))


class Independent(Mechanism):
    """Each column by itself: one-way counts get the whole budget, and no relation between columns is kept."""

    name: Literal["independent"] = Field(default="independent", description="Every column on its own.")
    compression: Compression = Field(default=Compression(), description="How low-count values are treated.")


class Mst(Mechanism):
    """MST (McKenna, Miklau and Sheldon 2021): one tree of pairs through all columns; each look gets a third of rho."""

    name: Literal["mst"] = Field(default="mst", description="A tree of pairs that links all columns.")
    compression: Compression = Field(default=Compression(), description="How low-count values are treated.")
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)
    rows_by: Literal["sweeps", "mbi"] = Field(
        default="sweeps",
        description="`sweeps`, or `mbi`: the graphical model of that package, as in the paper. It needs the extra "
        "`pgm`, and takes only `rows`, `seed` and `shard_rows` of `synthesis`.",
    )
    synthesis: Synthesis = Field(default=Synthesis(), description="How the synthetic rows are made.")

    @property
    def package(self) -> tuple[str, str] | None:
        """The module that the options need and its extra; None if no extra is needed."""
        return ("mbi", "pgm") if self.rows_by == "mbi" else None


class PrivBayes(Mechanism):
    """PrivBayes (Zhang and others 2014): rows drawn along a Bayesian network of bounded degree."""

    name: Literal["privbayes"] = Field(
        default="privbayes", description="A Bayesian network; every column is drawn given its parents."
    )
    compression: Compression = Field(default=Compression(), description="How low-count values are treated.")
    degree: int = Field(default=3, ge=1, le=8, description="Most parents of a column.")
    usefulness: float = Field(
        default=4.0,
        gt=0,
        le=1e6,
        description="theta: least ratio of mean count to mean noise in the cells of a column and its parents "
        "(paper: 4).",
    )
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)


class Aim(Mechanism):
    """AIM (McKenna and others 2022) over rows: each round asks where the rows are worst and measures a little there."""

    name: Literal["aim"] = Field(
        default="aim", description="Rounds that measure the few marginals in which the rows made so far are worst."
    )
    compression: Compression = Field(default=Compression(), description="How low-count values are treated.")
    rounds: int = Field(
        default=4,
        ge=1,
        le=MOST_AIM_ROUNDS,
        description="Rounds of scores and measurement. Each after the first makes rows once.",
    )
    per_column: float = Field(
        default=0.5,
        gt=0,
        le=100,
        description="Most marginals measured in a round, per column of the table; rounded up. The paper "
        "measures one a round.",
    )
    one_way_share: float = Field(
        default=0.3,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of rho for one-way counts (paper: a sixteenth).",
    )
    scores_share: float = Field(
        default=0.1,
        ge=LEAST_SHARE,
        le=1 - LEAST_SHARE,
        description="Share of a round's budget for asking where the rows are worst (paper: 0.1).",
    )
    annealing: float = Field(
        default=2.0,
        ge=1,
        le=4,
        description="Each round's budget as a multiple of the round before. The paper adapts it; here it is fixed.",
    )
    triples: bool = Field(
        default=False,
        description="Also consider marginals of three columns from round 2 on, as many as pairs.",
    )
    gamma: int = Field(default=5_000, ge=1, le=10**7, description="Most cells of a triple.")
    max_cells: int = Field(default=MAX_CELLS, ge=4, le=10**8, description=MEMORY_LIMIT)
    synthesis: Synthesis = Field(default=Synthesis(), description="How the synthetic rows are made.")

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
    """A public table, updated to match noisy counts: first of large groups, then of the groups inside them."""

    name: Literal["prior"] = Field(
        default="prior", description="Rows of the spec's public table, as often as noisy counts by group say."
    )
    group: tuple[str, ...] = Field(
        default=(),
        description="Columns of few values whose combinations are the groups, such as region, or state and year.",
    )
    large: tuple[str, ...] = Field(
        default=(),
        description="Columns of `group` that form larger groups, updated first (the paper's states). Not "
        "given: the whole table.",
    )
    compression: Compression = Field(
        default=Compression(), description="Whether low-count values are combined or kept."
    )
    edge: float = Field(
        default=0.3,
        gt=0,
        le=100,
        description="Least mutual information in the public table, in nats, to count two columns together in "
        "the large groups.",
    )
    most_cells: int = Field(default=500, ge=2, le=10**6, description="Most cells of columns that are counted together.")
    turns: int = Field(default=5, ge=1, le=1_000, description="Updates by each marginal of a level (paper: 2).")
    shrink: bool = Field(
        default=True,
        description="Draw a group's noisy counts towards what is known. Not in the paper.",
    )


AnyMechanism = Annotated[
    PrivSyn | Adaptive | Independent | Mst | PrivBayes | Aim | PriorLevels, Field(discriminator="name")
]
"""The options of one mechanism, which ``name`` tells."""
