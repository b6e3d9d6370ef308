"""Analyses of the real and the synthetic table: regressions, quantiles and shares, side by side.  Private.

Standard errors treat the real rows as a sample, so they show how precise a figure of the private table is.  Numbers are
used as stored, not clamped to the spec's bounds; other values as the release reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.evaluation import Analysis, AnalysisFigure, AnalysisResult
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.question_language import split_formula
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import Node, Type, parse_condition, parse_expression
from privsyn.data_contracts.rules import infer_type
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.specs.messages import format_place
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.numbers import SteppedCodec
from privsyn.tasks.metrics.sample_estimates import compute_quantile, compute_share, fit_regression
from privsyn.tasks.rules.intervals import evaluate_condition, evaluate_expression, read_rows

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NULL = "(null)"

_LOG = re.compile(r"\s*log\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Term:
    """A number, a condition or a column of values; ``log``: the natural logarithm of the number."""

    text: str
    node: Node
    log: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the term is a column of text values."""
        return self.node.type == "text"


@dataclass(frozen=True)
class ParsedAnalysis:
    """A parsed analysis; ``target``: of a regression, quantile or share; ``terms``: of a regression, or its groups."""

    target: Term
    terms: tuple[Term, ...]
    where: Node | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that the analysis names, once."""
        nodes = [self.target.node, *(t.node for t in self.terms), *([] if self.where is None else [self.where])]
        return tuple(dict.fromkeys(c for node in nodes for c in node.columns))


def parse_analysis(analysis: Analysis, types: Mapping[str, Type]) -> ParsedAnalysis:
    """Return the parts of ``analysis``; ``types``: type of every released column.

    Raises FieldError with the analysis's field as its place.
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
        groups = (f"`{text}`" if text in types else _format_line(text) for text in analysis.by)
        return ParsedAnalysis(target, tuple(_parse_term(text, types) for text in groups), where)
    except FieldError as error:
        raise FieldError(error.problem, error.cure, (field,)) from None


def _parse_formula(text: str, types: Mapping[str, Type], where: Node | None) -> ParsedAnalysis:
    left, right = split_formula(_format_line(text))
    target, terms = _parse_term(left, types), tuple(_parse_term(term, types) for term in right)
    if target.is_text:
        cure = f"Write a condition, such as `{left} == 'yes' ~ ...`"
        raise FieldError(f"`{target.text}` is neither a number nor a condition", cure)
    if len({t.text for t in terms}) < len(terms):
        raise FieldError(f"`{text}` names one term twice", "Name each once")
    return ParsedAnalysis(target, terms, where)


def _parse_term(text: str, types: Mapping[str, Type]) -> Term:
    match = _LOG.fullmatch(text)
    if match is not None and "log" not in types:
        return Term(text.strip(), _parse_number(match[1], types).node, True)
    node = parse_expression(text.strip(), types)
    if node.type == "moment" or (node.type == "text" and node.op != "column") or not node.columns:
        raise FieldError(
            f"`{text.strip().strip('`')}` is not a number, condition or column of values",
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


def _parse_name(text: str, node: Node) -> str:
    return str(node.value) if node.op == "column" else text.strip()


def _format_line(text: str) -> str:
    return " ".join(text.splitlines()).strip()


@dataclass(frozen=True)
class AnalysisRows:
    """Columns of a table, by name."""

    values: Mapping[str, pa.Array]
    number: int

    @classmethod
    def read(cls, batches: Iterable[pa.RecordBatch], encoding: EncodingPlan, columns: Iterable[str]) -> AnalysisRows:
        """Return ``columns`` of the table; ``encoding`` has a codec for each of them."""
        codecs = {c.attribute: c for c in encoding.codecs}
        parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
        number = 0
        for batch in batches:
            number += batch.num_rows
            for name, arrays in parts.items():
                codec = codecs[name]
                if isinstance(codec, SteppedCodec):
                    arrays.append(pa.array(codec.stored_numbers(batch.column(name))[0]))
                else:
                    arrays.append(codec.read({source: batch.column(source) for source in codec.sources})[name])
        return cls({name: pa.chunked_array(p).combine_chunks() for name, p in parts.items() if p}, number)

    def chosen(self, where: Node | None) -> AnalysisRows:
        """Return the rows for which the condition is true."""
        if where is None or not self.number:
            return self
        return self.select(self._evaluate_truth(where)[0])

    def select(self, mask: Bools) -> AnalysisRows:
        """Return the rows selected by ``mask``."""
        values = {name: column.filter(pa.array(mask)) for name, column in self.values.items()}
        return AnalysisRows(values, int(mask.sum()))

    def numbers(self, term: Term) -> Floats:
        """Return the term's values, shape (rows,): conditions as 0 and 1; NaN for null, unknown, or no logarithm."""
        if not self.number:
            return np.zeros(0)
        if term.node.type == "truth":
            true, unknown = self._evaluate_truth(term.node)
            return np.where(unknown, np.nan, true.astype(np.float64))
        vocabulary = self._list_vocabulary(term.node)
        span = evaluate_expression(term.node, lambda name: read_rows(self.values[name], vocabulary), vocabulary)
        values = np.where(span.null | ~span.present, np.nan, span.low)
        if term.log:
            values = np.log(np.where(values > 0, values, np.nan))
        return np.where(np.isfinite(values), np.broadcast_to(values, self.number), np.nan)

    def labels(self, term: Term) -> NDArray[np.object_]:
        """Return the term's values as text, shape (rows,)."""
        if not self.number:
            return np.zeros(0, dtype=object)
        if term.is_text:
            column = self.values[term.node.value]
            column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            return np.asarray(column.fill_null(NULL).to_numpy(zero_copy_only=False), dtype=object)
        different, place = np.unique(self.numbers(term), return_inverse=True)
        words = {0.0: "false", 1.0: "true"} if term.node.type == "truth" else {}
        names = [NULL if np.isnan(v) else words.get(float(v), f"{v:.12g}") for v in different]
        return np.array(names, dtype=object)[place]

    def _list_vocabulary(self, node: Node) -> dict[str, int]:
        texts = (n.value if n.op == "in" else (n.value,) for n in node.walk() if n.op in ("in", "constant"))
        vocabulary = dict.fromkeys(t for each in texts for t in each if isinstance(t, str))
        for name in node.columns:
            column = self.values[name]
            if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
                vocabulary |= dict.fromkeys(t for t in column.unique().to_pylist() if t is not None)
        return {text: number for number, text in enumerate(vocabulary)}

    def _evaluate_truth(self, node: Node) -> tuple[Bools, Bools]:
        vocabulary = self._list_vocabulary(node)
        truth = evaluate_condition(node, lambda name: read_rows(self.values[name], vocabulary), vocabulary)
        return np.broadcast_to(truth.true, self.number), np.broadcast_to(truth.unknown, self.number)


CLOSE, ERRORS = 0.15, 2.0
"""A synthetic figure is close within this relative distance of the real one, or this many standard errors."""

LEAST_ROWS = 30
"""Smallest number of real rows of a group, or of a value in a regression."""

MOST_COLUMNS = 500
"""Largest number of coefficients of one regression."""

FiguresWithErrors = dict[str, tuple[float, float]]
"""Name -> figure and its standard error; NaN if unknown."""


def check_analyses(analyses: Sequence[Analysis], spec: ReleaseSpec) -> tuple[ParsedAnalysis, ...]:
    """Return the parsed analyses, without reading rows.

    Raises RequestError that names the field of an analysis that does not fit the columns.
    """
    types = {name: infer_type(column) for name, column in spec.released_columns.items()}
    parsed = []
    for i, analysis in enumerate(analyses):
        try:
            parts = parse_analysis(analysis, types)
            name = next((c for c in parts.columns if c in spec.unmeasured_columns), None)
            if name is not None:
                raise FieldError(f"the column {name!r} {NOT_MEASURED}", "Name one that was measured")
            parsed.append(parts)
        except FieldError as error:
            place = format_place(("analyses", i, *error.place))
            raise RequestError(error.problem, error.cure or "Correct it in the settings", place) from None
    return tuple(parsed)


def run_analyses(
    analyses: Sequence[Analysis],
    spec: ReleaseSpec,
    encoding: EncodingPlan,
    real: Iterable[pa.RecordBatch],
    synthetic: Iterable[pa.RecordBatch],
) -> tuple[AnalysisResult, ...]:
    """Return every analysis of the two tables; ``encoding``: one codec per column; batches have the spec's columns."""
    if not analyses:
        return ()
    parts = check_analyses(analyses, spec)
    columns = list(dict.fromkeys(c for part in parts for c in part.columns))
    tables = [AnalysisRows.read(batches, encoding, columns) for batches in (real, synthetic)]
    return tuple(analyse(analysis, part, *tables) for analysis, part in zip(analyses, parts, strict=True))


def analyse(analysis: Analysis, parts: ParsedAnalysis, real: AnalysisRows, synthetic: AnalysisRows) -> AnalysisResult:
    """Return one analysis of the two tables."""
    real, synthetic = real.chosen(parts.where), synthetic.chosen(parts.where)
    if not (real.number and synthetic.number):
        rows = real.number, synthetic.number
        return _build_result(analysis, rows, {}, {}, "No row of one of the tables takes part")
    compute = _fit_regressions if analysis.kind == "regression" else _list_groups
    return compute(analysis, parts, real, synthetic)


def _build_result(
    analysis: Analysis, rows: tuple[int, int], real: FiguresWithErrors, synthetic: FiguresWithErrors, note: str = ""
) -> AnalysisResult:
    unknown = (np.nan, np.nan)
    figures = tuple(_build_figure(name, *of_real, synthetic.get(name, unknown)[0]) for name, of_real in real.items())
    return AnalysisResult(
        title=analysis.title, kind=analysis.kind, rows_real=rows[0], rows_synthetic=rows[1], figures=figures, note=note
    )


def _build_figure(name: str, real: float, error: float, synthetic: float) -> AnalysisFigure:
    apart = (synthetic - real) / error if error > 0 else np.nan
    close = abs(synthetic - real) <= max(CLOSE * abs(real), ERRORS * error if isfinite(error) else 0.0)
    return AnalysisFigure(
        name=name,
        real=_keep_known(real),
        std_error=_keep_known(error),
        synthetic=_keep_known(synthetic),
        apart=_keep_known(apart),
        close=bool(close),
    )


def _keep_known(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def _fit_regressions(
    analysis: Analysis, parts: ParsedAnalysis, real: AnalysisRows, synthetic: AnalysisRows
) -> AnalysisResult:
    levels: dict[str, list[str]] = {}
    words, few = [], 0
    for term in parts.terms:
        if term.is_text:
            labels = real.labels(term)[np.isfinite(real.numbers(parts.target))]
            counts = Counter(label for label in labels if label != NULL)
            often = [label for label, rows in counts.most_common() if rows >= LEAST_ROWS]
            few += len(counts) - len(often)
            levels[term.text] = often
            words += [f"{term.text} {often[0]}"] if often else []
    note = f"Compared with {', '.join(words)}" if words else ""
    if few:
        note += f"{'; ' if note else ''}rows of {few} values with fewer than {LEAST_ROWS} real rows are left out"
    if 1 + sum(max(1, len(levels.get(t.text, ())) - 1) for t in parts.terms) > MOST_COLUMNS:
        return _build_result(analysis, (0, 0), {}, {}, f"It has more than {MOST_COLUMNS} coefficients")
    of_real, of_synthetic = (_fit_regression(table, parts, levels) for table in (real, synthetic))
    return _build_result(analysis, (of_real[1], of_synthetic[1]), of_real[0], of_synthetic[0], note)


def _fit_regression(
    table: AnalysisRows, parts: ParsedAnalysis, levels: dict[str, list[str]]
) -> tuple[FiguresWithErrors, int]:
    """Return the coefficients (NaN for columns that do not vary), and the number of rows used."""
    y = table.numbers(parts.target)
    has_values = np.isfinite(y)
    for term in parts.terms:
        has_values &= (
            np.isin(table.labels(term), levels[term.text]) if term.is_text else np.isfinite(table.numbers(term))
        )
    complete, y = table.select(has_values), y[has_values]
    two_values = parts.target.node.type == "truth"
    names, columns = ["(Intercept)"], [np.ones(complete.number)]
    for term in parts.terms:
        if term.is_text:
            labels = complete.labels(term)
            for label in levels[term.text][1:]:
                names.append(f"{term.text}[{label}]")
                columns.append((labels == label).astype(np.float64))
        else:
            names.append(term.text)
            columns.append(complete.numbers(term))
    varies = [i == 0 or bool(complete.number and np.ptp(c) > 0) for i, c in enumerate(columns)]
    coefficients = dict.fromkeys(names, (np.nan, np.nan))
    if complete.number > sum(varies) and (not two_values or np.ptp(y) > 0):
        x = np.stack([c for c, varying in zip(columns, varies, strict=True) if varying], axis=1)
        fit = fit_regression(x, y, two_values=two_values)
        varying = [name for name, is_there in zip(names, varies, strict=True) if is_there]
        both = zip(fit.coefficients.tolist(), fit.errors.tolist(), strict=True)
        coefficients |= dict(zip(varying, both, strict=True))
        if not two_values:
            coefficients["R squared"] = (fit.r_squared, np.nan)
    return coefficients, complete.number


def _list_groups(
    analysis: Analysis, parts: ParsedAnalysis, real: AnalysisRows, synthetic: AnalysisRows
) -> AnalysisResult:
    tables = [table.select(np.isfinite(table.numbers(parts.target))) for table in (real, synthetic)]
    values = [(table.numbers(parts.target), _label_groups(table, parts.terms)) for table in tables]
    counts = Counter(values[0][1].tolist())
    names = sorted(group for group, rows in counts.items() if rows >= LEAST_ROWS)
    of_real, of_synthetic = (_compare_groups(analysis, names, *table_values) for table_values in values)
    if analysis.kind == "share" and len(names) > 1:
        base = max(names, key=lambda name: counts[name])
        of_real, of_synthetic = (shares | _compare_figures(shares, names, base) for shares in (of_real, of_synthetic))
    few = len(counts) - len(names)
    note = f"{few} groups with fewer than {LEAST_ROWS} real rows are left out" if few else ""
    return _build_result(analysis, (tables[0].number, tables[1].number), of_real, of_synthetic, note)


def _label_groups(table: AnalysisRows, terms: Sequence[Term]) -> NDArray[np.object_]:
    labels = np.full(table.number, "" if terms else "all", dtype=object)
    for i, term in enumerate(terms):
        labels = labels + (", " if i else "") + f"{term.text}=" + table.labels(term)
    return labels


def _compare_groups(
    analysis: Analysis, names: Sequence[str], numbers: Floats, groups: NDArray[np.object_]
) -> FiguresWithErrors:
    estimates: FiguresWithErrors = {}
    for name in names:
        group_numbers = numbers[groups == name]
        if not len(group_numbers):
            estimates[name] = (np.nan, np.nan)
        elif analysis.kind == "quantile":
            estimates[name] = compute_quantile(group_numbers, analysis.q)
        else:
            estimates[name] = compute_share(int(group_numbers.sum()), len(group_numbers))
    return estimates


def _compare_figures(shares: FiguresWithErrors, names: Sequence[str], base: str) -> FiguresWithErrors:
    """Return every group's share minus the largest group's share."""
    return {
        f"{name} minus {base}": (shares[name][0] - shares[base][0], sqrt(shares[name][1] ** 2 + shares[base][1] ** 2))
        for name in names
        if name != base
    }
