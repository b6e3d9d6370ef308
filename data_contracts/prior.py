"""A public prior: a public table of similar rows, towards which noisy counts are shrunk."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel
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
        return self.model_copy(update={"table": table, "release": folder, "sha256": sha256 or self.sha256})

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


def _explain_missing_group(column: Any, twice: bool, computed: bool) -> str:
    """Return the problem with a group column, empty if there is none."""
    if column is None:
        return "is not a released column"
    if column.kind not in ("categorical", "boolean"):
        return f"is of the kind {column.kind}, not categorical or boolean"
    if computed:
        return "is computed from others by a rule, so it is not measured"
    return "is named twice" if twice else ""
