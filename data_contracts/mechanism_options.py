"""The options of every mechanism, as in the field ``mechanism`` of a release spec, and of the steps that they share.

Each class of a mechanism is identified by ``name``.  If a default differs from the paper's value, the field's
description says why.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

SHARD_ROWS = 2_000_000
"""The most rows per shard of the synthetic table, unless the spec says otherwise; figures: docs/operations/scale.md."""

LEAST_SHARE = 0.01
"""The smallest share in any split: smaller shares would draw noise that no integer holds, after paying."""

MAX_CELLS = 2_000_000
"""The most cells of a candidate, unless the spec says otherwise."""

MEMORY_LIMIT = "Columns with more cells together are never measured: a limit on memory."

MOST_ROUNDS = 9

MOST_AIM_ROUNDS = 16


class Split(FrozenModel):
    """How rho is split over one-way counts, scores and marginals: three exact decimals that sum to 1.

    Trends and single values take parts of the third; presets set them.
    """

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"trends", "values"})

    one_way: float = Field(default=0.25, gt=0, lt=1, description="Share of all one-way counts.")
    selection: float = Field(
        default=0.02, gt=0, lt=1, description="Share of the scores that say how strongly columns are related."
    )
    measurement: float = Field(default=0.73, gt=0, lt=1, description="Share of the chosen marginals.")
    trends: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="Part of `measurement` for trends of pairs of numbers and moments; less if other columns are "
        "many. 0 (the paper): none. Not with a prior.",
    )
    values: float = Field(
        default=0.0,
        ge=0,
        le=0.09,
        description="Part of `measurement` that counts single values of open columns, so that frequent ones come "
        "out. 0 (the paper): none. Not with linked rows.",
    )
    one_ways: Literal["cells", "equal"] = Field(
        default="cells",
        description="How one-way counts share their budget: `cells`, in proportion to cells^(2/3), or `equal`, "
        "as in the paper.",
    )
    remeasure_one_ways: bool = Field(
        default=True,
        description="One-way counts compete with pairs for `measurement`. With `expected_error` only. Not in the "
        "paper.",
    )

    @model_validator(mode="after")
    def _check_sum(self) -> Split:
        if sum(self.exact()) != 1:
            raise FieldError(f"the three shares must sum to exactly 1; they sum to {float(sum(self.exact()))}")
        return self

    def exact(self) -> tuple[Fraction, Fraction, Fraction]:
        """Return the three shares, exact for the decimals as written."""
        one_way, selection, measurement = (Fraction(repr(v)) for v in (self.one_way, self.selection, self.measurement))
        return one_way, selection, measurement


class Compression(FrozenModel):
    """Low-count values are filtered or combined, by the noisy one-way counts (paper, section 5.3)."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset(
        {"equal_mass", "single_values", "round_numbers", "calendar", "ladder"}
    )

    enabled: bool = Field(default=True, description="Filter and combine low-count values.")
    sigmas: float = Field(
        default=3.0,
        ge=0,
        le=100,
        description="Least noisy count of a kept value, in standard deviations of its noise (paper: 3).",
    )
    least_count: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="A value with a smaller noisy count is low, too (DPSyn: 800 rows, with 4.5 `sigmas`).",
    )
    filter: bool = Field(
        default=False,
        description="Drop low-count values that are few even together, as in the paper, rather than combine them.",
    )
    neighbours: bool = Field(
        default=True,
        description="Combine low-count bins with their neighbours. `false`: all with each other, as in the paper.",
    )
    equal_mass: bool = Field(
        default=False,
        description="Join the bins of open columns into few codes of about equal noisy mass: correlations are kept "
        "far better. With `enabled` only.",
    )
    single_values: bool = Field(
        default=False,
        description="Give 0, `min` and `max` of open numbers their own cells.",
    )
    round_numbers: bool = Field(
        default=False,
        description="Count multiples of 10, 100 and 1,000 steps of open numbers, for a small part of the one-way "
        "budget.",
    )
    calendar: bool = Field(
        default=False,
        description="Like `round_numbers`, for weekday, hour and round minutes of dates, moments and times.",
    )

    ladder: bool = Field(
        default=False,
        description="Choose the cells of open numbers, dates and moments by a first look, so that bounds may be far "
        "wider than the data.",
    )

    def threshold(self, sigma: float) -> float:
        """Return the noisy count below which a value is low; ``sigma``: the noise of a fine count, in counts."""
        return max(self.sigmas * sigma, float(self.least_count))


class Selection(FrozenModel):
    """How marginals are chosen (paper, Algorithms 1 and 2)."""

    scores: Literal["one_ways", "indif"] = Field(
        default="one_ways",
        description="What a pair is compared with: `one_ways`, the noisy one-way counts, sensitivity 1; `indif` "
        "(the paper), the exact ones, sensitivity 4.",
    )
    criterion: Literal["expected_error", "dense_marg"] = Field(
        default="expected_error",
        description="How pairs are chosen and the budget shared: `expected_error`, for the least error after "
        "shrinking; `dense_marg`, greedily by raw noise (Algorithm 1).",
    )
    combine_cliques: bool = Field(
        default=False, description="Merge selected pairs into cliques, as in the paper (Algorithm 2)."
    )
    gamma: int = Field(default=5_000, ge=1, le=10**7, description="Most cells of a combined clique (paper: 5,000).")
    max_cells: int = Field(
        default=2_000_000,
        ge=4,
        le=10**8,
        description="Pairs with more cells are never measured: a limit on memory.",
    )

    @property
    def most_combined(self) -> int | None:
        """The most cells of a combined clique; None if pairs are not combined."""
        return self.gamma if self.combine_cliques else None


class Consistency(FrozenModel):
    """Post-processing of the noisy marginals (paper, section 4.3)."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"pooled"})

    rounds: int = Field(
        default=10, ge=1, le=1_000, description="Rounds of averaging and projection; 10 is always enough."
    )
    one_way_weight: float = Field(
        default=10.0,
        ge=1,
        le=1e6,
        description="Factor on the weight of one-way counts in projections, after rounds that only average. 1 (the "
        "paper): neither.",
    )
    shrink: bool = Field(
        default=True,
        description="Draw each pair towards independence, by how much of the difference noise explains "
        "(empirical Bayes). Not in the paper.",
    )
    pooled: bool = Field(
        default=False,
        description="Tell signal from noise by the trends of all pairs together, so that many weak relations "
        "can be measured. With `shrink` and `expected_error` only. Not in the paper.",
    )


class Rows(FrozenModel):
    """How many synthetic rows are made, from which seed."""

    rows: Literal["auto"] | int = Field(
        default="auto",
        description="Rows to make: `auto` (the consistent noisy total, never the exact count), or a number.",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="Seed of the post-processing. It never reaches release noise."
    )
    shard_rows: int = Field(
        default=SHARD_ROWS,
        ge=1,
        le=2**31 - 1,
        description="More rows than this are made in shards and written as a folder of parts, to bound memory.",
    )

    def vary(self, **values: int) -> Self:
        """Return the same choices from another seed, or with less work, for a part of the rows or a first version."""
        return self.model_copy(update=values)

    @field_validator("rows")
    @classmethod
    def _check_rows(cls, value: str | int) -> str | int:
        if isinstance(value, int) and not 0 <= value < 2**31:
            raise FieldError("`rows` must be `auto` or a whole number from 0 to 2,147,483,647")
        return value


class Synthesis(Rows):
    """How rows are made from the marginals, and how many."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"try_heat", "related_inside"})

    method: Literal["gum", "sweep"] = Field(
        default="sweep",
        description="`sweep`: move one value at a time towards all marginals at once. `gum`: the paper's Gradually "
        "Update Method, less accurate.",
    )
    sweeps: int = Field(default=8, ge=0, le=1_000, description="`sweep`: most sweeps.")
    try_heat: bool = Field(
        default=False,
        description="`sweep`: add heat only if it helps on a sample of the rows.",
    )
    oversample: int = Field(
        default=4,
        ge=1,
        le=100,
        description="`sweep`: unmeasured pairs follow rows made for this many times the table, to vary less; not "
        "for large tables. 1: off.",
    )
    iterations: int = Field(default=50, ge=0, le=10_000, description="`gum`: most iterations.")
    alpha: float = Field(default=1.0, gt=0, le=10, description="`gum`: initial update rate alpha_0.")
    decay: Literal["step", "exponential", "linear", "square_root"] = Field(
        default="step", description="`gum`: how alpha falls with the iterations (paper: step)."
    )
    decay_rate: float = Field(
        default=0.84, gt=0, le=10, description="`gum`: factor of `step`, or rate of the other decays."
    )
    decay_every: int = Field(default=20, ge=1, description="`gum`: iterations between two factors of `step`.")
    duplicate_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="`gum`: share of growing records that copy a whole record (paper: 0.5).",
    )
    related_inside: bool = Field(
        default=False,
        description="Continue relations of numbers and moments inside their codes, by a normal model of the "
        "made rows. Not in the paper.",
    )


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
