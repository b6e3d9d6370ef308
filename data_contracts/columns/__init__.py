"""The columns of a release spec: what is publicly known about each column of the private table.

Every bound, value and bin comes from these models and never from the data: a domain read from the private table is
itself a function of the private table.  One module holds the models of related kinds; all are imported from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from privsyn.data_contracts.columns.category_columns import MAX_CODES, MAX_TEXT, BooleanColumn, CategoricalColumn
from privsyn.data_contracts.columns.number_columns import INTEGER_TYPES, IntegerColumn, NumberColumn
from privsyn.data_contracts.columns.shared_fields import Binned, Described
from privsyn.data_contracts.columns.time_columns import (
    DateColumn,
    DatetimeColumn,
    TimeColumn,
    Zoned,
    count_seconds_since_epoch,
)

__all__ = [
    "INTEGER_TYPES",
    "MAX_CODES",
    "MAX_TEXT",
    "Binned",
    "BooleanColumn",
    "CategoricalColumn",
    "Column",
    "DateColumn",
    "DatetimeColumn",
    "DropColumn",
    "IntegerColumn",
    "NumberColumn",
    "TimeColumn",
    "Zoned",
    "count_seconds_since_epoch",
]


class DropColumn(Described):
    """A column that is never read into the release (identifiers, free text, derived columns)."""

    kind: Literal["drop"]


Column = Annotated[
    IntegerColumn
    | NumberColumn
    | DatetimeColumn
    | DateColumn
    | TimeColumn
    | CategoricalColumn
    | BooleanColumn
    | DropColumn,
    Field(discriminator="kind"),
]
