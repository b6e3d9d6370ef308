"""Analyses of both tables: regressions, quantiles and shares, each figure beside the other table's.  Private.

Standard errors take the real rows for a sample: they say how much a figure of the private table itself is worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite, sqrt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.evaluation_results import AnalysisFigure, AnalysisResult
from privsyn.data_contracts.evaluation_spec import Analysis
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import infer_type
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.evaluation.analysis_terms import NULL, AnalysisRows, ParsedAnalysis, Term, parse_analysis
from privsyn.specs.places import format_place
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.metrics.sample_estimates import compute_quantile, compute_share, fit_regression

Floats = NDArray[np.float64]

CLOSE, ERRORS = 0.15, 2.0
"""A synthetic figure is close within this part of the real one, or within that many standard errors."""

LEAST_ROWS = 30
"""Groups, and values in a regression, of fewer real rows are left out."""

MOST_COLUMNS = 500
"""Coefficients of one regression at most."""

Found = dict[str, tuple[float, float]]
"""Name -> figure and its standard error; NaN is not known."""


def check_analyses(analyses: Sequence[Analysis], spec: ReleaseSpec) -> tuple[ParsedAnalysis, ...]:
    """Return the analyses, parsed; RequestError that names the field where one does not fit the columns.

    Needs no rows.
    """
    types = {name: infer_type(column) for name, column in spec.released_columns.items()}
    found = []
    for i, analysis in enumerate(analyses):
        try:
            found.append(_require_measured(parse_analysis(analysis, types), spec))
        except FieldError as error:
            place = format_place(("analyses", i, *error.place))
            raise RequestError(error.problem, error.cure or "Correct it in the settings", place) from None
    return tuple(found)


def _require_measured(parts: ParsedAnalysis, spec: ReleaseSpec) -> ParsedAnalysis:
    """Return the parts, whose columns were all measured.  Raises FieldError for one that was not."""
    name = next((c for c in parts.columns if c in spec.unmeasured_columns), None)
    if name is not None:
        raise FieldError(f"the column {name!r} {NOT_MEASURED}", "Name one that was measured")
    return parts


def run_analyses(
    analyses: Sequence[Analysis],
    spec: ReleaseSpec,
    encoding: EncodingPlan,
    real: Iterable[pa.RecordBatch],
    synthetic: Iterable[pa.RecordBatch],
) -> tuple[AnalysisResult, ...]:
    """Return every analysis of the two tables; ``encoding``: a codec a column; batches have the spec's columns."""
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
    analysis: Analysis, rows: tuple[int, int], real: Found, synthetic: Found, note: str = ""
) -> AnalysisResult:
    unknown = (np.nan, np.nan)
    figures = tuple(_build_figure(name, *found, synthetic.get(name, unknown)[0]) for name, found in real.items())
    return AnalysisResult(
        title=analysis.title,
        kind=analysis.kind,
        rows_real=rows[0],
        rows_synthetic=rows[1],
        figures=figures,
        note=note,
    )


def _build_figure(name: str, real: float, error: float, made: float) -> AnalysisFigure:
    apart = (made - real) / error if error > 0 else np.nan
    close = abs(made - real) <= max(CLOSE * abs(real), ERRORS * error if isfinite(error) else 0.0)
    return AnalysisFigure(
        name=name,
        real=_keep_known(real),
        std_error=_keep_known(error),
        synthetic=_keep_known(made),
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
        if term.of_values:
            labels = real.labels(term)[np.isfinite(real.numbers(parts.target))]
            counts = Counter(label for label in labels if label != NULL)
            often = [label for label, rows in counts.most_common() if rows >= LEAST_ROWS]
            few += len(counts) - len(often)
            levels[term.text] = often
            words += [f"{term.text} {often[0]}"] if often else []
    note = f"Compared with {', '.join(words)}" if words else ""
    if few:
        note += f"{'; ' if note else ''}rows of {few} values that fewer than {LEAST_ROWS} real rows have are left out"
    if 1 + sum(max(1, len(levels.get(t.text, ())) - 1) for t in parts.terms) > MOST_COLUMNS:
        return _build_result(analysis, (0, 0), {}, {}, f"It has more than {MOST_COLUMNS} coefficients")
    one, other = (_fit_regression(table, parts, levels) for table in (real, synthetic))
    return _build_result(analysis, (one[1], other[1]), one[0], other[0], note)


def _fit_regression(table: AnalysisRows, parts: ParsedAnalysis, levels: dict[str, list[str]]) -> tuple[Found, int]:
    """Return the coefficients, and how many rows they are from; those of columns that do not vary are not known."""
    y = table.numbers(parts.target)
    whole = np.isfinite(y)
    for term in parts.terms:
        whole &= np.isin(table.labels(term), levels[term.text]) if term.of_values else np.isfinite(table.numbers(term))
    kept, y = table.select(whole), y[whole]
    two_values = parts.target.node.type == "truth"
    names, columns = ["(Intercept)"], [np.ones(kept.number)]
    for term in parts.terms:
        if term.of_values:
            labels = kept.labels(term)
            for label in levels[term.text][1:]:
                names.append(f"{term.text}[{label}]")
                columns.append((labels == label).astype(np.float64))
        else:
            names.append(term.text)
            columns.append(kept.numbers(term))
    varies = [i == 0 or bool(kept.number and np.ptp(c) > 0) for i, c in enumerate(columns)]
    found = dict.fromkeys(names, (np.nan, np.nan))
    if kept.number > sum(varies) and (not two_values or np.ptp(y) > 0):
        x = np.stack([c for c, there in zip(columns, varies, strict=True) if there], axis=1)
        fit = fit_regression(x, y, two_values=two_values)
        there = [name for name, is_there in zip(names, varies, strict=True) if is_there]
        found |= dict(zip(there, zip(fit.coefficients.tolist(), fit.errors.tolist(), strict=True), strict=True))
        if not two_values:
            found["R squared"] = (fit.r_squared, np.nan)
    return found, kept.number


def _list_groups(
    analysis: Analysis, parts: ParsedAnalysis, real: AnalysisRows, synthetic: AnalysisRows
) -> AnalysisResult:
    tables = [table.select(np.isfinite(table.numbers(parts.target))) for table in (real, synthetic)]
    values = [(table.numbers(parts.target), _label_groups(table, parts.terms)) for table in tables]
    counts = Counter(values[0][1].tolist())
    names = sorted(group for group, rows in counts.items() if rows >= LEAST_ROWS)
    one, other = (_compare_groups(analysis, names, *found) for found in values)
    if analysis.kind == "share" and len(names) > 1:
        base = max(names, key=lambda name: counts[name])
        one, other = (found | _compare_figures(found, names, base) for found in (one, other))
    few = len(counts) - len(names)
    note = f"{few} groups of fewer than {LEAST_ROWS} real rows are left out" if few else ""
    return _build_result(analysis, (tables[0].number, tables[1].number), one, other, note)


def _label_groups(table: AnalysisRows, terms: Sequence[Term]) -> NDArray[np.object_]:
    """Return the group of every row, as text."""
    found = np.full(table.number, "" if terms else "all", dtype=object)
    for i, term in enumerate(terms):
        found = found + (", " if i else "") + f"{term.text}=" + table.labels(term)
    return found


def _compare_groups(analysis: Analysis, names: Sequence[str], numbers: Floats, groups: NDArray[np.object_]) -> Found:
    found: Found = {}
    for name in names:
        mine = numbers[groups == name]
        if not len(mine):
            found[name] = (np.nan, np.nan)
        elif analysis.kind == "quantile":
            found[name] = compute_quantile(mine, analysis.q)
        else:
            found[name] = compute_share(int(mine.sum()), len(mine))
    return found


def _compare_figures(found: Found, names: Sequence[str], base: str) -> Found:
    """Return every group's share less that of the largest group."""
    return {
        f"{name} minus {base}": (found[name][0] - found[base][0], sqrt(found[name][1] ** 2 + found[base][1] ** 2))
        for name in names
        if name != base
    }
