"""SQL schemas: ``CREATE TABLE`` with CHECKs, enumerations and foreign keys, parsed by sqlglot.  Nothing is executed.

A foreign key into a table whose rows the same file inserts gives a list of values.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privsyn.base.registry import need_package
from privsyn.specs.dictionaries import (
    Dictionary,
    Facts,
    format_value,
    list_values,
    make_unreadable_error,
    parse_whole_number,
    pick,
)

_FORM = "SQL schema"
_ENUM = re.compile(r"TYPE\s+\"?([\w.]+)\"?\s+AS\s+ENUM\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_INTEGERS = {
    "TINYINT",
    "SMALLINT",
    "MEDIUMINT",
    "INT",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UMEDIUMINT",
    "UINT",
    "UBIGINT",
}
_NUMBERS = {"FLOAT", "DOUBLE", "DECIMAL", "MONEY", "SMALLMONEY", "BIGDECIMAL"}
_TEXTS = {"CHAR", "NCHAR", "VARCHAR", "NVARCHAR", "TEXT", "ENUM", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT"}
_MOMENTS = {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "DATETIME", "DATETIME2", "SMALLDATETIME", "TIMESTAMPNTZ"}


def read(path: Path, table: str) -> Dictionary:
    """Return the facts about the table called ``table``, or the only one that no other refers to."""
    with need_package("sqlglot", f"reading a {_FORM}", "codebooks", "draft_spec.dictionary"):
        import sqlglot
        from sqlglot import exp
    log = logging.getLogger("sqlglot")
    before, log.disabled = log.disabled, True  # it would print unknown statements
    try:
        statements = [s for s in sqlglot.parse(path.read_text(encoding="utf-8-sig")) if s is not None]
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        raise make_unreadable_error(path.name, _FORM) from None
    finally:
        log.disabled = before
    created = {
        s.this.this.name: s.this
        for s in statements
        if isinstance(s, exp.Create) and s.kind == "TABLE" and isinstance(s.this, exp.Schema)
    }
    if not created:
        raise make_unreadable_error(path.name, f"{_FORM}: it has no CREATE TABLE")
    schema = _Schema(created, statements)
    mine = {name: schema_ for name, schema_ in created.items() if name not in schema.referred} or created
    chosen = created.get(table)
    if chosen is None:
        chosen = pick({name: {"schema": s} for name, s in mine.items()}, table, path.name)["schema"]
    return Dictionary(path.name, schema.columns(chosen), rules=list(schema.rules(chosen)))


class _Schema:
    """The facts from all statements of a file."""

    def __init__(self, created: dict[str, Any], statements: list[Any]) -> None:
        from sqlglot import exp

        self.created, self.exp = created, exp
        enum_matches = [_ENUM.search(s.sql()) for s in statements if isinstance(s, exp.Command)]
        self.enums = {m[1].lower(): [v.strip().strip("'") for v in m[2].split(",")] for m in enum_matches if m}
        self.rows = [s for s in statements if isinstance(s, exp.Insert) and isinstance(s.expression, exp.Values)]
        self.comments = {
            (s.this.table, s.this.name): s.expression.name
            for s in statements
            if isinstance(s, exp.Comment) and isinstance(s.this, exp.Column)
        }
        references = [r for schema in created.values() for r in schema.find_all(exp.Reference)]
        self.referred = {r.this.this.name for r in references if isinstance(r.this, exp.Schema)}

    def columns(self, schema: Any) -> dict[str, Facts]:
        """Return the facts about each column of one table."""
        exp, table = self.exp, schema.this.name
        facts_by_column = {}
        for column in schema.find_all(exp.ColumnDef):
            facts = facts_by_column[column.name] = self._read_column(column)
            facts.description = facts.description or self.comments.get((table, column.name), "")
        for check in schema.find_all(exp.CheckColumnConstraint, exp.Check):
            self._check(check.this, facts_by_column)
        for key in schema.find_all(exp.ForeignKey):
            names, reference = [e.name for e in key.expressions], key.args.get("reference")
            if len(names) == 1 and names[0] in facts_by_column and reference is not None:
                self._refer(facts_by_column[names[0]], reference)
        for key in schema.find_all(exp.PrimaryKey):
            if len(key.expressions) == 1 and key.expressions[0].name in facts_by_column:
                _mark_identifier(facts_by_column[key.expressions[0].name])
        return facts_by_column

    def rules(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Yield a rule for each CHECK over several columns; as in SQL, a row with an unknown result passes."""
        for check in schema.find_all(self.exp.CheckColumnConstraint, self.exp.Check):
            for part in _split_conjuncts(check.this, self.exp):
                condition = translate_condition(part, self.exp)
                if condition and len({c.name for c in part.find_all(self.exp.Column)}) > 1:
                    yield {"never": f"not ({condition})"}

    def _read_column(self, column: Any) -> Facts:
        exp, facts = self.exp, Facts(nullable=True)
        self._read_type(column.kind, facts)
        for constraint in column.constraints:
            match constraint.kind:
                case exp.NotNullColumnConstraint() as null:
                    facts.nullable = bool(null.args.get("allow_null"))
                case exp.CommentColumnConstraint() as comment:
                    facts.description = comment.this.name
                case exp.Reference() as reference:
                    self._refer(facts, reference)
                case exp.PrimaryKeyColumnConstraint():
                    _mark_identifier(facts)
        return facts

    def _read_type(self, type_: Any, facts: Facts) -> None:
        name = "" if type_ is None else type_.this.name
        parameters = [] if type_ is None else [p.name for p in type_.expressions]
        if name in _INTEGERS:
            facts.kind = "integer"
        elif name in _NUMBERS:
            scale = parse_whole_number(parameters[1]) if len(parameters) > 1 else None
            is_integer = name == "DECIMAL" and bool(parameters) and not scale
            facts.kind, facts.decimals = ("integer", None) if is_integer else ("number", scale)
        elif name == "BOOLEAN":
            facts.kind = "boolean"
        elif name == "DATE":
            facts.kind, facts.type = "datetime", "date"
        elif name == "TIME":
            facts.kind = "time"
        elif name in _MOMENTS:
            facts.kind = "datetime"
        elif name in _TEXTS or name == "USERDEFINED":
            facts.kind = "categorical"
            listed = parameters if name == "ENUM" else self.enums.get(format_value(type_.args.get("kind")).lower())
            facts.values = list_values(listed, facts)
        elif name in ("BINARY", "VARBINARY", "BLOB", "JSON", "JSONB", "UUID", "ARRAY"):
            facts.kind = "drop"

    def _refer(self, facts: Facts, reference: Any) -> None:
        """Add the values of the column that a foreign key refers to, if the file inserts them."""
        exp, target = self.exp, reference.this
        name = target.this.name if isinstance(target, exp.Schema) else target.name
        referred_table = self.created.get(name)
        if referred_table is None:
            return
        columns = [c.name for c in referred_table.find_all(exp.ColumnDef)]
        wanted = target.expressions[0].name if isinstance(target, exp.Schema) and target.expressions else columns[0]
        listed, labels = [], []
        for insert in self.rows:
            into = insert.this
            if (into.this.name if isinstance(into, exp.Schema) else into.name) != name:
                continue
            order = [e.name for e in into.expressions] if isinstance(into, exp.Schema) else columns
            for row in insert.expression.expressions:
                values = dict(zip(order, map(self._read_literal, row.expressions), strict=False))
                listed.append(values.get(wanted))
                labels.append(format_value(next((v for c, v in values.items() if c != wanted), "")))
        if listed:
            facts.kind, facts.values, facts.labels = "categorical", list_values(listed, facts), labels

    def _check(self, condition: Any, facts_by_column: dict[str, Facts]) -> None:
        """Add the facts about single columns from the conjuncts of a CHECK; ignore other conditions."""
        exp = self.exp
        for part in _split_conjuncts(condition, exp):
            column = part.this
            while isinstance(column, exp.Paren):
                column = column.this
            swapped = not isinstance(column, exp.Column) and isinstance(getattr(part, "expression", None), exp.Column)
            if swapped:
                column = part.expression
            facts = facts_by_column.get(column.name) if isinstance(column, exp.Column) else None
            if facts is None:
                continue
            if isinstance(part, exp.Between):
                self._bound(facts, "min", part.args["low"])
                self._bound(facts, "max", part.args["high"])
            elif isinstance(part, exp.In) and part.expressions:
                facts.kind = "categorical" if facts.kind != "boolean" else facts.kind
                facts.values = list_values([self._read_literal(e) for e in part.expressions], facts)
            elif isinstance(part, exp.GTE | exp.GT | exp.LTE | exp.LT):
                lower = isinstance(part, exp.GTE | exp.GT) != swapped
                limit = part.this if swapped else part.expression
                self._bound(facts, "min" if lower else "max", limit, strict=isinstance(part, exp.GT | exp.LT))

    def _bound(self, facts: Facts, which: str, limit: Any, *, strict: bool = False) -> None:
        value = self._read_literal(limit)
        if facts.kind == "datetime":
            try:
                value = dt.datetime.fromisoformat(str(value))
            except ValueError:
                return
            value -= dt.timedelta(days=1) if strict and which == "max" and facts.type == "date" else dt.timedelta(0)
        elif facts.kind == "integer" and isinstance(value, int | float) and not isinstance(value, bool):
            value = (math.floor(value) + strict if strict else math.ceil(value)) if which == "min" else (
                math.ceil(value) - strict if strict else math.floor(value)
            )  # fmt: skip
        elif facts.kind != "number" or not isinstance(value, int | float) or isinstance(value, bool):
            return
        setattr(facts, which, value)

    def _read_literal(self, node: Any) -> Any:
        """Return the value of a constant; None for NULL and for anything else."""
        exp = self.exp
        match node:
            case exp.Neg():
                inner = self._read_literal(node.this)
                return -inner if isinstance(inner, int | float) else None
            case exp.Cast() | exp.Paren() | exp.TsOrDsToDate():
                return self._read_literal(node.this)
            case exp.Boolean():
                return bool(node.this)
            case exp.Literal() if node.is_string:
                return str(node.this)
            case exp.Literal():
                number = parse_whole_number(str(node.this))
                return float(node.this) if number is None else number
        return None


def _split_conjuncts(condition: Any, exp: Any) -> Iterator[Any]:
    if isinstance(condition, exp.Paren):
        yield from _split_conjuncts(condition.this, exp)
    elif isinstance(condition, exp.And):
        yield from _split_conjuncts(condition.this, exp)
        yield from _split_conjuncts(condition.expression, exp)
    elif condition is not None:
        yield condition


def _mark_identifier(facts: Facts) -> None:
    facts.kind, facts.values, facts.unique = "drop", None, True
    facts.remarks.append("primary key in the schema, so an identifier")


def translate_condition(node: Any, exp: Any) -> str:
    """Return a condition, or a part of one, in the language of rules; empty if rules cannot express it.

    ``exp``: sqlglot's module of nodes.
    """
    match node:
        case exp.Paren():
            return _join_conditions("({})", [node.this], exp)
        case exp.Column():
            return f"`{node.name}`"
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Literal():
            return repr(str(node.this)) if node.is_string else str(node.this)
        case exp.Cast() | exp.TsOrDsToDate():
            return translate_condition(node.this, exp)
        case exp.Not(this=exp.Is(this=inner, expression=exp.Null())):
            return _join_conditions("{} is not null", [inner], exp)
        case exp.Not() | exp.Neg():
            return _join_conditions("not ({})" if isinstance(node, exp.Not) else "-{}", [node.this], exp)
        case exp.Is(expression=exp.Null()):
            return _join_conditions("{} is null", [node.this], exp)
        case exp.In() if node.expressions:
            listed = _join_conditions(", ".join(["{}"] * len(node.expressions)), node.expressions, exp)
            operand = translate_condition(node.this, exp)
            return f"{operand} in [{listed}]" if operand and listed else ""
        case exp.Between():
            return _join_conditions("{} <= {} <= {}", [node.args["low"], node.this, node.args["high"]], exp)
    for kind, sign in _SIGNS.items():
        if type(node).__name__ == kind:
            return _join_conditions(f"{{}} {sign} {{}}", [node.this, node.expression], exp)
    return ""


_SIGNS = {
    "And": "and",
    "Or": "or",
    "EQ": "==",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
}


def _join_conditions(form: str, nodes: list[Any], exp: Any) -> str:
    parts = [translate_condition(node, exp) for node in nodes]
    return form.format(*parts) if all(parts) else ""
