"""Counts from elsewhere: a public table to shrink noisy counts towards, and earlier releases to pool or to cut by."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.mechanism_options import MOST_GROUPS, AnyMechanism, PriorLevels, PrivSyn

LEAST_STATEMENT = 20
"""The least number of characters of a statement, which must say whose data it is and why it is public."""


def check_statement(statement: str, cure: str) -> str:
    """Return a statement about public data without outer spaces.  Raises FieldError if it is too short."""
    if len(statement.strip()) < LEAST_STATEMENT or not statement.isprintable():
        raise FieldError(f"is not a statement of {LEAST_STATEMENT} printable characters or more", cure)
    return statement.strip()


class Prior(FrozenModel):
    """The public table, and why it is public."""

    table: str = Field(
        default="",
        description="Public CSV or Parquet file beside the spec with the released columns.",
    )
    release: str = Field(default="", description="The folder of an earlier release, in place of `table`.")
    statement: str = Field(
        max_length=2_000,
        description="Whose data it is, and why it is public; printed in the release's certificate and README.",
    )
    zeros: bool = Field(
        default=False,
        description="Declare that pairs of values without a row in the prior cannot occur.",
    )
    sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the public file, filled in when the spec is read. A run that is started "
        "elsewhere needs it, to show that its author knows the file.",
    )

    @field_validator("statement")
    @classmethod
    def _check_statement(cls, statement: str) -> str:
        return check_statement(statement, "Say whose data the prior is, and why it is public")

    @model_validator(mode="after")
    def _check_place(self) -> Prior:
        if self.sha256 and not self.place:
            return self  # as in a manifest
        if bool(self.table) == bool(self.release):
            raise FieldError(
                "give either `table: FILE` or `release: FOLDER`", "Name the one place where the public rows are"
            )
        return self

    @property
    def place(self) -> str:
        """The place of the rows: a file, or a release's folder."""
        return self.table or self.release

    def at(self, place: str, sha256: str | None = None, *, release: bool = False) -> Prior:
        """Return the same prior with its file, or ``release``, at another place; ``sha256``: the file's, if known."""
        table, folder = ("", place) if release else (place, "")
        return Prior(
            table=table,
            release=folder,
            statement=self.statement,
            zeros=self.zeros,
            sha256=sha256 or self.sha256,
        )

    def key(self) -> dict[str, Any]:
        """Return the parts that results depend on: the content, not its place."""
        return {"sha256": self.sha256, "zeros": self.zeros}

    def public(self) -> dict[str, Any]:
        """Return the field without its file's place, for a manifest or certificate."""
        return self.model_dump(mode="json", exclude={"table", "release"})


def uses_prior(mechanism: AnyMechanism) -> bool:
    """Return whether the mechanism uses a public table."""
    if isinstance(mechanism, PrivSyn):
        return mechanism.name == "privsyn" and mechanism.selection.scores == "one_ways"
    return isinstance(mechanism, PriorLevels)


def check_prior(
    mechanism: AnyMechanism, prior: Prior | None, released: Mapping[str, Any], computed: Collection[str]
) -> None:
    """Raise FieldError if the mechanism cannot use the prior, or lacks one, or if its groups are invalid.

    released: the released columns by name; ``computed``: the columns that rules compute from others.
    """
    if isinstance(mechanism, PriorLevels):
        _check_levels(mechanism, prior, released, computed)
    elif prior is not None and not uses_prior(mechanism):
        raise FieldError(
            "only the mechanism privsyn with scores of `one_ways`, and the mechanism prior, can use a prior",
            "Take the field out, or choose one of them",
            ("prior",),
        )


def _check_levels(
    options: PriorLevels, prior: Prior | None, released: Mapping[str, Any], computed: Collection[str]
) -> None:
    if prior is None:
        raise FieldError(
            "the mechanism prior makes its rows from a public table, and the spec names none",
            "Name one, or choose another mechanism",
            ("prior",),
        )
    if not options.group:
        raise FieldError("names no column", "Name one or more, as `group: [region]`", ("mechanism", "group"))
    for i, name in enumerate(options.group):
        fault = _explain_missing_group(released.get(name), name in options.group[:i], name in computed)
        if fault:
            cure = "Name each categorical or boolean column once"
            raise FieldError(f"{name!r} {fault}", cure, ("mechanism", "group", i))
    groups = math.prod(len(getattr(released[name], "values", (False, True))) for name in options.group)
    if groups > MOST_GROUPS:
        raise FieldError(
            f"the values of these columns make {groups:,} groups, more than {MOST_GROUPS:,}",
            "Name fewer columns, or ones of fewer values",
            ("mechanism", "group"),
        )
    if not released.keys() - set(options.group) - set(computed):
        raise FieldError("names every released column", "Leave one out, to be made by group", ("mechanism", "group"))
    if not set(options.large) < set(options.group):
        raise FieldError("must be some of `group`, not all", "Leave one out", ("mechanism", "large"))


def _explain_missing_group(column: Any, is_repeated: bool, computed: bool) -> str:
    """Return the problem with a group column, empty if there is none."""
    if column is None:
        return "is not a released column"
    if column.kind not in ("categorical", "boolean"):
        return f"is of the kind {column.kind}, not categorical or boolean"
    if computed:
        return "is computed from others by a rule, so it is not measured"
    return "is named twice" if is_repeated else ""


MOST_EARLIER = 20
"""The most earlier releases."""

RUN = r"^[a-z0-9][a-z0-9_-]{0,80}$"
"""Pattern of run names."""


class EarlierLook(FrozenModel):
    """One earlier release, by its public name, with the (epsilon, delta) that its own looks at the data cost."""

    run: str = Field(pattern=RUN, description="Public name of the earlier run.")
    epsilon: float = Field(gt=0, le=1e6, description="Epsilon of that run's own looks.")
    delta: float = Field(gt=0, lt=1, description="Delta of that run's own looks.")


class Improvement(FrozenModel):
    """The earlier releases that are pooled, the first one first, and what the new looks cost by themselves."""

    earlier: tuple[EarlierLook, ...] = Field(description="Pooled releases of the same unchanged data, oldest first.")
    epsilon: float = Field(gt=0, le=1e6, description="Epsilon of the new looks alone.")
    delta: float = Field(gt=0, lt=1, description="Delta of the new looks alone.")

    @field_validator("earlier")
    @classmethod
    def _check_earlier(cls, earlier: tuple[EarlierLook, ...]) -> tuple[EarlierLook, ...]:
        if not 1 <= len(earlier) <= MOST_EARLIER:
            raise FieldError(f"must name 1 to {MOST_EARLIER} earlier releases", "Name the run that is improved")
        names = [look.run for look in earlier]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise FieldError(f"names the run {twice!r} twice", "Take one out: the same counts add nothing")
        return earlier

    @property
    def looks(self) -> tuple[tuple[float, float], ...]:
        """(epsilon, delta) of every release in order, the new one last."""
        return (*((look.epsilon, look.delta) for look in self.earlier), (self.epsilon, self.delta))


def check_poolable(mechanism: str) -> None:
    """Raise FieldError for a mechanism whose releases cannot be pooled: all but privsyn."""
    if mechanism != "privsyn":
        raise FieldError(
            f"releases by the mechanism {mechanism!r} cannot be pooled",
            "Take the field out, or improve a release by the mechanism privsyn",
            ("improves",),
        )


MOST_CELLS = 4_096
"""The most cells of one column that a spec takes from an earlier release."""


class ColumnCells(FrozenModel):
    """The cells of one column in an earlier release."""

    low: tuple[float, ...] = Field(
        min_length=1, max_length=MOST_CELLS, description="Where each cell begins, ascending; one: equal cells."
    )
    doubtful: tuple[int, ...] = Field(
        default=(), max_length=MOST_CELLS, description="Numbers, from 0, of the cells where its first look saw no rows."
    )

    @model_validator(mode="after")
    def _check_order(self) -> ColumnCells:
        if any(low >= after for low, after in zip(self.low, self.low[1:], strict=False)):
            raise FieldError("the cells do not ascend", "Name the release with `release: FOLDER`", ("low",))
        if any(not 0 <= number < len(self.low) for number in self.doubtful):
            raise FieldError(
                "numbers a cell that is not there", "Name the release with `release: FOLDER`", ("doubtful",)
            )
        return self


class EarlierCells(FrozenModel):
    """The earlier release whose cells are used in place of a first look."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"release"})

    release: str = Field(default="", description="Folder of an earlier release.")
    run: str = Field(default="", pattern=rf"^$|{RUN}", description="Its run, filled in when the spec is read.")
    columns: dict[str, ColumnCells] = Field(
        default_factory=dict, description="Its cells by column, filled in when the spec is read."
    )

    @model_validator(mode="after")
    def _check_place(self) -> EarlierCells:
        if bool(self.release) == bool(self.columns):
            raise FieldError("must name one earlier release", "Write `cells: {release: FOLDER}`")
        return self
