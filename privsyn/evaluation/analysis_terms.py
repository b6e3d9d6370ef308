"""The parts of an analysis, parsed, and their values in a table.

Values are those that the tables hold: numbers as stored, not cut to the spec's bounds; all others as the release reads
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.evaluation_spec import Analysis
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.rule_language import Node, Type, parse_condition, parse_expression
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.numbers import SteppedCodec
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules.intervals import Interval, read_rows

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NULL = "(null)"

_LOG = re.compile(r"\s*log\s*\((.*)\)\s*", re.DOTALL)
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""


@dataclass(frozen=True)
class Term:
    """A number, a condition or a column of values; ``log``: the natural logarithm of the number."""

    text: str
    node: Node
    log: bool = False

    @property
    def of_values(self) -> bool:
        """Whether it is a column of text values."""
        return self.node.type == "text"


@dataclass(frozen=True)
class ParsedAnalysis:
    """An analysis, parsed: ``target`` of a regression, a quantile or a share; ``terms`` of a regression, or groups."""

    target: Term
    terms: tuple[Term, ...]
    where: Node | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that it names, once."""
        nodes = [self.target.node, *(t.node for t in self.terms), *([] if self.where is None else [self.where])]
        return tuple(dict.fromkeys(c for node in nodes for c in node.columns))


def parse_analysis(analysis: Analysis, types: Mapping[str, Type]) -> ParsedAnalysis:
    """Return the parts of ``analysis``; ``types``: of every released column.

    Raises FieldError whose place is the field of the analysis.
    """
    field = "where"
    try:
        where = parse_condition(_format_line(analysis.where), types) if analysis.where.strip() else None
        if analysis.kind == "regression":
            field = "formula"
            return _parse_formula(analysis.formula, types, where)
        field = "column" if analysis.kind == "quantile" else "of"
        target = _parse_number(analysis.column, types) if field == "column" else _parse_condition(analysis.of, types)
        field = "by"
        return ParsedAnalysis(target, tuple(_parse_group(text, types) for text in analysis.by), where)
    except FieldError as error:
        raise FieldError(error.problem, error.cure, (field,)) from None


def _parse_formula(text: str, types: Mapping[str, Type], where: Node | None) -> ParsedAnalysis:
    sides = _split(_format_line(text), "~")
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise FieldError(f"`{text}` is not of the form y ~ a + b", "Write, say, `log(wage) ~ age + sex`")
    left = _parse_term(sides[0], types)
    if left.of_values:
        cure = f"Write a condition, such as `{sides[0].strip()} == 'yes' ~ ...`"
        raise FieldError(f"`{left.text}` is neither a number nor a condition", cure)
    terms = tuple(_parse_term(part, types) for part in _split(sides[1], "+"))
    if len({t.text for t in terms}) < len(terms):
        raise FieldError(f"`{text}` names one term twice", "Name each once")
    return ParsedAnalysis(left, terms, where)


def _split(text: str, mark: str) -> list[str]:
    """Return the text cut at ``mark``, but not inside quotation marks, backticks or brackets."""
    parts, depth = [""], 0
    for piece in re.findall(rf"{_QUOTED}|.", text, re.DOTALL):
        depth += (piece in "([") - (piece in ")]")
        if piece == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _parse_term(text: str, types: Mapping[str, Type]) -> Term:
    found = _LOG.fullmatch(text)
    if found is not None and "log" not in types:
        return Term(text.strip(), _parse_number(found[1], types).node, True)
    node = parse_expression(text.strip(), types)
    if node.type == "moment" or (node.type == "text" and node.op != "column") or not node.columns:
        raise FieldError(
            f"{_quote_names(text)} is no number, condition or column of values",
            "Name a column, or compute a number, such as days from `day - '2020-01-01'`",
        )
    return Term(_parse_name(text, node), node)


def _parse_number(text: str, types: Mapping[str, Type]) -> Term:
    node = parse_expression(_format_line(text), types)
    if node.type != "number" or not node.columns:
        raise FieldError(f"`{text.strip()}` is not a number of a row", "Name a column of numbers")
    return Term(_parse_name(text, node), node)


def _parse_condition(text: str, types: Mapping[str, Type]) -> Term:
    node = parse_condition(_format_line(text), types)
    if not node.columns:
        raise FieldError(f"`{text.strip()}` names no column", "Compare a column, as in `age < 15`")
    return Term(_parse_name(text, node), node)


def _parse_group(text: str, types: Mapping[str, Type]) -> Term:
    return _parse_term(f"`{text}`" if text in types else _format_line(text), types)


def _quote_names(text: str) -> str:
    return f"`{text.strip().strip('`')}`"


def _parse_name(text: str, node: Node) -> str:
    return str(node.value) if node.op == "column" else text.strip()


def _format_line(text: str) -> str:
    return " ".join(text.splitlines()).strip()


@dataclass(frozen=True)
class AnalysisRows:
    """Some columns of a table, by name."""

    values: Mapping[str, pa.Array]
    number: int

    @classmethod
    def read(cls, batches: Iterable[pa.RecordBatch], encoding: EncodingPlan, columns: Iterable[str]) -> AnalysisRows:
        """``columns`` of the table; ``encoding`` has a codec for each."""
        codecs = {c.attribute: c for c in encoding.codecs}
        parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
        number = 0
        for batch in batches:
            number += batch.num_rows
            for name, found in parts.items():
                codec = codecs[name]
                if isinstance(codec, SteppedCodec):
                    found.append(pa.array(codec.stored_numbers(batch.column(name))[0]))
                else:
                    found.append(codec.read({source: batch.column(source) for source in codec.sources})[name])
        return cls({name: pa.chunked_array(p).combine_chunks() for name, p in parts.items() if p}, number)

    def chosen(self, where: Node | None) -> AnalysisRows:
        """Return the rows for which the condition is true."""
        if where is None or not self.number:
            return self
        mask = self._truth(where)[0]
        kept = {name: column.filter(pa.array(mask)) for name, column in self.values.items()}
        return AnalysisRows(kept, int(mask.sum()))

    def select(self, mask: Bools) -> AnalysisRows:
        """Return the rows of a mask."""
        return AnalysisRows(
            {name: column.filter(pa.array(mask)) for name, column in self.values.items()}, int(mask.sum())
        )

    def numbers(self, term: Term) -> Floats:
        """Return the term's values, shape (rows,): a condition as 0 and 1, NaN for null, unknown, or no logarithm."""
        if not self.number:
            return np.zeros(0)
        if term.node.type == "truth":
            true, unknown = self._truth(term.node)
            return np.where(unknown, np.nan, true.astype(np.float64))
        found = self._span(term.node)
        values = np.where(found.null | ~found.present, np.nan, found.low)
        if term.log:
            values = np.log(np.where(values > 0, values, np.nan))
        return np.where(np.isfinite(values), np.broadcast_to(values, self.number), np.nan)

    def labels(self, term: Term) -> NDArray[np.object_]:
        """Return the term's values as text, shape (rows,)."""
        if not self.number:
            return np.zeros(0, dtype=object)
        if term.of_values:
            column = self.values[term.node.value]
            column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            return np.asarray(column.fill_null(NULL).to_numpy(zero_copy_only=False), dtype=object)
        different, place = np.unique(self.numbers(term), return_inverse=True)
        words = {0.0: "false", 1.0: "true"} if term.node.type == "truth" else {}
        names = [NULL if np.isnan(v) else words.get(float(v), f"{v:.12g}") for v in different]
        return np.array(names, dtype=object)[place]

    def _vocabulary(self, node: Node) -> dict[str, int]:
        texts = (n.value if n.op == "in" else (n.value,) for n in node.walk() if n.op in ("in", "constant"))
        known = dict.fromkeys(t for each in texts for t in each if isinstance(t, str))
        for name in node.columns:
            column = self.values[name]
            if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
                known |= dict.fromkeys(t for t in column.unique().to_pylist() if t is not None)
        return {text: number for number, text in enumerate(known)}

    def _truth(self, node: Node) -> tuple[Bools, Bools]:
        vocabulary = self._vocabulary(node)
        found = evaluate.evaluate_condition(node, lambda name: read_rows(self.values[name], vocabulary), vocabulary)
        return np.broadcast_to(found.true, self.number), np.broadcast_to(found.unknown, self.number)

    def _span(self, node: Node) -> Interval:
        vocabulary = self._vocabulary(node)
        return evaluate.evaluate_expression(node, lambda name: read_rows(self.values[name], vocabulary), vocabulary)
