"""The private report: an evaluation as one self-contained HTML page.

The page loads nothing: it contains the chart library, style and data, and its content security policy allows only its
own scripts.  Everything from a spec is escaped, in HTML and in the embedded JSON.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import sqrt
from typing import Any

import jinja2
from markupsafe import Markup, escape

from privsyn.data_contracts.certificate import explain_missing_relations
from privsyn.data_contracts.evaluation_results import (
    ColumnStatistics,
    Evaluation,
    Metric,
    OneWay,
    Pair,
    SizeError,
    Statistic,
)
from privsyn.evaluation.report import charts
from privsyn.evaluation.report import explanations as words
from privsyn.evaluation.report.explanations import format_number, format_percent
from privsyn.publish.overview_chart import SHOWN_BINS, Bins

SHOWN_ROWS = 15
"""Number of visible rows of a worst-first list; the rest are folded."""

NOMINAL_BINS = 20
"""Largest number of values in the chart of an unordered column; smaller values are shown as one."""

SHOWN_MARGINALS = 100
"""Largest number of target marginals in the details of the earth mover distance."""

GROUPS = {
    "marginals": "Counts of one, two and three columns",
    "queries": "Queries",
    "models": "Models trained on the synthetic rows",
    "structure": "Relations, and telling the two apart",
    "attacks": "Attacks",
}


def render(evaluation: Evaluation) -> str:
    """Return the whole page as HTML text.  PRIVATE: it contains figures of the private table without noise.

    The same evaluation gives the same text.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_part),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.format_number,
        "percent": words.format_percent,
        "association": words.format_association,
        "like_a_sample": words.compare_to_sample,
        "sentence": words.make_sentence,
        "breakable": _allow_breaks,
        "coded": _mark_code,
    }
    library, script = _read_library(), _read_part("report.js")
    return environment.get_template("page.html.j2").render(
        e=evaluation,
        words=words,
        is_beyond_noise=is_beyond_noise,
        format_statistic=format_statistic,
        verdict=words.write_verdict(evaluation),
        no_relation=_describe_no_relation(evaluation),
        headlines=[(m, build_meter(m)) for m in words.list_headlines(evaluation)],
        columns=words.list_worst_columns(evaluation),
        pairs=words.list_worst_pairs(evaluation),
        groups=group_metrics(evaluation),
        settings=evaluation.settings.model_dump(mode="json"),
        setting_words={name: field.description or "" for name, field in type(evaluation.settings).model_fields.items()},
        earth_mover=sorted(evaluation.earth_mover, key=lambda m: -m.aemc * m.weight)[:SHOWN_MARGINALS],
        shown=SHOWN_ROWS,
        data={"specs": _build_specs(evaluation), "tables": build_tables(evaluation)},
        style=Markup(_read_part("report.css")),  # noqa: S704  (our own file)
        library=Markup(library),  # noqa: S704  (the chart library as installed)
        script=Markup(script),  # noqa: S704  (our own file)
        policy=_build_content_policy(library, script),
    )


def _describe_no_relation(evaluation: Evaluation) -> str:
    """Return a warning if no two columns were counted together; empty otherwise, or if no pair is known."""
    if not evaluation.pairs or any(pair.measured for pair in evaluation.pairs):
        return ""
    return explain_missing_relations(prior=evaluation.prior, trends=evaluation.trends)


def build_meter(metric: Metric) -> dict[str, Any]:
    """Return a metric's position on a line from 0 to 100: its value, its references, and the line's two ends.

    A metric without an upper bound ends at the largest value shown.
    """
    values = [v for v in (metric.value, *metric.references.values()) if v is not None]
    high = metric.high if metric.high is not None else max([*values, metric.low])
    width = (high - metric.low) or 1.0

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - metric.low) / width)), 2)

    return {
        "low": metric.low,
        "high": high,
        "value": None if metric.value is None else place(metric.value),
        "references": {name: place(value) for name, value in metric.references.items()},
    }


def group_metrics(evaluation: Evaluation) -> list[tuple[str, list[tuple[Metric, list[Metric | None]]]]]:
    """Return (group title, metrics); each metric has one entry per table (None: the table lacks the metric)."""
    by_table = [{m.name: m for m in table.metrics} for table in evaluation.scores]
    names = {name: metric for metrics in reversed(by_table) for name, metric in metrics.items()}
    ordered = {**{m.name: m for m in evaluation.release.metrics}, **names}
    return [
        (title, rows)
        for group, title in GROUPS.items()
        if (rows := [(m, [t.get(m.name) for t in by_table]) for m in ordered.values() if m.group == group])
    ]


def build_tables(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    """Return name -> table for the charts: field names, and one list per row."""
    position = {o.column: i for i, o in enumerate(evaluation.one_ways)}
    tables = {f"column-{position[o.column]}": build_one_way_table(o) for o in evaluation.one_ways}
    tables["pairs"] = _build_table(_PAIR_FIELDS, [_build_pair_row(p) for p in words.list_worst_pairs(evaluation)])
    tables["diagonal"] = _build_table(_PAIR_FIELDS, [_build_diagonal_row(o) for o in evaluation.one_ways])
    tables["sizes"] = _build_table(
        ("ways", "size", "middle", "marginals", "mean_l1"),
        [
            [s.ways, f"{s.cells_from:,} – {s.cells_to:,}", _compute_middle(s), s.marginals, _shorten(s.mean_l1)]
            for s in sorted(evaluation.sizes, key=lambda s: (s.ways, s.cells_from))
        ],
    )
    tables["stages"] = _build_table(
        ("stage", "over", "marginals", "mean_l1"),
        [[_STAGES[s.stage], _OVER["not" in s.stage], s.marginals, _shorten(s.mean_l1)] for s in evaluation.stages],
    )
    return tables


def build_one_way_table(one_way: OneWay) -> dict[str, Any]:
    """Return one column's rows: bin, shares (0..1) and the noise's sd (None: unknown), merged to fit a chart."""
    bins = Bins(one_way.labels, one_way.real, one_way.synthetic, one_way.noise_sd)
    bins = bins.merged(SHOWN_BINS) if one_way.ordered else bins.largest(NOMINAL_BINS)
    sds: Sequence[float | None] = bins.noise_sd if bins.noise_sd is not None else [None] * len(bins.labels)
    rows = zip(_make_distinct(bins.labels), bins.first, bins.second, sds, strict=True)
    return _build_table(
        ("bin", "real", "synthetic", "sd"),
        [[label, _shorten(real), _shorten(synthetic), _shorten(sd)] for label, real, synthetic, sd in rows],
    )


_PAIR_FIELDS = ("a", "b", "cells", "l1", "measured", "consistent", "cause", "real", "synthetic", "difference")

_STAGES = {
    "measured": "measured: noise",
    "consistent": "made consistent",
    "synthetic": "synthesized",
    "not selected": "not selected: synthesized",
    "not selected, if independent": "… if columns were independent",
}
_OVER = {False: "measured marginals", True: "pairs not selected"}


def _build_pair_row(p: Pair) -> list[Any]:
    real, synthetic = p.association_real, p.association_synthetic
    difference = None if real is None or synthetic is None else _shorten(synthetic - real)
    measured = "yes" if p.measured else "no"
    consistent = _shorten(p.consistent_l1)
    return [
        p.a,
        p.b,
        p.cells,
        _shorten(p.l1),
        measured,
        consistent,
        p.cause,
        _shorten(real),
        _shorten(synthetic),
        difference,
    ]


def _build_diagonal_row(o: OneWay) -> list[Any]:
    return [o.column, o.column, len(o.labels), _shorten(o.l1), "", None, words.explain_column(o), None, None, None]


def _compute_middle(size: SizeError) -> float:
    """Return the geometric mean of the smallest and the largest number of cells, at least 1."""
    return round(max(1.0, sqrt(max(1, size.cells_from) * size.cells_to)), 1)


def _build_table(fields: Sequence[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"fields": list(fields), "rows": rows}


def _shorten(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _make_distinct(labels: Sequence[str]) -> list[str]:
    """Return distinct labels, with numbers on repeats, since a chart would merge two bins with one label."""
    seen: dict[str, int] = {}
    distinct = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        distinct.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return distinct


def _build_specs(evaluation: Evaluation) -> dict[str, Any]:
    most = max([*(p.l1 for p in evaluation.pairs), *(o.l1 for o in evaluation.one_ways)], default=0.0)
    return charts.build_chart_specs(evaluation.columns, most)


def _allow_breaks(name: str) -> Markup:
    """Return the name escaped, with break points for a narrow column."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _mark_code(text: str) -> Markup:
    """Return the text escaped, with text between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts))


@cache
def _read_library() -> str:
    """Return the chart library (Vega, Vega-Lite, Vega-Embed) as one script that can stand in a page."""
    import vl_convert

    return (
        str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
        .replace("</script", "<\\/script")
        .replace("<!--", "<\\!--")
    )


def _read_part(name: str) -> str:
    return (files("privsyn.evaluation.report") / "templates" / name).read_text(encoding="utf-8")


def _build_content_policy(*scripts: str) -> str:
    """Return a content security policy that allows only these scripts, inline styles and data images."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"


_EPOCH = dt.datetime(1970, 1, 1)
_DAY = 86_400


def format_statistic(value: float | None, statistic: Statistic, column: ColumnStatistics) -> str:
    """Return one figure of ``statistic`` in its column's form; a dash for None."""
    if value is None:
        return format_number(None)
    if statistic.kind == "share":
        return format_percent(value)
    if column.form == "number":
        return format_number(value)
    if statistic.kind == "width":
        return _format_duration(value)
    if column.form == "time":
        minutes = round(value / 60)
        return f"{minutes // 60:02}:{minutes % 60:02}"
    try:
        moment = _EPOCH + dt.timedelta(seconds=value)
    except OverflowError:
        return format_number(value)
    return moment.date().isoformat() if column.form == "date" else moment.isoformat(" ", "minutes")


def is_beyond_noise(statistic: Statistic) -> bool:
    """Return whether the real figure lies outside the band of the noise; False if the band is unknown."""
    if statistic.low is None or statistic.high is None:
        return False
    return not statistic.low <= statistic.real <= statistic.high


def _format_duration(seconds: float) -> str:
    for unit, length in (("days", _DAY), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{format_number(seconds / length)} {unit}"
    return f"{format_number(seconds)} seconds"
