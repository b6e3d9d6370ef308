"""The private report: an evaluation as one self-contained HTML page, with its figures explained in words.

The page loads nothing: it contains the chart library, style and data, and its content security policy allows only its
own scripts.  Everything from a spec is escaped, in HTML and in the embedded JSON.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import sqrt
from typing import Any

import jinja2
from markupsafe import Markup, escape

from privsyn.data_contracts.certificate import explain_missing_relations
from privsyn.data_contracts.evaluation import ColumnStatistics, Evaluation, Metric, OneWay, Pair, Statistic
from privsyn.evaluation.report import charts
from privsyn.publish.overview_chart import SHOWN_BINS, Bins
from privsyn.tasks.metrics.samples import SHARES

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

NOISE_FACTOR = 2.0
"""A column's error counts as noise up to this multiple of the L1 expected from noise alone."""

LEAST_NAMED_LOSS = 0.1
"""Smallest change of the worst pair's association that the verdict mentions."""

SHOWN_MISREAD = 5
"""Largest number of misread columns that the verdict names; the rest are counted."""

PAIRS, COLUMNS = "l1_2way", "l1_1way"
"""Metrics whose equivalent subsample the verdict gives: of pairs, or of columns if there is only one column."""


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
    filters: dict[str, Callable[..., str]] = {
        "number": format_number,
        "percent": format_percent,
        "association": lambda value: "–" if value is None else f"{value:.2f}",
        "like_a_sample": compare_to_sample,
        "sentence": make_sentence,
        "breakable": lambda name: Markup("_<wbr>").join(escape(part) for part in name.split("_")),
        "coded": _mark_code,
    }
    environment.filters |= filters
    library, script = _read_library(), _read_part("report.js")
    most = max([*(p.l1 for p in evaluation.pairs), *(o.l1 for o in evaluation.one_ways)], default=0.0)
    return environment.get_template("page.html.j2").render(
        e=evaluation,
        NOISE_FACTOR=NOISE_FACTOR,
        explain_column=explain_column,
        format_part=format_part,
        is_beyond_noise=is_beyond_noise,
        format_statistic=format_statistic,
        verdict=write_verdict(evaluation),
        no_relation=_describe_no_relation(evaluation),
        headlines=[(m, build_meter(m)) for m in evaluation.release.metrics if m.headline],
        columns=list_worst_columns(evaluation),
        pairs=list_worst_pairs(evaluation),
        groups=group_metrics(evaluation),
        settings=evaluation.settings.model_dump(mode="json"),
        setting_words={name: field.description or "" for name, field in type(evaluation.settings).model_fields.items()},
        earth_mover=sorted(evaluation.earth_mover, key=lambda m: -m.aemc * m.weight)[:SHOWN_MARGINALS],
        shown=SHOWN_ROWS,
        data={"specs": charts.build_chart_specs(evaluation.columns, most), "tables": build_tables(evaluation)},
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
    tables["pairs"] = _build_table(_PAIR_FIELDS, [_build_pair_row(p) for p in list_worst_pairs(evaluation)])
    diagonal = [
        [o.column, o.column, len(o.labels), _shorten(o.l1), "", None, explain_column(o), None, None, None]
        for o in evaluation.one_ways
    ]
    tables["diagonal"] = _build_table(_PAIR_FIELDS, diagonal)
    sizes = []
    for s in sorted(evaluation.sizes, key=lambda s: (s.ways, s.cells_from)):
        middle = round(max(1.0, sqrt(max(1, s.cells_from) * s.cells_to)), 1)  # the geometric mean
        sizes.append([s.ways, f"{s.cells_from:,} – {s.cells_to:,}", middle, s.marginals, _shorten(s.mean_l1)])
    tables["sizes"] = _build_table(("ways", "size", "middle", "marginals", "mean_l1"), sizes)
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
    associations = (real, synthetic, None if real is None or synthetic is None else synthetic - real)
    errors = [_shorten(p.l1), "yes" if p.measured else "no", _shorten(p.consistent_l1)]
    return [p.a, p.b, p.cells, *errors, p.cause, *map(_shorten, associations)]


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


def _mark_code(text: str) -> Markup:
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


def format_number(value: float | None) -> str:
    """Return a number with three significant digits, thousands separated; a dash for None."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.3g}"


def format_percent(share: float) -> str:
    """Return a share (0..1) as a percentage of two significant digits: 12 %, 0.4 %."""
    value = 100 * share
    if 0 < value < 0.01:
        return "less than 0.01 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.2g} %"


def format_part(amount: float, whole: float) -> str:
    """Return ``amount`` as a percentage of ``whole``; 0 % of nothing."""
    return format_percent(amount / whole if whole else 0.0)


def make_sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop; empty text stays empty."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


def explain_column(one_way: OneWay) -> str:
    """Return the larger part of one column's error: ``noise`` or ``synthesis``.

    ``not known`` if the noise is unknown; ``misread`` if the real column is misread.
    """
    if one_way.misread:
        return "misread"
    if one_way.noise_l1 is None:
        return "not known"
    return "noise" if one_way.l1 <= NOISE_FACTOR * one_way.noise_l1 else "synthesis"


def list_worst_columns(evaluation: Evaluation) -> list[OneWay]:
    """Return all columns by L1 error, worst first."""
    return sorted(evaluation.one_ways, key=lambda o: -o.l1)


def measure_lost_association(pair: Pair) -> float:
    """Return the distance between a pair's synthetic and real association, 0..2; 0 if one is undefined."""
    if pair.association_real is None or pair.association_synthetic is None:
        return 0.0
    return abs(pair.association_synthetic - pair.association_real)


def list_worst_pairs(evaluation: Evaluation) -> list[Pair]:
    """Return all pairs, worst first: by the larger of the share of wrong rows and the lost association.

    A correlation can be lost although hardly any row is in a wrong cell.
    """
    return sorted(evaluation.pairs, key=lambda p: -max(p.l1 / 2, measure_lost_association(p)))


def write_verdict(evaluation: Evaluation) -> str:
    """Return one sentence: mean error of pairs, equivalent sample, columns within noise, and the worst pair.

    Half the L1 distance is the share of rows that must change for the two tables to agree.  If a table has no rows, the
    sentence says only that.
    """
    if empty := _describe_empty(evaluation):
        return empty
    describers = (_describe_misread, _describe_typical, _join_columns, _describe_worst)
    return "; ".join(filter(None, (describe(evaluation) for describe in describers))) + "."


def _describe_misread(evaluation: Evaluation) -> str:
    names = [o.column for o in evaluation.one_ways if o.misread]
    if not names:
        return ""
    shown = ", ".join(names[:SHOWN_MISREAD])
    more = f" and {len(names) - SHOWN_MISREAD} more" if len(names) > SHOWN_MISREAD else ""
    return f"The real table is misread in {shown}{more}, so these columns of the release are wrong at any noise"


def _describe_empty(evaluation: Evaluation) -> str:
    beginnings = {(True, True): "The real and the synthetic table have", (True, False): "The real table has"}
    beginnings[False, True] = "The synthetic table has"
    subject = beginnings.get((not evaluation.rows_real, not evaluation.release.rows))
    return "" if subject is None else f"{subject} no rows: how close the two are cannot be said."


def _describe_typical(evaluation: Evaluation) -> str:
    errors = [p.l1 for p in evaluation.pairs] or [o.l1 for o in evaluation.one_ways]
    if not errors:
        return "There is no column to compare"
    moved = format_percent(sum(errors) / len(errors) / 2)
    begin = "on" if _describe_misread(evaluation) else "On"
    text = f"{begin} average {moved} of the rows would have to be different for a table of "
    text += "two columns to agree with the real one" if evaluation.pairs else "one column to agree with the real one"
    name = PAIRS if evaluation.pairs else COLUMNS
    sample = next((m.subsample for m in evaluation.release.metrics if m.name == name), None)
    return text if sample is None else f"{text}, {compare_to_sample(sample, 'about ')}"


def compare_to_sample(share: float, about: str = "") -> str:
    """Return a score in words, as a random sample of this share of the real rows.

    At the smallest share tried, the score may be worse than the sample's.
    """
    begin = "no closer than" if share <= SHARES[0] else f"{about}as close as"
    return f"{begin} a random sample of {format_percent(share)} of the real rows"


def _join_columns(evaluation: Evaluation) -> str:
    with_noise = [o for o in evaluation.one_ways if o.noise_l1 is not None]
    if not with_noise:
        return ""
    within = sum(explain_column(o) == "noise" for o in with_noise)
    if within == len(with_noise) == 1:
        return "its column is within the noise"
    if within == len(with_noise):
        return f"all {within} columns on their own are within the noise"
    return f"{within} of {len(with_noise)} columns on their own are within the noise"


def _describe_worst(evaluation: Evaluation) -> str:
    if not evaluation.pairs:
        return ""
    worst = list_worst_pairs(evaluation)[0]
    because = {"noise": "mostly noise", "synthesis": "mostly from synthesis", "misread": "one is misread"}
    why = because.get(worst.cause, "the pair was not selected for measuring")
    moved = ""
    if measure_lost_association(worst) >= LEAST_NAMED_LOSS:
        moved = f", whose association went from {worst.association_real:.2f} to {worst.association_synthetic:.2f}"
    return f"the worst pair is {worst.a} with {worst.b}{moved} ({why})"
