"""Two tables that refer to each other: persons and their rows, or households and their members, as one spec of rows.

The columns of the table above are the same in every row of a person, so a release of two tables is one of linked rows
(panels.py), beside a count of the persons that have no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.form import Schema
from privsyn.data_contracts.frozen_model import FrozenModel
from privsyn.data_contracts.rule_language import RowWords
from privsyn.data_contracts.rules import OneOf, list_expressions, map_computed_columns

TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
"""What a table may be called: its released files have the name."""

OF_ROWS = ("order", "with_order", "once")
"""Fields of a spec that may stand in the table of rows."""


class LinkedTable(FrozenModel):
    """One of two tables: the one above, of persons or households, or the one of their rows, which is ``of`` it."""

    data: str = Field(
        default="",
        description="Where the table is, as the spec's `data`. Empty: it is handed over in memory.",
    )
    of: str | None = Field(
        default=None, description="The table above, whose `key` says whose each row is. Not given: this is that table."
    )
    key: str | None = Field(
        default=None,
        description="Column that identifies a row of the table: of the table above the person or the household. The "
        "release has new keys.",
    )
    columns: tuple[str, ...] = Field(
        description="The table's columns: a mapping as `columns` of the spec, or the names of columns described there."
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema, with what :func:`fold_tables` takes out of a table as people write it."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        fields = handler.resolve_ref_schema(schema)["properties"]
        names = fields["columns"]
        described = {name: names.pop(name) for name in ("title", "description")}
        fields["columns"] = {**described, "anyOf": [names, {"type": "object"}]}
        fields |= {
            "order": {"title": "Order", "type": "string", "description": "Of the table of rows: `order` of the spec."},
            "max": {"title": "Max", "type": "integer", "minimum": 2, "description": "Likewise: rows kept at most."},
        }
        for field in OF_ROWS[1:]:
            described = {"title": field.replace("_", " ").title(), "description": f"Likewise: `{field}` of the spec."}
            fields[field] = {**described, "type": "array", "items": {"type": "string"}}
        return schema


Tables = Mapping[str, LinkedTable]
"""The tables of a spec by their names."""


def get_above(tables: Tables) -> tuple[str, LinkedTable]:
    """Return the table above with its name.  Raises LookupError where there is none."""
    for name, table in tables.items():
        if table.of is None:
            return name, table
    raise LookupError("the spec has no tables")


def get_below(tables: Tables) -> tuple[str, LinkedTable]:
    """Return the table of rows with its name.  Raises LookupError where there is none."""
    for name, table in tables.items():
        if table.of is not None:
            return name, table
    raise LookupError("the spec has no tables")


def fold_tables(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a spec with what its tables say of columns and rows in the fields of one table.

    What is no table is left to the model.  Raises FieldError, with its place, for tables that do not fit together.
    """
    folded, given = dict(content), content.get("tables")
    if not isinstance(given, Mapping) or not given:
        return folded
    for name, table in given.items():
        if not isinstance(name, str) or TABLE_NAME.fullmatch(name) is None:
            problem = f"calls a table {str(name)[:60]!r}"
            raise FieldError(problem, "Begin with a letter, with at most 48 letters, digits and _", ("tables",))
        if not isinstance(table, Mapping):
            raise FieldError("is no table", "Write `{data: ..., columns: {...}}`, and `key` or `of`", ("tables", name))
        if not isinstance(table.get("of"), str | None):
            raise FieldError("is no name of a table", "Write the name of the table above", ("tables", name, "of"))
        if not isinstance(table.get("columns", ()), Mapping | list | tuple | str):
            problem = "are neither described nor listed"
            raise FieldError(problem, "Write `columns: {NAME: {kind: ...}}`", ("tables", name, "columns"))
    tables = {name: dict(table) for name, table in given.items()}
    above, below = _arrange(tables)
    if content.get("data") or content.get("query"):
        raise FieldError("says where one table is, and the spec has two", "Write `data` in each of them", ("data",))
    key = tables[above].get("key")
    described = content.get("columns")
    if not isinstance(described, Mapping | None):
        raise FieldError("is no mapping of columns", "Leave it out, or write `{NAME: {kind: ...}}`", ("columns",))
    columns = dict(described or {})
    for name in (above, below):
        tables[name]["columns"] = [*_take_columns(name, tables[name], key, columns)]
    twice = next((c for c in tables[above]["columns"] if c in tables[below]["columns"] and c != key), None)
    if twice is not None:
        raise FieldError(
            f"{twice!r} is a column of both tables", "Rename it in one of them, or list it in one", ("tables", below)
        )
    for field in OF_ROWS:
        if field in tables[below]:
            folded[field] = tables[below].pop(field)
    folded |= {"tables": tables, "columns": columns}
    most = tables[below].pop("max", None)
    folded["unit"] = _fold_unit(content.get("unit"), most, above, below, tables)
    return folded


def _arrange(tables: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the names of the table above and of the table of rows."""
    for name, table in tables.items():
        seen, at = [name], table.get("of")
        while at is not None:
            if at in seen:
                raise FieldError(
                    f"{name!r} is below itself", "Name the table above in `of`, and none in that", ("tables", name)
                )
            if at not in tables:
                problem = f"names {str(at)[:60]!r}, which is no table of the spec"
                raise FieldError(problem, f"Name one of {', '.join(tables)}", ("tables", name, "of"))
            seen.append(at)
            at = tables[at].get("of")
    roots = [name for name, table in tables.items() if table.get("of") is None]
    below = [name for name, table in tables.items() if table.get("of") in roots]
    if len(tables) < 2 or not below:
        raise FieldError(
            "two tables are one above, with a `key`, and one that is `of` it",
            "Write a spec of one table without `tables`, or add the other one",
            ("tables",),
        )
    if len(tables) > 2:
        raise FieldError(
            f"{len(tables)} tables are not linked to each other: a release has one table of rows below one table",
            "Sum the lowest table up in columns of the one above it, such as their number, or release each two in a "
            "data set of their own",
            ("tables",),
        )
    return roots[0], below[0]


def _take_columns(name: str, table: Mapping[str, Any], above: Any, columns: dict[str, Any]) -> Iterator[str]:
    """Yield the names of a table's columns, its keys among them; put those that it describes into ``columns``."""
    own = table.get("columns", ())
    if isinstance(own, Mapping):
        both = next((c for c, d in own.items() if c in columns and c != above and columns[c] != d), None)
        if both is not None:
            raise FieldError(
                f"{both!r} is described twice", "Describe a column once, in its table", ("tables", name, "columns")
            )
        columns.update(own)
    elif isinstance(own, str):
        own = (own,)
    listed = list(own)
    for key in (above, table.get("key")):
        if isinstance(key, str):
            columns.setdefault(key, {"kind": "drop"})
            listed += [] if key in listed else [key]
    yield from listed


def _fold_unit(given: Any, most: Any, above: str, below: str, tables: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the unit with the cap of rows in it."""
    if not isinstance(given, Mapping):
        return given
    unit = dict(given)
    known = unit.get("max_records")
    if most is not None and known not in (None, most):
        raise FieldError(f"is {most}, and `unit.max_records` is {known}", "Give one of them", ("tables", below, "max"))
    if most is not None:
        unit["max_records"] = most
    if unit.get("max_records") is None:
        problem = f"nothing says how many rows of {above} are kept at most"
        raise FieldError(problem, "Write `max: K`, a public number", ("tables", below, "max"))
    if type(most) is int and most < 2:
        raise FieldError(f"is {most}, and rows are linked to each other", "Keep 2 or more", ("tables", below, "max"))
    key, identifier = tables[above].get("key"), unit.get("household_id") or unit.get("person_id")
    if identifier is None:
        raise FieldError(
            "two tables are about persons or households with all of their rows",
            f"Write `unit: {{person_id: {key}}}`, or `household_id` where a row of {above} is a household",
            ("unit",),
        )
    if key is None:
        problem, cure = f"nothing identifies a row of {above}", f"Write `key: {identifier}`"
        raise FieldError(problem, cure, ("tables", above, "key"))
    if identifier != key:
        raise FieldError(
            f"is about {identifier!r}, and the table above is by {key!r}: one record of that can change without "
            "leaving the table",
            f"Write `unit: {{household_id: {key}}}`, whose promise is about the household with everybody in it, or "
            f"`{{person_id: {key}}}` where a row of {above} is a person",
            ("unit",),
        )
    return unit


class WithTables(Protocol):
    """The parts of a spec that say what is public about two tables."""

    tables: Any
    order: str | None
    constant: tuple[str, ...]
    columns: Any
    rules: Any

    @property
    def released_columns(self) -> dict[str, Any]:
        """The columns that are synthesized."""

    @property
    def measured_columns(self) -> dict[str, Any]:
        """The columns that are measured."""

    @property
    def row_words(self) -> RowWords:
        """What rules may say of other rows of a person, and of tables."""


def list_constant_columns(spec: WithTables) -> tuple[str, ...]:
    """Return the measured columns of the table above, but those that rules compute."""
    computed = {name for rule in spec.rules for name in map_computed_columns(rule)}
    names = get_above(spec.tables)[1].columns
    return tuple(name for name in names if name in spec.measured_columns and name not in computed)


def check_tables(spec: WithTables) -> None:
    """Raise FieldError, with its place, where columns, order or rules do not fit the tables of the spec."""
    if not spec.tables:
        return
    (above, persons), (below, rows) = get_above(spec.tables), get_below(spec.tables)
    at = ("tables", above, "columns")
    for name, table in spec.tables.items():
        unknown = next((c for c in table.columns if c not in spec.columns), None)
        if unknown is not None:
            place = ("tables", name, "columns")
            raise FieldError(f"names {unknown!r}, which nothing describes", "Describe it in `columns`", place)
    nowhere = next((c for c in spec.columns if c not in {*persons.columns, *rows.columns}), None)
    if nowhere is not None:
        raise FieldError(f"{nowhere!r} is in neither table", "List it in one of them", ("columns", nowhere))
    if spec.constant:
        raise FieldError(
            f"the columns of {above} are constant, and no others",
            f"Take it out, or list them in {above}",
            ("constant",),
        )
    if spec.order is None or spec.order not in rows.columns:
        raise FieldError(
            f"nothing says in which order rows of {below} follow each other",
            "Write `order: COLUMN`, a column of this table: of whole numbers, dates or moments, or the roles of the "
            "members of households",
            ("tables", below, "order"),
        )
    groups = {name for rule in spec.rules if isinstance(rule, OneOf) for name in rule.one_of}
    grouped = next((name for name in persons.columns if name in groups), None)
    if grouped is not None:
        problem = f"{grouped!r} is one of a `one_of`, which is drawn for every row"
        raise FieldError(problem, "Store the group as one `categorical` column", at)
    if not list_constant_columns(spec):
        raise FieldError("none of its columns is measured", f"Release {below} alone, without `tables`", at)
    _check_computed(spec, above, persons)


def _check_computed(spec: WithTables, above: str, persons: LinkedTable) -> None:
    """Raise FieldError where a column of the table above follows from one of a row."""
    behind = {
        name: node.columns for name, node in list_expressions(spec.rules, spec.released_columns, spec.row_words).items()
    }
    for rule in spec.rules:
        lookup = getattr(rule, "lookup", None)
        behind |= dict.fromkeys(lookup.to, tuple(lookup.from_)) if lookup is not None else {}
    for name in persons.columns:
        other = next((c for c in behind.get(name, ()) if c not in persons.columns), None)
        if other is not None:
            raise FieldError(
                f"{name!r} is of {above} and follows from {other!r}, which differs from row to row",
                "List it in the table of rows",
                ("tables", above, "columns"),
            )
