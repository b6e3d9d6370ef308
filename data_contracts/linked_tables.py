"""Linked tables: persons and their rows, or households and their members, as one spec of rows.

The columns of the table above are the same in every row of a person.  So a release of two tables is a release of linked
rows (panels.py) with a count of the persons without rows.  Each further table, of the same persons or of their rows, is
a spec of two tables: itself and the table above it (:func:`build_table_pair`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from privsyn.data_contracts.columns import Column, DropColumn
from privsyn.data_contracts.focus import Focus, NamedMarginal
from privsyn.data_contracts.frozen_model import FieldError, FrozenModel, Schema
from privsyn.data_contracts.promise import MOST_RECORDS, Unit
from privsyn.data_contracts.rule_language import drop_table_names
from privsyn.data_contracts.rules import OneOf, Rule, list_expressions, map_computed_columns

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec

TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
"""Pattern of table names, which are also the names of their released files."""

OF_ROWS = ("order", "with_order", "once")
"""Spec fields that may be in the table of rows."""

OF_FURTHER = ("rules", "focus", "workload")
"""Spec fields that a further table may have."""

DEEPEST = 3
"""The most tables on a path from the root table down: persons, visits, drugs of visits."""


class LinkedTable(FrozenModel):
    """A table: the top one, of persons or households, or a table of rows, which is ``of`` the table above it.

    ``order``, ``max``, ``with_order``, ``rules``, ``focus`` and ``workload`` belong to a further table; for the first
    table of rows they are fields of the spec.
    """

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset(
        {"order", "max", "with_order", "rules", "focus", "workload"}
    )

    data: str = Field(
        default="",
        description="Where the table is, like `data` of the spec. Empty: a program hands it over.",
    )
    of: str | None = Field(
        default=None,
        description="The table above, whose `key` identifies the owner of each row. Not given: this is the top table.",
    )
    key: str | None = Field(
        default=None,
        description="Column that identifies a row of this table; in the top table, the person or household. "
        "The release has new keys.",
    )
    columns: tuple[str, ...] | dict[str, Column] = Field(
        description="The table's columns: a mapping like `columns` of the spec, or names of columns described there."
    )
    order: str | None = Field(
        default=None,
        description="For a table of rows: `order` of the spec. Third and further tables may have none.",
    )
    max: int | None = Field(
        default=None, ge=2, le=10_000, description="For a table of rows: most rows kept of one row above."
    )
    with_order: tuple[str, ...] = Field(default=(), description="For a table of rows: `with_order` of the spec.")
    rules: tuple[Rule, ...] = Field(
        default=(),
        description="For third and further tables: `rules` of the spec, about its columns and those above.",
    )
    focus: Focus | None = Field(
        default=None,
        description="For third and further tables: `focus` of the spec, on its columns and those above.",
    )
    workload: tuple[NamedMarginal, ...] = Field(
        default=(),
        description="For third and further tables: `workload` of the spec, each entry with a column of the table.",
    )

    def read_at(self, place: str) -> LinkedTable:
        """Return the same table at another place, empty for a table in memory."""
        return self.model_copy(update={"data": place})

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema, including the fields that :func:`fold_tables` takes out of a written table."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        fields = handler.resolve_ref_schema(schema)["properties"]
        names = fields["columns"]["anyOf"][0]
        described = {name: fields["columns"][name] for name in ("title", "description")}
        fields["columns"] = {**described, "anyOf": [names, {"type": "object"}]}
        for field, type_ in (("order", {"type": "string"}), ("max", {"type": "integer", "minimum": 2})):
            fields[field] = {**{name: fields[field][name] for name in ("title", "description")}, **type_}
        described = {"title": "Once", "description": "Of members of households: `once` of the spec."}
        fields["once"] = {**described, "type": "array", "items": {"type": "string"}}
        return schema


ONE_PLACE: Mapping[str, Any] = {"kind": "integer", "min": 1, "max": 1}
"""The order column of a further table without an order: one place, so that each row's hash decides."""


def name_one_place(table: str) -> str:
    """Return the name of the order column of a further table without an order; no table has this column."""
    return f"{table} (in no order)"


Tables = Mapping[str, LinkedTable]


def get_above(tables: Tables) -> tuple[str, LinkedTable]:
    """Return the root table with its name.  Raises LookupError if there is none."""
    for name, table in tables.items():
        if table.of is None:
            return name, table
    raise LookupError("the spec has no tables")


def get_below(tables: Tables) -> tuple[str, LinkedTable]:
    """Return the first table of rows below the root, with its name.  Raises LookupError without tables."""
    above = get_above(tables)[0]
    of_above = {name: table.columns for name, table in tables.items() if table.of == above}
    if not of_above:
        raise LookupError("the spec has no tables")
    name = _choose_first(of_above)
    return name, tables[name]


def _choose_first(columns_by_table: Mapping[str, Any]) -> str:
    """Return the first listed of the root's tables of rows, else the first: it stays if a store sorts the names."""
    listed = [name for name, columns in columns_by_table.items() if isinstance(columns, list | tuple | str)]
    return (listed or [*columns_by_table])[0]


def fold_tables(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's content with the columns and row fields of its tables moved to the fields of a one-table spec.

    Values that are not tables are left to the model.  Raises FieldError, with its place, for tables that do not fit
    together.
    """
    folded, described_tables = dict(content), content.get("tables")
    if not isinstance(described_tables, Mapping) or not described_tables:
        return folded
    for name, table in described_tables.items():
        if not isinstance(name, str) or TABLE_NAME.fullmatch(name) is None:
            problem = f"calls a table {str(name)[:60]!r}"
            raise FieldError(problem, "Begin with a letter, with at most 48 letters, digits and _", ("tables",))
        if not isinstance(table, Mapping):
            raise FieldError(
                "is not a table", "Write `{data: ..., columns: {...}}`, and `key` or `of`", ("tables", name)
            )
        if not isinstance(table.get("of"), str | None):
            raise FieldError("is not a table name", "Write the name of the table above", ("tables", name, "of"))
        if not isinstance(table.get("columns", ()), Mapping | list | tuple | str):
            problem = "are neither described nor listed"
            raise FieldError(problem, "Write `columns: {NAME: {kind: ...}}`", ("tables", name, "columns"))
        place = name_one_place(name)
        if place in table.get("columns", ()) and table.get("order") != place:
            problem = f"have {place!r}, a name reserved for rows without an order"
            raise FieldError(problem, "Rename the column", ("tables", name, "columns"))
    tables = {name: dict(table) for name, table in described_tables.items()}
    above, below, *further = _arrange(tables)
    if content.get("data") or content.get("query"):
        raise FieldError(
            "gives the place of one table, but the spec has several", "Write `data` in each of them", ("data",)
        )
    key = tables[above].get("key")
    described = content.get("columns")
    if not isinstance(described, Mapping | None):
        raise FieldError("is not a mapping of columns", "Leave it out, or write `{NAME: {kind: ...}}`", ("columns",))
    columns = dict(described or {})
    for name in (above, below):
        tables[name]["columns"] = [*_take_columns(name, tables[name], key, columns)]
    twice = next((c for c in tables[above]["columns"] if c in tables[below]["columns"] and c != key), None)
    if twice is not None:
        raise FieldError(
            f"{twice!r} is a column of both tables", "Rename it in one of them, or list it in one", ("tables", below)
        )
    for name, field in product((above, below), OF_FURTHER):
        if tables[name].get(field):
            problem = "is for further tables only; for the first two tables it is a field of the spec"
            raise FieldError(problem, f"Write it in `{field}` of the spec", ("tables", name, field))
    _check_keys(tables)
    for field in OF_ROWS:
        if field in tables[below]:
            if content.get(field):
                raise FieldError(f"is also given in {below}", "Give one of them", (field,))
            folded[field] = tables[below].pop(field)
    for name in further:
        tables[name]["columns"] = _describe_further(name, tables)
    for table_name, content_of in ((below, folded), *((name, tables[name]) for name in further)):
        if isinstance(content_of.get("workload"), list | tuple):
            error_place = () if table_name == below else ("tables", table_name)
            marginals = enumerate(content_of["workload"])
            content_of["workload"] = [
                _drop_table_names(a, table_name, tables, (*error_place, "workload", i)) for i, a in marginals
            ]
    folded |= {"tables": tables, "columns": columns}
    most = tables[below].pop("max", None)
    folded["unit"] = _fold_unit(content.get("unit"), most, above, below, tables)
    return folded


def list_path(tables_above: Mapping[str, str | None], name: str) -> tuple[str, ...]:
    """Return a table and its ancestors, by name; ``tables_above``: each table's parent, or None."""
    above = tables_above[name]
    return (name,) if above is None else (name, *list_path(tables_above, above))


def _drop_table_names(marginal: Any, name: str, tables: Mapping[str, Any], place: tuple[str | int, ...]) -> Any:
    """Return a table's workload entry with plain column names.  Raises FieldError for a table that is no ancestor."""
    if not isinstance(marginal, Mapping) or not isinstance(marginal.get("question"), str):
        return marginal
    path = list_path({each: table.get("of") for each, table in tables.items()}, name)
    plain = drop_table_names(marginal["question"], path)
    other = next((each for each in tables if each not in path and drop_table_names(plain, (each,)) != plain), None)
    if other is not None:
        problem = f"names a column of {other}, and is about {' and '.join(path)}"
        raise FieldError(problem, f"Write it in `tables.{other}.workload`", (*place, "question"))
    return {**marginal, "question": plain}


def join_columns(content: Mapping[str, Any]) -> Any:
    """Return the described columns of a folded spec, with the columns of its further tables."""
    columns, tables = content.get("columns"), content.get("tables")
    if not isinstance(columns, Mapping) or not isinstance(tables, Mapping):
        return columns
    by_table = (table.get("columns") for table in tables.values() if isinstance(table, Mapping))
    return {
        **columns,
        **{c: d for described in by_table if isinstance(described, Mapping) for c, d in described.items()},
    }


def list_described_columns(spec: Any) -> Any:
    """Return the columns that a spec describes, with the columns of its further tables."""
    return join_columns(
        {"columns": spec.columns, "tables": {n: {"columns": t.columns} for n, t in spec.tables.items()}}
    )


def _arrange(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the top table, of its first table of rows, and of all others, in this order."""
    for name, table in tables.items():
        seen, above = [name], table.get("of")
        while above is not None:
            if above in seen:
                raise FieldError(
                    f"{name!r} is below itself", "Name the table above in `of`, and none in that", ("tables", name)
                )
            if above not in tables:
                problem = f"names {str(above)[:60]!r}, which is not a table of the spec"
                raise FieldError(problem, f"Name one of {', '.join(tables)}", ("tables", name, "of"))
            seen.append(above)
            above = tables[above].get("of")
        if len(seen) > DEEPEST:
            problem = (
                f"{name!r} lies below {len(seen) - 1} tables, {' and '.join(seen[1:])}, but {DEEPEST - 1} is the limit"
            )
            cure = f"Sum its rows up in columns of {seen[1]}, such as their number"
            raise FieldError(problem, cure, ("tables", name, "of"))
    roots = [name for name, table in tables.items() if table.get("of") is None]
    below = [name for name, table in tables.items() if table.get("of") in roots]
    if not below:
        raise FieldError(
            "linked tables need a table with a `key`, and a table of rows that is `of` it",
            "Write a spec of one table without `tables`, or add the other one",
            ("tables",),
        )
    if len(roots) > 1:
        problem = f"{' and '.join(roots)} have no `of`, but only one table, of persons or households, can be at the top"
        raise FieldError(problem, f"Write `of: {roots[0]}` in the other table", ("tables", roots[1]))
    first = _choose_first({name: tables[name].get("columns") for name in below})
    return [roots[0], first, *(name for name in tables if name not in (roots[0], first))]


def _check_keys(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise FieldError if a table of rows has the column naming its parent row, or the person, as its own key."""
    of_above = {name: {tables[table["of"]].get("key")} for name, table in tables.items() if table.get("of")}
    root = next(table.get("key") for table in tables.values() if table.get("of") is None)
    for name, keys in of_above.items():
        key = tables[name].get("key")
        if isinstance(key, str) and key in {*keys, root}:
            problem = f"is {key!r}, which identifies the row above, so several rows of {name} may share it"
            raise FieldError(problem, "Name a column that identifies a row, or take it out", ("tables", name, "key"))


def _describe_further(name: str, tables: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the described columns of a further table, including its keys, and an order column if it has none."""
    table, table_place = tables[name], ("tables", name)
    above = tables[table["of"]]
    if not isinstance(table.get("columns"), Mapping):
        problem = f"{name!r} has no columns of its own: only the first two tables' columns can be described elsewhere"
        raise FieldError(problem, "Write `columns: {NAME: {kind: ...}}`", (*table_place, "columns"))
    if above.get("key") is None:
        problem = f"{table['of']} has no key, but {name} is `of` it"
        raise FieldError(problem, "Write `key: COLUMN`", ("tables", table["of"], "key"))
    if "once" in table:
        raise FieldError("is about the roles in a household", "Take it out", (*table_place, "once"))
    if table.get("max") is None:
        problem = f"the most rows to keep per row of {table['of']} is missing"
        raise FieldError(problem, "Write `max: K`, a public number", (*table_place, "max"))
    keys = [key for key in (above["key"], table.get("key")) if isinstance(key, str)]
    columns = {**table["columns"], **{key: {"kind": "drop"} for key in keys if key not in table["columns"]}}
    place = name_one_place(name)
    if table.get("order") is None and not table.get("with_order"):
        table["order"] = place
    if table.get("order") == place:
        columns[place] = dict(ONE_PLACE)
    return columns


def _take_columns(name: str, table: Mapping[str, Any], above: Any, columns: dict[str, Any]) -> Iterator[str]:
    """Yield the names of a table's columns, including its keys; put the described ones into ``columns``."""
    described = table.get("columns", ())
    if isinstance(described, Mapping):
        both = next((c for c, d in described.items() if c in columns and c != above and columns[c] != d), None)
        if both is not None:
            raise FieldError(
                f"{both!r} is described twice", "Describe a column once, in its table", ("tables", name, "columns")
            )
        columns.update(described)
    elif isinstance(described, str):
        described = (described,)
    listed = list(described)
    for key in (above, table.get("key")):
        if isinstance(key, str):
            columns.setdefault(key, {"kind": "drop"})
            listed += [] if key in listed else [key]
    yield from listed


def _fold_unit(described: Any, limit: Any, parent: str, child: str, tables: Mapping[str, Mapping[str, Any]]) -> Any:
    if not isinstance(described, Mapping):
        return described
    unit = dict(described)
    max_records = unit.get("max_records")
    if limit is not None and max_records not in (None, limit):
        raise FieldError(
            f"is {limit}, and `unit.max_records` is {max_records}", "Give one of them", ("tables", child, "max")
        )
    if limit is not None:
        unit["max_records"] = limit
    if unit.get("max_records") is None:
        problem = f"the most rows to keep per row of {parent} is missing"
        raise FieldError(problem, "Write `max: K`, a public number", ("tables", child, "max"))
    if limit is not None and not (type(limit) is int and 2 <= limit <= MOST_RECORDS):
        cure = f"Keep a whole number, from 2 to {MOST_RECORDS:,}"
        raise FieldError(f"is {limit!r}, but rows are linked to each other", cure, ("tables", child, "max"))
    key, identifier = tables[parent].get("key"), unit.get("household_id") or unit.get("person_id")
    if identifier is None:
        raise FieldError(
            "linked tables protect persons or households with all their rows",
            f"Write `unit: {{person_id: {key}}}`, or `household_id` where a row of {parent} is a household",
            ("unit",),
        )
    if key is None:
        problem, cure = f"{parent} has no key", f"Write `key: {identifier}`"
        raise FieldError(problem, cure, ("tables", parent, "key"))
    if identifier != key:
        raise FieldError(
            f"is about {identifier!r}, and the table above is by {key!r}: one record of it can change without "
            "leaving the table",
            f"Write `unit: {{household_id: {key}}}`, whose promise is about the household with everybody in it, or "
            f"`{{person_id: {key}}}` where a row of {parent} is a person",
            ("unit",),
        )
    return unit


def list_constant_columns(spec: ReleaseSpec) -> tuple[str, ...]:
    """Return the measured columns of the root table, without those that rules compute."""
    computed = {name for rule in spec.rules for name in map_computed_columns(rule)}
    names = get_above(spec.tables)[1].columns
    return tuple(name for name in names if name in spec.measured_columns and name not in computed)


def check_tables(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, if columns, order or rules do not fit the spec's tables."""
    if not spec.tables:
        return
    (above, persons), (below, rows) = get_above(spec.tables), get_below(spec.tables)
    columns_place = ("tables", above, "columns")
    for name, table in ((above, persons), (below, rows)):
        unknown = next((c for c in table.columns if c not in spec.columns), None)
        if unknown is not None:
            place = ("tables", name, "columns")
            raise FieldError(f"names {unknown!r}, which is not described", "Describe it in `columns`", place)
    nowhere = next((c for c in spec.columns if c not in {*persons.columns, *rows.columns}), None)
    if nowhere is not None:
        raise FieldError(f"{nowhere!r} is in neither table", "List it in one of them", ("columns", nowhere))
    if spec.constant:
        raise FieldError(
            f"with tables, exactly the columns of {above} are constant",
            f"Take it out, or list them in {above}",
            ("constant",),
        )
    if spec.order is not None and spec.order not in rows.columns:
        problem = f"names {spec.order!r}, which is not a column of {below}"
        raise FieldError(problem, "Name one of its columns", ("tables", below, "order"))
    if spec.order is None:
        raise FieldError(
            f"the order of the rows of {below} is missing",
            "Write `order: COLUMN`, a column of this table: of whole numbers, dates or moments, or the roles of the "
            "members of households",
            ("tables", below, "order"),
        )
    groups = {name for rule in spec.rules if isinstance(rule, OneOf) for name in rule.one_of}
    grouped = next((name for name in persons.columns if name in groups), None)
    if grouped is not None:
        problem = f"{grouped!r} is one of a `one_of`, which is drawn for every row"
        raise FieldError(problem, "Store the group as one `categorical` column", columns_place)
    if not list_constant_columns(spec):
        raise FieldError("none of its columns is measured", f"Release {below} alone, without `tables`", columns_place)
    _check_computed(spec, above, persons)


def _check_computed(spec: ReleaseSpec, parent: str, persons: LinkedTable) -> None:
    """Raise FieldError if a parent-table column follows from a column of its rows."""
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
                f"{name!r} is of {parent} and follows from {other!r}, which differs from row to row",
                "List it in the table of rows",
                ("tables", parent, "columns"),
            )


Spec = TypeVar("Spec", bound=Any)


def build_first_table_pair(spec: Spec) -> Spec:
    """Return the spec of the root table and its first table of rows, without further tables."""
    first_pair = (get_above(spec.tables), get_below(spec.tables))
    return spec.model_copy(update={"tables": dict(first_pair)})


def build_table_pair(spec: Spec, name: str) -> Spec:
    """Return the two-table spec of a further table and its parent, in which a parent row is the person.

    The columns of the top table stand beside the columns of the table above: rows below depend on both.
    """
    table, (root, _) = spec.tables[name], get_above(spec.tables)
    above = _list_columns(spec, root) | _list_columns(spec, table.of)
    key = str(spec.tables[table.of].key)
    upper = LinkedTable(data=spec.tables[table.of].data, key=key, columns=tuple(above))
    lower = LinkedTable(data=table.data, of=table.of, key=table.key, columns=tuple(table.columns))
    return spec.model_copy(
        update={
            "unit": Unit(person_id=key, max_records=table.max),
            "columns": above | dict(table.columns),
            "tables": {table.of: upper, name: lower},
            "order": table.order,
            "with_order": table.with_order,
            **{field: getattr(table, field) for field in OF_FURTHER},
            **dict.fromkeys(("once", "totals", "together", "compare", "constant"), ()),
            **dict.fromkeys(("prior", "improves")),
        }
    )


def _list_columns(spec: Any, name: str) -> dict[str, Any]:
    columns = spec.tables[name].columns
    return dict(columns) if isinstance(columns, Mapping) else {c: spec.columns[c] for c in columns}


def check_further_table(spec: Any, name: str, check: Any) -> None:
    """Raise FieldError, with its place, if a further table does not fit its ancestors.

    ``check``: raises FieldError for an invalid two-table spec.
    """
    table, root = spec.tables[name], get_above(spec.tables)[0]
    for upper in dict.fromkeys((root, table.of)):
        upper_columns = _list_columns(spec, upper)
        both = {c: (d, upper_columns[c]) for c, d in table.columns.items() if c in upper_columns}
        twice = next((c for c, d in both.items() if not all(isinstance(each, DropColumn) for each in d)), None)
        if twice is not None:
            problem = f"{twice!r} is a column of {upper} and of {name}"
            raise FieldError(problem, "Rename it in one of them", ("tables", name, "columns"))
    pair_spec = build_table_pair(spec, name)
    key = str(pair_spec.unit.identifier)
    if not isinstance(pair_spec.columns[key], DropColumn):
        problem = f"{key!r} is the key of {table.of}, and a key is never released"
        raise FieldError(problem, "Describe it as {kind: drop}, or leave it out", ("tables", table.of, "columns"))
    try:
        check(pair_spec)
    except FieldError as error:
        inside = error.place[2:] if error.place[:1] == ("tables",) else error.place
        raise FieldError(error.problem, error.cure, ("tables", name, *inside)) from None
