"""The language of rules between columns: expressions over columns, parsed and typed, never run as code.

Python's own parser reads the text, and every node that is not listed here is refused.  So an expression has no
subscripts, and no names but columns.  Attributes are columns of another row of a person (``previous.age``) or of a
named table, and calls are FUNCTIONS and COUNT only.  Evaluation is in ``tasks/rules``.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any, Literal, NoReturn

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.unicode import adopt_names

MAX_LENGTH = 2_000
"""The most characters of one expression."""

MAX_PARTS = 400
"""The most operators, columns and constants of one expression."""

NULLS = ("null", "None")
CONSTANTS = {"null": None, "None": None, "true": True, "True": True, "false": False, "False": False}

FUNCTIONS = ("abs", "floor", "ceil", "min", "max", "date", "year", "month", "day")

COUNT = "count"
"""The function that counts a person's rows that meet a condition."""

NEIGHBOURS = ("previous", "next", "first")
"""The rows of a person that a rule may name: the row before, the row after, and the first."""

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_TIME = re.compile(r"\d\d:\d\d(:\d\d)?")
_PLACEHOLDER = re.compile(r"_column_(\d+)_")
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
"""Pattern of a text in quotation marks, or of a name in backticks."""


@dataclass(frozen=True)
class RowWords:
    """The words that may precede a point and a column: a row of the same person, or the column's table.

    ``rows``: NEIGHBOURS, and the roles that at most one member of a household has; empty if rows are not linked.
    ``roles``: every role; ``tables``: table -> its columns.
    """

    rows: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ONE_ROW = RowWords()
"""For expressions about one row."""


def parse_condition(text: str, types: Mapping[str, Type], words: RowWords = ONE_ROW) -> Node:
    """Parse a condition; ``types``: of every column; ``words``: for other rows and tables.  Raises FieldError."""
    node = parse_expression(text, types, words)
    if node.type != "truth":
        _refuse(f"`{text}` is a {node.type}, not a condition", "Compare it with something, as in `age < 15`")
    return node


def parse_expression(text: str, types: Mapping[str, Type], words: RowWords = ONE_ROW) -> Node:
    """Parse a typed expression.  A name in backticks is a column with any spelling.  Raises FieldError."""
    tree, quoted = _parse(text)
    try:
        return _Reader(text, types, quoted, words).read(tree)
    except RecursionError:
        _refuse("is nested too deeply", "Write several rules")


def find_names(text: str) -> tuple[str, ...]:
    """Return the column names in an expression, without duplicates, whether or not they exist.  Raises FieldError.

    ``previous.age`` gives ``age``.
    """
    tree, quoted = _parse(text)
    every = list(ast.walk(tree))
    skipped = {id(node.func) for node in every if isinstance(node, ast.Call)}
    skipped |= {id(node.value) for node in every if isinstance(node, ast.Attribute)}  # a row or a table
    named = [node for node in every if isinstance(node, ast.Name | ast.Attribute) and id(node) not in skipped]
    names = [node.attr if isinstance(node, ast.Attribute) else node.id for node in named]
    return tuple(dict.fromkeys(_unquote(name, quoted) for name in names if name not in CONSTANTS))


def drop_table_names(text: str, tables: Collection[str]) -> str:
    """Return a text without ``TABLE.`` of these tables, which share no column name, outside quoted text."""
    if not tables:
        return text
    before_column = rf"(?<![\w.])(?:{'|'.join(map(re.escape, tables))})\s*\.\s*(?=[^\W\d]|`)"
    return re.sub(rf"{QUOTED}|({before_column})", lambda match: "" if match[1] else match[0], text)


def respell_argument(text: str) -> str | None:
    """Return a function's argument in its canonical spelling; None for several arguments.

    Blanks, kinds of quotation marks, redundant brackets and the brackets of a list then make no difference; quoted text
    stays.  Raises FieldError.
    """
    tree, quoted = _parse(text)
    call, _ = _parse(f"{COUNT}({text})")  # `a > 1) and (b > 2` closes these brackets and is no argument
    if not isinstance(call, ast.Call) or len(call.args) != 1 or isinstance(call.func, ast.Call):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and _PLACEHOLDER.fullmatch(node.id):
            node.id = f"`{_unquote(node.id, quoted)}`"
        elif isinstance(node, ast.Attribute) and _PLACEHOLDER.fullmatch(node.attr):
            node.attr = f"`{_unquote(node.attr, quoted)}`"
        elif isinstance(node, ast.Compare):
            node.comparators = [ast.List(c.elts) if isinstance(c, ast.Tuple | ast.Set) else c for c in node.comparators]
    return ast.unparse(tree)


def names_neighbour(text: str) -> bool:
    """Return whether an expression names a column of another row of a person (NEIGHBOURS).  Raises FieldError."""
    tree, quoted = _parse(text)
    owners = (n.value for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return any(isinstance(word, ast.Name) and _unquote(word.id, quoted) in NEIGHBOURS for word in owners)


def _unquote(name: str, quoted: Sequence[str]) -> str:
    """Return the name behind a placeholder; any other name unchanged."""
    match = _PLACEHOLDER.fullmatch(name)
    return quoted[int(match[1])] if match else name


def _parse(text: str) -> tuple[ast.expr, list[str]]:
    """Return Python's syntax tree of an expression, and the names in backticks, numbered by placeholders."""
    if len(text) > MAX_LENGTH:
        _refuse(f"is longer than {MAX_LENGTH:,} characters", "Write several rules")
    quoted: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        if not match.group().startswith("`"):
            return match.group()
        quoted.append(match.group()[1:-1])
        return f" _column_{len(quoted) - 1}_ "

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # we report "5 is not null" and the like
            tree = ast.parse(f"({re.sub(QUOTED, placeholder, text)}\n)", mode="eval")  # allows several lines
    except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
        _refuse(
            f"`{text}` is not an expression that can be read",
            "Write, say, `age < 15 and wage is not null`, with == for equal, small `and`, `or`, `not`, `in`, and a "
            "column whose name is no plain word in backticks",
        )
    if sum(1 for _ in ast.walk(tree)) > 4 * MAX_PARTS:
        _refuse("has too many parts", "Write several rules")
    return tree.body, quoted


_NOT_LINKED = "the spec does not link rows"
_LINK = "Name the person in `unit` and the column that puts its rows in order in `order`, or speak of one row"


def _refuse(problem: str, cure: str = "") -> NoReturn:
    raise FieldError(problem, cure)


class _Reader:
    """Converts Python's syntax tree into typed nodes."""

    def __init__(self, text: str, types: Mapping[str, Type], quoted: list[str], words: RowWords) -> None:
        self._text, self._types, self._quoted, self._words = text, types, quoted, words

    def read(self, tree: ast.expr) -> Node:
        match tree:
            case ast.Constant(value=value):
                return self._read_constant(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=ast.Name(id=word), attr=name) if self._words != ONE_ROW or word in NEIGHBOURS:
                return self._name_in(_unquote(word, self._quoted), _unquote(name, self._quoted))
            case ast.BoolOp(op=op, values=values):
                return self._join("and" if isinstance(op, ast.And) else "or", [self._read_truth(v) for v in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Node("not", "truth", (self._read_truth(operand),))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
                node = self._number(operand)
                return node if isinstance(op, ast.UAdd) else Node("neg", "number", (node,))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._make_arithmetic(_ARITHMETIC[type(op)], self.read(left), self.read(right))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                sides = zip(pairwise([left, *rights]), ops, strict=True)
                return self._join("and", [self._link(one, op, other) for (one, other), op in sides])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self._read_truth(test)
                then, otherwise = self._match_types(self.read(body), self.read(orelse))
                return Node("if", otherwise.type if then.type == "null" else then.type, (condition, then, otherwise))
            case ast.Call(func=ast.Name(id="count"), args=[arg], keywords=[]):
                if not self._words.rows:
                    _refuse(f"`{self._text}` counts rows of a person, and {_NOT_LINKED}", _LINK)
                return Node(COUNT, "number", (self._read_truth(arg),))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return self._call(name, args)
        raise self._describe_unknown(tree)

    def _describe_unknown(self, tree: ast.AST) -> FieldError:
        part = ast.unparse(tree)
        for i, name in enumerate(self._quoted):
            part = part.replace(f"_column_{i}_", f"`{name}`")
        if isinstance(tree, ast.Attribute) and self._words == ONE_ROW:
            return FieldError(
                f"`{part}` refers to nothing known here",
                "Write the column alone, or before the point one of the tables that rows are linked in",
            )
        called = (*FUNCTIONS, COUNT) if self._words.rows else FUNCTIONS
        before = (*self._words.rows, *self._words.tables)
        words = f"; and one of {', '.join(before)} before a point and a column" if before else ""
        return FieldError(
            f"`{part}` has no meaning here",
            "Use columns, values, null, + - * / // %, comparisons, and/or/not/in, `x if condition else y`, and "
            + ", ".join(f"{f}()" for f in called)
            + words,
        )

    def _read_constant(self, value: Any) -> Node:
        if isinstance(value, bool):
            return Node("constant", "truth", value=value)
        if isinstance(value, int | float):
            if not abs(value) < 1e300:
                _refuse("a number of 1e300 and more is too large", "Write a smaller one")
            return Node("constant", "number", value=float(value))
        if isinstance(value, str):
            return Node("constant", "text", value=value)
        if value is None:
            return Node("null", "null")
        _refuse(f"{value!r} is not a value", "Use a number, a text in quotation marks, true, false or null")

    def _name(self, name: str) -> Node:
        column = adopt_names((_unquote(name, self._quoted),), self._types)[0]
        if column in self._types:
            return Node("column", self._types[column], value=column)
        if column == name and name in CONSTANTS:
            return self._read_constant(CONSTANTS[name])
        raise self._describe_unknown_column(column)

    def _name_in(self, word: str, column: str) -> Node:
        """Return the node for a column of another row or of a table; ``word``: the word before the point."""
        words = self._words
        if word in words.rows:
            if column not in self._types:
                raise self._describe_unknown_column(column)
            return Node("of row", self._types[column], value=RowColumn(word, column))
        if word in words.tables:
            if column not in words.tables[word] or column not in self._types:
                _refuse(
                    f"`{self._text}` names {column!r}, which is not a released column of {word}",
                    f"Name columns of {word} that are not dropped",
                )
            return Node("column", self._types[column], value=column)
        if word in NEIGHBOURS:
            _refuse(f"`{self._text}` names the {word} row of a person, and {_NOT_LINKED}", _LINK)
        if word in words.roles:
            _refuse(
                f"`{self._text}` names the member {word!r}, and several members of a household may have this role",
                "List the role in `once`, or count its members: `count(ROLE == 'child') > 3`",
            )
        _refuse(
            f"`{self._text}` has {word!r} before a point, which is neither a row nor a table",
            f"Write one of {', '.join((*words.rows, *words.tables))} there",
        )

    def _describe_unknown_column(self, column: str) -> FieldError:
        return FieldError(
            f"`{self._text}` names {column!r}, which is not a released column",
            "Name columns of the spec that are not dropped; a text value stands in quotation marks, a name that is no "
            "plain word in backticks",
        )

    def _read_truth(self, tree: ast.expr) -> Node:
        node = self.read(tree)
        if node.type not in ("truth", "null"):
            _refuse(f"`{ast.unparse(tree)}` is a {node.type} where a condition must stand", "Compare it with something")
        return node

    def _number(self, tree: ast.expr) -> Node:
        node = self.read(tree)
        if node.type not in ("number", "null"):
            _refuse(f"`{ast.unparse(tree)}` is a {node.type} where a number must stand")
        return node

    @staticmethod
    def _join(op: str, nodes: list[Node]) -> Node:
        return reduce(lambda joined, node: Node(op, "truth", (joined, node)), nodes)

    def _make_arithmetic(self, op: str, left: Node, right: Node) -> Node:
        """Return the node; a moment minus a moment is days, and a moment plus or minus days is a moment."""
        kinds = (left.type, right.type)
        if kinds == ("moment", "moment") and op == "-":
            return Node("days", "number", (left, right))
        if (kinds == ("moment", "number") and op in "+-") or (kinds == ("number", "moment") and op == "+"):
            moment, days = (left, right) if left.type == "moment" else (right, left)
            return Node("later", "moment", (moment, Node("neg", "number", (days,)) if op == "-" else days))
        for node in (left, right):
            if node.type not in ("number", "null"):
                _refuse(f"`{self._text}` calculates ({op}) with a {node.type}", "Only numbers and dates are calculated")
        return Node(op, "number", (left, right))

    def _link(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Node:
        if isinstance(op, ast.In | ast.NotIn):
            node = self._parse_membership(self.read(left), right)
            return Node("not", "truth", (node,)) if isinstance(op, ast.NotIn) else node
        if isinstance(op, ast.Is | ast.IsNot):
            left_node, is_null = self.read(left), isinstance(right, ast.Name) and right.id in NULLS
            if not is_null and self.read(right).op != "null":  # it is null even if a column has that name
                _refuse(f"`{self._text}` compares with `is`, which works for null only", "Use == there")
            node = Node("is null", "truth", (left_node,))
            return Node("not", "truth", (node,)) if isinstance(op, ast.IsNot) else node
        left_node, right_node = self.read(left), self.read(right)
        if "null" in (left_node.op, right_node.op):
            _refuse(f"`{self._text}` compares with null, which is never true", "Write `is null` or `is not null`")
        left_node, right_node = self._match_types(left_node, right_node)
        sign = COMPARISONS[type(op)]
        if sign not in ("==", "!=") and left_node.type in ("text", "truth"):
            _refuse(f"`{self._text}` orders a {left_node.type}", "Use == or != for texts and truth values")
        return Node(sign, "truth", (left_node, right_node))

    def _parse_membership(self, member: Node, right: ast.expr) -> Node:
        if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
            _refuse(f"`{self._text}` has no list of values after `in`", "Write, say, `state in ['NY', 'NJ']`")
        values = []
        for tree in right.elts:
            node = self._match_types(member, self.read(tree))[1]
            constant = _fold_constants(node)
            if constant is None:
                _refuse(f"`{ast.unparse(tree)}` in a list after `in` is not a value", "List values only")
            values.append(constant)
        return Node("in", "truth", (member,), tuple(values))

    def _match_types(self, left: Node, right: Node) -> tuple[Node, Node]:
        """Return both with one type: text next to a moment becomes a moment, 0 and 1 next to a truth false and true."""
        if "null" in (left.type, right.type) or left.type == right.type:
            return left, right
        for a, b, swapped in ((left, right, False), (right, left, True)):
            turned = None
            if a.type == "moment" and b.op == "constant" and b.type == "text":
                turned = Node("constant", "moment", value=self._read_moment(b.value))
            elif a.type == "truth" and b.op == "constant" and b.value in (0.0, 1.0):
                turned = Node("constant", "truth", value=bool(b.value))
            if turned is not None:
                return (turned, a) if swapped else (a, turned)
        _refuse(
            f"`{self._text}` compares a {left.type} with a {right.type}",
            self._find_quoted_column(left, right)
            or "Compare like with like; a text value stands in quotation marks, a number does not",
        )

    def _find_quoted_column(self, *nodes: Node) -> str:
        """Return the cure for a column name in quotation marks, which are for values; empty if there is none."""
        texts = (node.value for node in nodes if node.op == "constant" and node.type == "text")
        column = next((text for text in texts if text in self._types), None)
        return "" if column is None else f"Write the column in backticks, `{column}`: quotation marks are for values"

    @staticmethod
    def _read_moment(text: str) -> float:
        try:
            time_of_day = _TIME.fullmatch(text) is not None
            moment = dt.datetime.fromisoformat(f"1970-01-01 {text}" if time_of_day else text)
        except ValueError:
            _refuse(
                f"{text!r} is not a date or time", "Write one such as '2010-01-31', '2010-01-31 08:30:00' or '08:30'"
            )
        if moment.tzinfo is not None:
            _refuse(f"{text!r} has a time zone", "Write it without one")
        return (moment - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1)

    def _call(self, name: str, trees: list[ast.expr]) -> Node:
        args = [self.read(tree) for tree in trees]
        if name in ("min", "max"):
            if len(args) < 2:
                _refuse(f"`{name}()` needs two values or more: it is over one row, not over the table")
            joined = args[0]
            for arg in args[1:]:
                joined, arg = self._match_types(joined, arg)
                if joined.type not in ("number", "moment", "null"):
                    _refuse(f"`{name}()` of a {joined.type}", "It takes numbers or dates")
                joined = Node(name, joined.type, (joined, arg))
            return joined
        if len(args) != 1:
            _refuse(f"`{name}()` takes one value")
        (arg,) = args
        if name == "date":
            if arg.op != "constant" or arg.type != "text":
                _refuse("`date()` takes a text", "Write, say, date('2010-01-31')")
            return Node("constant", "moment", value=self._read_moment(arg.value))
        wanted = "number" if name in ("abs", "floor", "ceil") else "moment"
        if arg.type not in (wanted, "null"):
            _refuse(f"`{name}()` of a {arg.type}", f"It takes a {wanted}")
        return Node(name, "number", (arg,))


def _fold_constants(node: Node) -> float | str | bool | None:
    """Return the value of a constant or a negated one; None for other nodes."""
    if node.op == "neg" and node.args[0].op == "constant":
        return -float(node.args[0].value)
    return node.value if node.op == "constant" else None


Type = Literal["number", "text", "truth", "moment", "null"]
"""The type of an expression: a moment is a date or a date with a time; a truth is true, false, or null (unknown)."""


@dataclass(frozen=True)
class RowColumn:
    """A column of another row of the same person; ``row``: a word of RowWords."""

    row: str
    column: str


@dataclass(frozen=True)
class Node:
    """One part of an expression: ``op`` on ``args``, of ``type``.

    ``op`` is an operator, a function, "null", COUNT (of a condition) or "if" (condition, then, else).  Other kinds
    have a ``value``: "column" has its name, "of row" a RowColumn, and "in" the constants.  "constant" has a float,
    text or bool: a moment in seconds since 1970, a time of day in seconds since midnight.  "as stored" occurs in no
    text; its ``value`` rounds as a column does.
    """

    op: str
    type: Type
    args: tuple[Node, ...] = ()
    value: Any = None

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the expression, of any row, without duplicates, in order of first use."""
        return tuple(dict.fromkeys(name for n in self.walk() if (name := n.column) is not None))

    @property
    def column(self) -> str | None:
        """The column of this node, of any row; None for another kind of node."""
        if self.op == "of row":
            return str(self.value.column)
        return str(self.value) if self.op == "column" else None

    @property
    def across(self) -> bool:
        """Whether it refers to more than one row of a person."""
        return any(n.op in ("of row", COUNT) for n in self.walk())
