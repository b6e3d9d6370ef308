"""Counts from elsewhere: a public table, earlier releases, and known totals of the private table.

Noisy counts are shrunk towards a public table, and earlier releases are pooled or cut by.  Totals that are published
elsewhere are honoured without any budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, CategoryValue, holds, is_nullable
from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.mechanism_options import MOST_GROUPS, AnyMechanism, PriorLevels, PrivSyn

LEAST_STATEMENT = 20
"""The least number of characters of a statement, which must say whose data it is and why it is public."""

MOST_COUNTS = 20_000
"""The most counts of one total, because the manifest lists them."""

MOST_CELLS = 2_000_000
"""The most pairs of values of a total's two columns."""

MOST_ROWS = (1 << 31) - 1

Counts = dict[tuple[Any, ...], int]
"""Values of the total's columns -> number of rows, above 0."""


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

RUN = r"^[a-z0-9][a-z0-9_-]{0,80}$"


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


MOST_EARLIER_CELLS = 4_096
"""The most cells of one column that a spec takes from an earlier release."""


class ColumnCells(FrozenModel):
    """The cells of one column in an earlier release."""

    low: tuple[float, ...] = Field(
        min_length=1, max_length=MOST_EARLIER_CELLS, description="Where each cell begins, ascending; one: equal cells."
    )
    doubtful: tuple[int, ...] = Field(
        default=(),
        max_length=MOST_EARLIER_CELLS,
        description="Numbers, from 0, of the cells where its first look saw no rows.",
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


class KnownTotal(FrozenModel):
    """A published number of rows, in total or by the values of one or two columns."""

    columns: tuple[str, ...] = Field(
        default=(), max_length=2, description="One or two released columns of kind `categorical` or `boolean`."
    )
    table: str = Field(
        default="",
        description="Public CSV or Parquet file beside the spec with these columns and one of counts, never "
        "made from the private rows.",
    )
    count: str = Field(default="count", min_length=1, description="Name of the column of counts.")
    counts: tuple[dict[str, CategoryValue | None], ...] = Field(
        default=(),
        max_length=MOST_COUNTS,
        description='In place of `table`: `[{"region": "north", "count": 812}, ...]`. Values that are not '
        "named have no row.",
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ROWS,
        description="Without `columns`: the published number of all rows of the table.",
    )
    statement: str = Field(
        max_length=2_000,
        description="Who publishes these counts, and when; printed in the release's certificate and README.",
    )
    hold: Literal["exact", "close"] = Field(
        default="exact",
        description="`exact`: the synthetic table has exactly these counts. `close`: rows may differ by a few.",
    )
    sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the table's file, filled in when the spec is read.",
    )

    @field_validator("statement")
    @classmethod
    def _check_statement(cls, statement: str) -> str:
        return check_statement(statement, "Say who publishes these counts, and when")

    @model_validator(mode="after")
    def _check_place(self) -> KnownTotal:
        if not self.columns:
            if self.rows is None or self.table or self.counts:
                raise FieldError(
                    "names no columns, so it needs `rows`, the number of all rows, and nothing else",
                    "Write `rows: 8124`, or name one or two `columns`",
                )
        elif self.rows is not None or bool(self.table) == bool(self.counts):
            raise FieldError("give either `table: FILE` or `counts: [...]` with `columns`")
        if len(set(self.columns)) != len(self.columns):
            raise FieldError("names a column twice in `columns`", "Name it once")
        if self.count in self.columns:
            raise FieldError(
                f"{self.count!r} is both one of `columns` and the column of counts", "Name another", ("count",)
            )
        return self

    @property
    def known(self) -> bool:
        """Whether the counts are there; a file's counts are, once the spec's file is read."""
        return self.rows is not None or bool(self.counts)

    def by_value(self) -> Counts:
        """Return the counts above 0 by the values of the columns; the number of all rows has the key ``()``."""
        if self.rows is not None:
            return {(): self.rows}
        counts = {tuple(row[name] for name in self.columns): int(row[self.count] or 0) for row in self.counts}
        return {values: count for values, count in counts.items() if count}

    def public(self) -> dict[str, Any]:
        """Return the total for a certificate; the counts are in the manifest."""
        left_out = {"table", "counts", "count", *(() if self.sha256 else ("sha256",))}
        content = self.model_dump(mode="json", exclude=left_out)
        if self.rows is None:
            content["rows"] = sum(self.by_value().values())
        return content


def check_totals(
    totals: Sequence[KnownTotal], columns: Mapping[str, Any], computed: Collection[str], mechanism: AnyMechanism
) -> None:
    """Raise FieldError, with its place, for totals that cannot be honoured or contradict each other.

    columns: the released columns; computed: the columns that rules compute or tie to others, which are not counted
    themselves.  No private count is used: the totals are never compared with the table.
    """
    if mechanism.name != "privsyn" or not isinstance(mechanism, PrivSyn) or mechanism.selection.scores != "one_ways":
        raise FieldError(
            "only the mechanism privsyn with scores of `one_ways` honours totals",
            "Take the field out, or choose that mechanism",
            ("totals",),
        )
    for i, total in enumerate(totals):
        try:
            _check_one(total, columns, computed)
        except FieldError as error:
            raise FieldError(error.problem, error.cure, ("totals", i, *error.place)) from None
    if all(total.known for total in totals):
        _check_together(totals, set(columns) - set(computed), mechanism.synthesis.rows)


def _check_one(total: KnownTotal, columns: Mapping[str, Any], computed: Collection[str]) -> None:
    for name in total.columns:
        if name not in columns:
            raise FieldError(f"the spec releases no column {name!r}", "Name one that it releases", ("columns",))
        if name in computed:
            raise FieldError(
                f"the column {name!r} follows from others by a rule, so it is not counted",
                "Name a column that no rule computes or ties",
                ("columns",),
            )
        if not isinstance(columns[name], CategoricalColumn | BooleanColumn):
            raise FieldError(
                f"the column {name!r} is of kind {columns[name].kind!r}, but totals need columns that list their "
                "values",
                "Name a categorical or boolean column",
                ("columns",),
            )
        if getattr(columns[name], "levels", ()):
            raise FieldError(
                f"the column {name!r} has `levels`, which are counted with noise, and a total leaves nothing to count",
                f"Take `levels` out of {name!r}, or the total",
                ("columns",),
            )
    if prod(len(_list_values(columns[name])) + 2 for name in total.columns) > MOST_CELLS:
        raise FieldError(f"the columns have more than {MOST_CELLS:,} pairs of values", "Name one of them", ("columns",))
    seen: set[tuple[Any, ...]] = set()
    for j, row in enumerate(total.counts):
        values = _check_row(row, total, columns, j)
        if values in seen:
            named = " and ".join(f"{name} = {_write_value(v)}" for name, v in zip(total.columns, values, strict=True))
            raise FieldError(f"names {named} twice", "Keep one count of it", ("counts", j))
        seen.add(values)
    if total.known and not 0 < sum(total.by_value().values()) <= MOST_ROWS:
        raise FieldError(f"the counts must sum to a number from 1 to {MOST_ROWS:,}", place=("counts",))


def _check_row(row: Mapping[str, Any], total: KnownTotal, columns: Mapping[str, Any], j: int) -> tuple[Any, ...]:
    if row.keys() != {*total.columns, total.count}:
        raise FieldError(
            f"must have {', '.join(map(repr, (*total.columns, total.count)))} and nothing else", place=("counts", j)
        )
    count = row[total.count]
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise FieldError(f"{_write_value(count)[:40]} is not a count", "Write a whole number, 0 or more", ("counts", j))
    for name in total.columns:
        odd = isinstance(row[name], bool) and not isinstance(_list_values(columns[name])[0], bool)
        if odd or not holds(columns[name], row[name]):
            shown_value = _write_value(row[name])[:40]
            cure = "Take it out, or add it to the column's `values`"
            if row[name] is None and not is_nullable(columns[name]):
                cure = "Take it out, or let the column be `nullable`"
            raise FieldError(f"{shown_value} is not a value of the column {name!r}", cure, ("counts", j))
    return tuple(row[name] for name in total.columns)


def _list_values(column: Any) -> Sequence[Any]:
    return (
        column.values if isinstance(column, CategoricalColumn) else (False,)
    )  # of a boolean: True and null are two more


def _write_value(value: Any) -> str:
    """Return a value in a row of counts as YAML writes it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def _check_together(totals: Sequence[KnownTotal], columns: Collection[str], rows: int | Literal["auto"]) -> None:
    """Check that the totals agree, that exact pairs form no circle, and that something is left to measure."""
    first = sum(totals[0].by_value().values())
    for i, total in enumerate(totals):
        rows_of_total = sum(total.by_value().values())
        if rows_of_total != first:
            raise FieldError(
                f"sums to {rows_of_total:,} rows, totals[0] to {first:,}: they are not of the same table",
                "Correct one of them",
                ("totals", i),
            )
        if rows not in ("auto", rows_of_total) and total.hold == "exact":
            raise FieldError(
                f"is of {rows_of_total:,} rows, and `synthesis.rows` asks for {rows:,}",
                "Leave `synthesis.rows` out, or write `hold: close`",
                ("totals", i),
            )
        for j, before in enumerate(totals[:i]):
            _check_overlap(total, before, i, j)
    _check_no_circle(totals)
    if columns and set(columns) <= {name for total in totals for name in total.columns}:
        raise FieldError(
            "give the counts of every column, so no single column is left to measure",
            "Leave the total of one column out",
            ("totals",),
        )


def _check_overlap(total: KnownTotal, before: KnownTotal, i: int, j: int) -> None:
    if set(total.columns) == set(before.columns):
        raise FieldError(f"has the columns of totals[{j}]", "Keep one of the two", ("totals", i))
    for name in set(total.columns) & set(before.columns):
        margin, other = sum_margin(total, name), sum_margin(before, name)
        for value in sorted((margin | other).keys(), key=str):
            if margin[value] != other[value]:
                raise FieldError(
                    f"has {margin[value]:,} rows with {name} = {_write_value(value)}, totals[{j}] has {other[value]:,}",
                    "Correct one of them",
                    ("totals", i),
                )


def _check_no_circle(totals: Sequence[KnownTotal]) -> None:
    groups: list[set[str]] = []
    for i, total in enumerate(totals):
        if len(total.columns) < 2 or total.hold != "exact":
            continue
        touched = [group for group in groups if group & set(total.columns)]
        if any(group >= set(total.columns) for group in touched):
            raise FieldError(
                "closes a circle of pairs of columns, which cannot all be exact",
                "Write `hold: close` for one of the circle",
                ("totals", i, "hold"),
            )
        groups = [g for g in groups if g not in touched] + [set(total.columns).union(*touched)]


def sum_margin(total: KnownTotal, column: str) -> Counter[Any]:
    """Return the counts of a total by the values of one of its columns."""
    axis = total.columns.index(column)
    margin: Counter[Any] = Counter()
    for values, count in total.by_value().items():
        margin[values[axis]] += count
    return margin


class PublicFile(FrozenModel):
    """One file, the field that named it, and the SHA-256 of its content."""

    field: str = Field(min_length=1, max_length=200, description="The field that named it.")
    path: str = Field(min_length=1, description="Where it lay.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of its content.")
