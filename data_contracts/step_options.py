"""The options of steps that mechanisms share: compression, selection, consistency and synthesis.

If a default differs from the paper's value, the field's description says why.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

SHARD_ROWS = 2_000_000
"""The most rows per shard of the synthetic table, unless the spec says otherwise; figures: docs/operations/scale.md."""

LEAST_SHARE = 0.01
"""The smallest share in any split: smaller shares would draw noise that no integer holds, after paying."""

MAX_CELLS = 2_000_000
"""The most cells of a candidate, unless the spec says otherwise."""

MEMORY_LIMIT = "Columns that have more cells together are never candidates: a public limit on memory."


class Split(FrozenModel):
    """How rho is split over the three looks at the data; exact decimals that sum to 1."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"trends", "values"})

    one_way: float = Field(default=0.25, gt=0, lt=1, description="Share of all one-way marginals.")
    selection: float = Field(
        default=0.02, gt=0, lt=1, description="Share of the InDif scores, which say how strongly columns are related."
    )
    measurement: float = Field(default=0.73, gt=0, lt=1, description="Share of the chosen marginals.")
    trends: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="How much of the chosen marginals' share goes to the trends of all pairs of numbers and moments, a "
        "signed number each, if all columns are such; where others are many it is less. Where noise hides them, they "
        "are asked again with the chosen marginals, out of a quarter of the single columns' part at most. 0 (the "
        "paper): none is measured. Not with a prior.",
    )
    values: float = Field(
        default=0.0,
        ge=0,
        le=0.09,
        description="How much of the chosen marginals' share counts single values inside heavy cells of numbers with "
        "neither `bins` nor `edges`, so that values that many rows share come out as they are. 0 (the paper): none. "
        "Not with linked rows.",
    )
    one_ways: Literal["cells", "equal"] = Field(
        default="cells",
        description="How the one-ways share theirs: `cells`: in proportion to cells^(2/3), as the chosen marginals do; "
        "`equal`: the paper's.",
    )
    remeasure_one_ways: bool = Field(
        default=True,
        description="Whether the one-ways compete with the pairs for the third stage's budget: few rows or a small "
        "epsilon leave little to be known of pairs. With `criterion: expected_error` only; where no pair is chosen "
        "they have all of it anyway. Not in the paper.",
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

    def exact_trends(self) -> Fraction:
        """Return :attr:`trends`, exact for the decimal as written."""
        return Fraction(repr(self.trends))

    def exact_values(self) -> Fraction:
        """Return :attr:`values`, exact for the decimal as written."""
        return Fraction(repr(self.values))


class Compression(FrozenModel):
    """Filter and combine low-count values, decided from the noisy one-ways (paper, section 5.3)."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset(
        {"equal_mass", "single_values", "round_numbers", "calendar", "ladder"}
    )

    enabled: bool = Field(default=True, description="Whether low-count values are filtered and combined.")
    sigmas: float = Field(
        default=3.0,
        ge=0,
        le=100,
        description="A value is kept when its noisy count is at least this many standard deviations of its noise "
        "(paper: 3).",
    )
    least_count: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="A value whose noisy count is below so many rows is low, too; DPSyn's winning entry took 4.5 "
        "standard deviations and 800 rows.",
    )
    filter: bool = Field(
        default=False,
        description="Whether low-count values that are few even together are dropped (the paper) rather than combined.",
    )
    neighbours: bool = Field(
        default=True,
        description="Whether low-count bins of numbers and moments are combined with their neighbours rather than all "
        "with each other (the paper).",
    )
    equal_mass: bool = Field(
        default=False,
        description="Whether bins of numbers and moments are joined into few codes of about equal noisy mass, as many "
        "as rows, budget and number of columns pay for, where a column has neither `bins` nor `edges` and `enabled` is "
        "true: correlations are kept far better. Values inside a code follow the column's own counts, smoothed as far "
        "as noise asks.",
    )
    single_values: bool = Field(
        default=False,
        description="Whether 0, `min` and `max` of a column of numbers with neither `bins` nor `edges` have cells of "
        "their own, so that their share is kept where it stands out from noise.",
    )
    round_numbers: bool = Field(
        default=False,
        description="Whether the multiples of 10, 100 and 1,000 of the step of such a column are counted, with a small "
        "part of the one-ways' budget, so that what people round to comes out where it stands out from noise.",
    )
    calendar: bool = Field(
        default=False,
        description="Whether weekday, hour and round minutes of dates, moments and times with neither `bins` nor "
        "`edges` are counted in the same way, so that Saturdays and full hours come out where they do.",
    )

    ladder: bool = Field(
        default=False,
        description="Whether a first look chooses the cells of numbers, dates and moments with neither `bins` nor "
        "`edges`. It counts intervals that double in width away from 0 (of dates and moments backwards from `max`); "
        "those with rows are split. So bounds may be far wider than the data.",
    )

    def threshold(self, sigma: float) -> float:
        """Return the noisy count below which a value is low; ``sigma``: the noise of a fine count, in counts."""
        return max(self.sigmas * sigma, float(self.least_count))


class Selection(FrozenModel):
    """Options of the choice of marginals (paper, Algorithms 1 and 2)."""

    scores: Literal["one_ways", "indif"] = Field(
        default="one_ways",
        description="How far from independence a pair is: `one_ways`: against the noisy one-ways, sensitivity 1; "
        "`indif`: the paper's, against the exact ones, sensitivity 4, so sixteen times the budget for the same noise.",
    )
    criterion: Literal["expected_error", "dense_marg"] = Field(
        default="expected_error",
        description="How pairs are chosen: `expected_error` makes the error least that is expected after consistency "
        "and shrinking, and shares the budget by it; `dense_marg` is the paper's greedy choice by raw noise "
        "(Algorithm 1).",
    )
    combine_cliques: bool = Field(
        default=False, description="Merge selected pairs into cliques (Algorithm 2; the paper does)."
    )
    gamma: int = Field(
        default=5_000, ge=1, le=10**7, description="Largest number of cells of a combined clique (paper: 5,000)."
    )
    max_cells: int = Field(
        default=2_000_000,
        ge=4,
        le=10**8,
        description="Pairs with more cells than this are never candidates and get no score: a public limit on memory, "
        "not in the paper.",
    )


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
        description="How many times their weight the one-ways get while marginals are projected, after rounds that "
        "only average. The paper does neither (1); then noise cut at 0 adds up in the one-ways' small counts.",
    )
    shrink: bool = Field(
        default=True,
        description="Whether a pair is drawn to what its one-ways say of independence, by what its noise explains of "
        "the difference (empirical Bayes, cell by cell and around a low-rank part); not in the paper.",
    )
    pooled: bool = Field(
        default=False,
        description="Whether what all pairs together say of trends tells noise from signal in each, so that many weak "
        "relations can be measured; with `shrink` and `criterion: expected_error`. Not in the paper.",
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
        description="More rows than this are made in shards of at most so many each, and written as a folder of parts, "
        "so that memory does not depend on their number; smaller shards take less memory and fit the marginals less.",
    )

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
        description="`sweep` starts along a tree and moves one value at a time towards all marginals at once; `gum` is "
        "the paper's Gradually Update Method (section 5), less accurate on the public tables tried.",
    )
    sweeps: int = Field(default=8, ge=0, le=1_000, description="`sweep`: sweeps at most.")
    try_heat: bool = Field(
        default=False,
        description="`sweep`: whether a sample of the rows says first what sweeps at heat gain where others are stuck, "
        "so that large tables in which it is little are made without; else all stuck columns are heated.",
    )
    oversample: int = Field(
        default=4,
        ge=1,
        le=100,
        description="`sweep`: pairs that were not measured follow rows made for so many times the table first, so that "
        "they differ less by chance; large tables are made without. 1: none.",
    )
    iterations: int = Field(default=50, ge=0, le=10_000, description="`gum`: iterations at most.")
    alpha: float = Field(default=1.0, gt=0, le=10, description="`gum`: initial update rate alpha_0.")
    decay: Literal["step", "exponential", "linear", "square_root"] = Field(
        default="step", description="`gum`: how alpha falls with the iterations (paper: step)."
    )
    decay_rate: float = Field(
        default=0.84, gt=0, le=10, description="`gum`: k of the decay: the factor of `step`, the rate of the others."
    )
    decay_every: int = Field(default=20, ge=1, description="`gum`: s of step decay, iterations between two factors.")
    duplicate_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="`gum`: share of growing records made by copying a whole record; the rest replaces the marginal's "
        "attributes only. The paper mixes both in equal parts; a tenth did best over two public tables.",
    )
    related_inside: bool = Field(
        default=False,
        description="Whether relations of numbers and moments go on inside their codes, as a normal model of the made "
        "rows continues them; else values inside a code are drawn apart. Not in the paper.",
    )
