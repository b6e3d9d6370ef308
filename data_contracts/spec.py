"""The release spec: one frozen model that is the YAML file, the CLI's request and the flow's parameter.

Belongs here: fields, documented defaults and validation that needs nothing but the spec itself.
Does not belong here: file access, noise, or any default that looks at data.
Where a default differs from the paper's value, the field's description says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from data_contracts.adaptive import Adaptive
from data_contracts.columns import Column, DropColumn, FrozenModel
from data_contracts.engine import EngineChoice
from data_contracts.form import Schema, leave_to_preset
from data_contracts.publication import About, Format, checked_formats

MAX_COLUMNS = 5_000

DATASET = r"^[a-z0-9][a-z0-9_-]{0,47}$"
"""What the ledger may call a data set."""

SHARD_ROWS = 2_000_000
"""Rows of a shard of the synthetic table at most, unless the spec says otherwise; figures: docs/operations.md."""


class Unit(FrozenModel):
    """The unit of protection: how many records one person can have.  Mandatory, no default."""

    records_per_person: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Public bound on the records one person has in the table; every sensitivity is multiplied by it.",
    )
    person_id: str | None = Field(
        default=None, description="Column that identifies the person; rows without it are left out of the release."
    )
    max_records: int | None = Field(
        default=None, ge=1, le=10_000, description="At most this many records a person are kept, before anything else."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Unit:
        if (self.records_per_person is None) == (self.person_id is None):
            raise ValueError(
                "give either `records_per_person: K` (a public bound) or `person_id: COLUMN` with `max_records: K`"
            )
        if (self.person_id is None) != (self.max_records is None):
            raise ValueError("`person_id` and `max_records` go together")
        return self

    @property
    def records(self) -> int:
        """k: the most records that adding or removing one person changes."""
        k = self.records_per_person if self.person_id is None else self.max_records
        assert k is not None  # noqa: S101 - narrowed by the validator
        return k

    def describe(self) -> str:
        """One phrase for certificates and release notes."""
        many = "one record" if self.records == 1 else f"at most {self.records} records"
        how = "declared in the spec" if self.person_id is None else f"enforced by the column {self.person_id!r}"
        return f"one person with {many} ({how})"


class Guarantee(FrozenModel):
    """An (epsilon, delta) differential-privacy promise for adding or removing one person."""

    epsilon: float = Field(gt=0, le=1e6, description="Privacy loss bound; above 10 it protects little.")
    delta: float = Field(
        gt=0,
        lt=1,
        description="Failure probability, far below one over the number of people: 0.000000001, say (a form's "
        "number fields take no 1e-9).",
    )


class Split(FrozenModel):
    """How rho is split over the three looks at the data; exact decimals that sum to 1."""

    one_way: float = Field(default=0.25, gt=0, lt=1, description="Share of all one-way marginals.")
    selection: float = Field(
        default=0.02, gt=0, lt=1, description="Share of the InDif scores, which say how strongly columns are related."
    )
    measurement: float = Field(default=0.73, gt=0, lt=1, description="Share of the chosen marginals.")
    one_ways: Literal["cells", "equal"] = Field(
        default="cells",
        description="How the one-ways share theirs: `cells`: in proportion to cells^(2/3), as the chosen marginals do; "
        "`equal`: the paper's.",
    )
    again: bool = Field(
        default=True,
        description="Whether the one-ways compete with the pairs for the third stage's budget: few rows or a small "
        "epsilon leave little to be known of pairs. With `choice: expected_error` only; where no pair is chosen they "
        "have all of it anyway. Not in the paper.",
    )

    @model_validator(mode="after")
    def _sums_to_one(self) -> Split:
        if sum(self.exact()) != 1:
            raise ValueError(f"the three shares must sum to exactly 1; they sum to {float(sum(self.exact()))}")
        return self

    def exact(self) -> tuple[Fraction, Fraction, Fraction]:
        """The three shares as the decimals that were written, exactly."""
        one_way, selection, measurement = (Fraction(repr(v)) for v in (self.one_way, self.selection, self.measurement))
        return one_way, selection, measurement


class Compression(FrozenModel):
    """Filter and combine low-count values, decided from the noisy one-ways (paper, section 5.3)."""

    enabled: bool = Field(default=True, description="Whether low-count values are filtered and combined.")
    sigmas: float = Field(
        default=3.0,
        ge=0,
        le=100,
        description="A value is kept when its noisy count is at least this many standard deviations of its noise "
        "(paper: 3).",
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


class Selection(FrozenModel):
    """Which marginals are measured (paper, Algorithms 1 and 2)."""

    scores: Literal["one_ways", "indif"] = Field(
        default="one_ways",
        description="How far from independence a pair is: `one_ways`: against the noisy one-ways, sensitivity 1; "
        "`indif`: the paper's, against the exact ones, sensitivity 4, so sixteen times the budget for the same noise.",
    )
    choice: Literal["expected_error", "dense_marg"] = Field(
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

    rounds: int = Field(
        default=10, ge=1, le=1_000, description="Rounds of averaging and projection; 10 is always enough."
    )
    firm: float = Field(
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


class Synthesis(FrozenModel):
    """How rows are made from the marginals, and how many."""

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
    method: Literal["gum", "sweep"] = Field(
        default="sweep",
        description="`sweep` starts along a tree and moves one value at a time towards all marginals at once; `gum` is "
        "the paper's Gradually Update Method (section 5), less accurate on the public tables tried.",
    )
    sweeps: int = Field(default=8, ge=0, le=1_000, description="`sweep`: sweeps at most.")
    oversample: int = Field(
        default=4,
        ge=1,
        le=100,
        description="`sweep`: pairs that were not measured follow rows made for so many times the table first, so that "
        "they differ less by chance; large tables are made without. 1: none.",
    )
    kappa: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="`sweep`: how much of a marginal's distance to independence, and to the start, is put down to its "
        "noise, in units of the noise's expected squares; 0 follows the noisy marginals as far as they go.",
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

    @field_validator("rows")
    @classmethod
    def _rows(cls, value: str | int) -> str | int:
        if isinstance(value, int) and not 0 <= value < 2**31:
            raise ValueError("`rows` must be `auto` or a whole number from 0 to 2,147,483,647")
        return value


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "accountant": "paper",
        "split": {"one_way": 0.1, "selection": 0.1, "measurement": 0.8, "one_ways": "equal", "again": False},
        "compression": {"filter": True, "neighbours": False},
        "selection": {"scores": "indif", "choice": "dense_marg", "combine_cliques": True},
        "consistency": {"firm": 1.0, "shrink": False},
        "synthesis": {"method": "gum", "duplicate_share": 0.5},
    },
}
"""Preset -> its values; what the spec itself says goes before them.  All other defaults are the paper's."""


def _filled(content: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the values of ``preset`` that it does not give."""
    filled = dict(content)
    for name, value in preset.items():
        if isinstance(value, Mapping) and isinstance(filled.get(name), Mapping):
            filled[name] = _filled(filled[name], value)
        else:
            filled.setdefault(name, value)
    return filled


class ReleaseSpec(FrozenModel):
    """Everything a release depends on, except the private table itself."""

    dataset: str = Field(
        pattern=DATASET,
        description="The ledger's name for the private data set: small letters, digits, - and _, at most 48.",
    )
    data: str = Field(min_length=1, description="CSV or Parquet: a file, or a folder of files with the same columns.")
    unit: Unit = Field(
        description="The unit of protection: one person, with how many records? Either `records_per_person`, or "
        "`person_id` with `max_records`."
    )
    privacy: Guarantee = Field(description="What this release may cost: its (epsilon, delta)-differential privacy.")
    budget: Guarantee = Field(description="The data set's lifetime cap: set once, kept by the ledger.")
    columns: dict[str, Column] = Field(
        description="Every column of the table, with its domain from a public source, never read off the data. Kinds: "
        "`integer`, `number`, `datetime`, `categorical`, `boolean`, `drop`. As JSON, which `privsyn spec json SPEC` "
        'makes of a YAML spec: `{"age": {"kind": "integer", "min": 18, "max": 89}, "region": {"kind": "categorical", '
        '"values": ["north", "south"]}, "caseid": {"kind": "drop"}}`'
    )
    null_values: tuple[str, ...] = Field(default=("",), description="CSV only: texts that mean null.")
    preset: Literal["default", "paper"] = Field(
        default="default",
        description="Where the fields below that the spec does not give come from: this project's defaults, or the "
        "paper's method and settings. Either way they are constants.",
    )
    accountant: Literal["gaussian", "tight", "paper"] = Field(
        default="gaussian",
        description="How (epsilon, delta) becomes rho, and rho noise: `gaussian` is the exact curve of Gaussian noise, "
        "proved for the discrete kind with 3 counts^2 more variance (most budget for the same promise); `tight` the "
        "optimal zCDP conversion; `paper` is rho + 2 sqrt(rho ln(1/delta)) = epsilon. The first release's choice of "
        "`gaussian` or not also counts the data set's lifetime cap, and other noise cannot be added to a cap of "
        "`gaussian`.",
    )
    split: Split = Field(
        default=Split(), description="How rho is split over the three looks at the data; the shares sum to 1."
    )
    compression: Compression = Field(default=Compression(), description="Low-count values: filtered, combined or kept.")
    selection: Selection = Field(
        default=Selection(), description="Which pairs of columns, or cliques of them, are measured."
    )
    adaptive: Adaptive = Field(
        default=Adaptive(), description="Further rounds of measuring, where the rows made so far are worst: none."
    )
    consistency: Consistency = Field(default=Consistency(), description="Bringing the noisy marginals into agreement.")
    synthesis: Synthesis = Field(default=Synthesis(), description="Making the synthetic rows.")
    engine: EngineChoice = Field(
        default=EngineChoice(), description="Where private rows are counted: another engine, the same result."
    )
    formats: tuple[Format, ...] = Field(
        default=("parquet",),
        description="File formats of the synthetic table. Another choice re-runs nothing but the publishing.",
    )
    about: About = Field(
        default=About(), description="What catalogues are told of the release. Re-runs nothing but the publishing."
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """The JSON schema; what a preset decides has no default in it (form.py)."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        fields = handler.resolve_ref_schema(schema)["properties"]
        for name, values in PRESETS["paper"].items():
            default = cls.model_fields[name].default
            if not isinstance(values, Mapping):
                leave_to_preset(fields[name], default, "paper", values)
                continue
            del fields[name]["default"]
            inner = handler.resolve_ref_schema(fields[name])["properties"]
            for part, value in values.items():
                leave_to_preset(inner[part], getattr(default, part), "paper", value)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, content: Any) -> Any:
        preset = PRESETS.get(str(content.get("preset"))) if isinstance(content, Mapping) else None
        return _filled(content, preset) if preset else content

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: dict[str, Any]) -> dict[str, Any]:
        if len(columns) > MAX_COLUMNS:
            raise ValueError(f"at most {MAX_COLUMNS} columns")
        if "" in columns:
            raise ValueError("a column needs a name; the empty name is not one")
        if all(isinstance(c, DropColumn) for c in columns.values()):
            raise ValueError("at least one column must not be dropped")
        return columns

    @field_validator("formats")
    @classmethod
    def _formats(cls, formats: tuple[Format, ...]) -> tuple[Format, ...]:
        return checked_formats(formats)

    @model_validator(mode="after")
    def _person_id_is_a_column(self) -> ReleaseSpec:
        pid = self.unit.person_id
        if pid is not None and not isinstance(self.columns.get(pid), DropColumn):
            raise ValueError(
                f"unit.person_id: list the column {pid!r} under `columns` as {{kind: drop}}: "
                "an identifier is never released"
            )
        return self

    @property
    def released_columns(self) -> dict[str, Any]:
        """The columns that are synthesized, in the spec's order."""
        return {name: c for name, c in self.columns.items() if not isinstance(c, DropColumn)}

    def public(self) -> dict[str, Any]:
        """The spec as JSON without paths and machines: what a manifest may show."""
        return self.model_dump(mode="json", exclude={"data", "engine"})
