"""``spec check``: what a spec would do, before anything is spent.

Nothing is drawn, spent or written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from privsyn.data_contracts.columns import IntegerColumn, NumberColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.mechanisms.release_job import plan_of
from privsyn.notebook import html_table
from privsyn.run.plan import Plan, accounted
from privsyn.source.private_table import LEFT_OUT, Source
from privsyn.spec.likely_cures import likely_cures
from privsyn.spec.misread import Misread, misread_columns, odd_texts
from privsyn.tasks.codecs import Codec
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.encode import Repairs
from privsyn.tasks.privacy.accountant import cap_accountant

MANY_CODES = 10_000
LARGE_EPSILON = 10.0
LARGE_DELTA = 1e-5
EXAMPLES = 5
ASSUMED = (10, 50, 200)
"""Numbers of chosen marginals for which noise is predicted."""
_TRIED = 500
"""Most different odd values of a column that are kept, in search of examples and cures."""


@dataclass(frozen=True)
class NoiseLine:
    """Predicted noise: ``low`` and ``high`` are the least and the largest standard deviation of a count, in records.

    ``queries``: how many tables of counts share the budget.
    """

    what: str
    queries: int
    low: float
    high: float


@dataclass(frozen=True)
class ColumnPlan:
    """A released column: its kind, its fine codes, and the bins that joint marginals use."""

    column: str
    kind: str
    codes: int
    bins: int


@dataclass
class ColumnFit:
    """PRIVATE: how one column of the table fits.

    ``repairs`` counts values by what would be done to them; ``cures`` are likely ones, as sentences.
    """

    column: str
    stored: str
    released: str
    nulls: int = field(default=0, repr=False)
    repairs: Counter[str] = field(default_factory=Counter, repr=False)
    examples: list[str] = field(default_factory=list, repr=False)
    cures: list[str] = field(default_factory=list, repr=False)


@dataclass
class Fit:
    """PRIVATE: the whole table.

    ``cut`` are rows left out by unit.person_id and unit.max_records; ``unread`` records that cannot be read, which are
    not among ``rows``; ``misread`` are columns of which so much would be repaired that the spec is likely wrong.
    """

    rows: int
    columns: list[ColumnFit]
    cut: int | None = None
    unread: int = 0
    misread: tuple[Misread, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return "<Fit: PRIVATE>"


@dataclass(frozen=True)
class CheckReport:
    """What a spec would do: public findings and, where a table was given, its fit.

    Privacy: ``warnings``, ``noise`` and ``columns`` follow from the spec alone; ``fit`` is PRIVATE and is not printed.
    """

    warnings: tuple[str, ...]
    noise: tuple[NoiseLine, ...]
    columns: tuple[ColumnPlan, ...]
    fit: Fit | None = None

    def _repr_html_(self) -> str:
        """What is public of it, for notebooks."""
        return (
            html_table(("column", "kind", "codes", "bins"), self.columns_rows())
            + html_table(("predicted noise of", "how many", "standard deviation"), self.noise_rows())
            + html_table(("worth a thought",), [[warning] for warning in self.warnings])
        )

    def as_json(self) -> dict[str, Any]:
        """The same, JSON-ready.  ``fit``, None without a table, is PRIVATE."""
        fit = None
        if self.fit is not None:
            columns = [{**vars(column), "repairs": dict(column.repairs)} for column in self.fit.columns]
            misread = [{"column": m.column, "shares": dict(m.repairs)} for m in self.fit.misread]
            fit = {"private": True, **vars(self.fit), "columns": columns, "misread": misread}
        noise, sizes = [asdict(line) for line in self.noise], [asdict(column) for column in self.columns]
        return {"warnings": list(self.warnings), "noise": noise, "columns": sizes, "fit": fit}

    def columns_rows(self) -> list[list[str]]:
        """A row of text a column."""
        return [[c.column, c.kind, f"{c.codes:,}", f"{c.bins:,}"] for c in self.columns]

    def noise_rows(self) -> list[list[str]]:
        """A row of text a look at the data."""
        return [[n.what, f"{n.queries:,}", _span(n.low, n.high)] for n in self.noise]


def check(spec: ReleaseSpec, source: Source | None = None) -> CheckReport:
    """Warnings, predicted noise and column sizes; with ``source`` also its fit, which is PRIVATE.

    Raises RequestError if the table breaks off while it is read or the privacy cannot be accounted.
    """
    public = plan_of(spec)
    encoding = public.request.encoding
    columns = tuple(ColumnPlan(c.attribute, _kind(spec, c), c.size, int(c.groups.max()) + 1) for c in encoding.codecs)
    columns += tuple(ColumnPlan(c.attribute, f"{_kind(spec, c)}, computed", 0, 0) for c in encoding.computed)
    fit = None if source is None else _fit(spec, source, encoding.codecs)
    return CheckReport(tuple(_warnings(public, columns)), _noise(public), columns, fit)


def _warnings(plan: Plan, columns: tuple[ColumnPlan, ...]) -> list[str]:
    spec = plan.request.spec
    privacy, budget, unit = spec.privacy, spec.budget, spec.unit
    found = []
    if privacy.epsilon > LARGE_EPSILON:
        found.append(f"privacy.epsilon is {privacy.epsilon:g}: above {LARGE_EPSILON:g} a release protects little.")
    if privacy.delta >= LARGE_DELTA:
        found.append(f"privacy.delta is {privacy.delta:g}: it should be far below one over the number of people.")
    if plan.rho > accounted(budget, "budget", cap_accountant(spec.accountant)):
        found.append("privacy is larger than budget: the ledger will refuse this release.")
    if unit.records > 1:
        found.append(f"unit: every count gets {unit.records} times the noise of one record a person.")
    if unit.records_per_person == 1:
        found.append("unit.records_per_person is 1: the promise holds only if nobody has two rows.")
    if spec.csv.line_breaks:
        found.append("csv.line_breaks is true: the promise holds only if every quotation mark of a CSV file is closed.")
    if isinstance(spec.mechanism.synthesis.rows, int):
        found.append("synthesis.rows is a number: it must not be the table's row count, which is private.")
    found.extend(_without_exact_zero(spec))
    found.extend(
        f"columns.{c.column} has {c.codes:,} codes: noise will outweigh rare ones; merge values or use fewer bins."
        for c in columns
        if c.codes > MANY_CODES
    )
    return found


def _kind(spec: ReleaseSpec, codec: Codec) -> str:
    """The kind of the codec's column; what values are rounded to is a column of its own here."""
    if codec.attribute in spec.columns:
        return str(spec.columns[codec.attribute].kind)
    return "heaps" if len(codec.sources) == 1 else "one of"


def _without_exact_zero(spec: ReleaseSpec) -> Iterator[str]:
    """Columns of amounts that begin at 0 and spread it over their first bin."""
    for name, column in spec.columns.items():
        if not isinstance(column, NumberColumn) and (not isinstance(column, IntegerColumn) or column.edges is None):
            continue
        edges, one = column.edge_values(), column.grid()
        alone = one is not None and edges[1] - edges[0] <= one.step
        if edges[0] == 0 and not alone and 0 not in column.exact:
            yield (
                f"columns.{name} begins at 0 without `exact: [0]`: zeros come out as any value of its first bin, "
                f"{edges[0]:g} to {edges[1]:g}."
            )


def _noise(plan: Plan) -> tuple[NoiseLine, ...]:
    """The noise of every look: as planned, or where its queries follow from noisy counts for some numbers of them."""
    lines = []
    for stage in plan.stages:
        what = stage.step.look.words
        if stage.queries is not None:
            sigmas = [q.sigma for q in stage.queries]
            lines.append(NoiseLine(what, len(sigmas), min(sigmas), max(sigmas)))
            continue
        for number in ASSUMED:
            sigma = stage.sigma_if(plan.request, number)
            lines.append(NoiseLine(f"{what}, if as many and equal", number, sigma, sigma))
    return tuple(lines)


def _fit(spec: ReleaseSpec, source: Source, codecs: tuple[Codec, ...]) -> Fit:
    ranges = {name: str(r.type) for codec in codecs for name, r in codec.ranges().items()}
    fits = {
        name: ColumnFit(name, str(source.types[name] or "text")[:60], ranges.get(name, ""))
        for codec in codecs
        for name in codec.sources
    }
    people: Counter[Any] = Counter()
    odd: dict[str, Counter[str]] = {name: Counter() for name in fits}
    rows, reading = 0, Repairs()
    for batch in source.batches(reading):
        rows += batch.num_rows
        data = dict(zip(batch.schema.names, batch.columns, strict=True))
        if spec.unit.person_id is not None:
            people.update(_counts(data[spec.unit.person_id]))
        for codec in codecs:
            if codec.ranges():
                name = codec.sources[0]
                odd[name] = _most_common(odd[name] + _add(fits[name], codec, data))
    for (column, repair), many in reading.counts.items():
        if column in fits:
            fits[column].repairs[repair] += many
    for name, fit in fits.items():
        fit.examples = list(dict.fromkeys(map(_printable, odd[name])))[:EXAMPLES]
    unread = reading.counts["", LEFT_OUT]
    counts = {(name, repair): many for name, fit in fits.items() for repair, many in fit.repairs.items()}
    misread = misread_columns({**counts, ("", LEFT_OUT): unread}, rows)
    shares = {m.column: m.repairs for m in misread}
    for name, fit in fits.items():
        fit.cures = list(likely_cures(spec.columns[name], odd[name], shares.get(name, {})))
    return Fit(rows, list(fits.values()), _cut(people, spec), unread, misread)


def _add(fit: ColumnFit, codec: Codec, data: Mapping[str, pa.Array]) -> Counter[str]:
    """Add one batch to the fit of its column; returns its odd values as text, with their numbers."""
    arrays = {name: data[name] for name in codec.sources}
    array: Any = arrays[codec.sources[0]]
    fit.nulls += int(np.count_nonzero(pc.is_null(array, nan_is_null=True)))
    repairs = codec.inspect(arrays)
    fit.repairs.update(repairs)
    odd = len(arrays) == 1 and {"unlisted", "unparseable"} & set(repairs)
    return odd_texts(codec, arrays, _TRIED) if odd else Counter()


def _most_common(texts: Counter[str]) -> Counter[str]:
    return Counter(dict(texts.most_common(_TRIED)))


def _counts(array: pa.Array) -> dict[str | None, int]:
    """Rows of each person, by the key that privsyn.tasks.encode bounds them by."""
    counted: Any = pc.value_counts(to_keys(array, pa.string()))
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _cut(people: Counter[Any], spec: ReleaseSpec) -> int | None:
    if spec.unit.person_id is None:
        return None
    without = people.pop(None, 0)
    return without + sum(max(0, n - spec.unit.records) for n in people.values())


def _printable(value: Any) -> str:
    text = "".join(c if c.isprintable() else "\ufffd" for c in str(value))
    return text if len(text) <= 40 else text[:37] + "..."


def render(report: CheckReport, console: Console) -> None:
    """Print the report: a table a section, and a banner over what is private."""
    console.print(
        _table(
            "Columns",
            ["column", "kind", "codes", "bins"],
            report.columns_rows(),
        )
    )
    console.print(
        _table(
            "Predicted noise (standard deviation of each count)",
            ["what", "how many", "sd"],
            report.noise_rows(),
        )
    )
    if report.warnings:
        console.print(_table("Worth a thought", ["warning"], [[w] for w in report.warnings]))
    if report.fit is not None:
        _render_fit(report.fit, console)


def _render_fit(fit: Fit, console: Console) -> None:
    cut = "" if fit.cut is None else f" {fit.cut:,} of them are left out by the unit of protection."
    if fit.unread:
        cut += f" {fit.unread:,} more records cannot be read and are left out (fields, quotation marks, length)."
    console.print(
        Panel(
            Text(f"The table below is computed from the private rows ({fit.rows:,} rows).{cut}"),
            title="PRIVATE - do not share",
            border_style="bold red",
        )
    )
    for misread in fit.misread:
        console.print(Text(f"PRIVATE: {_clean(misread.sentence())}.", style="bold red"))
    rows = [
        [
            c.column,
            c.stored,
            c.released,
            _share(c.nulls, fit.rows),
            ", ".join(f"{what}: {_share(n, fit.rows)}" for what, n in c.repairs.items()) or "none",
            ", ".join(c.examples),
        ]
        for c in fit.columns
    ]
    headers = ["column", "stored", "released", "null", "repairs", "e.g."]
    console.print(_table("PRIVATE - how the table fits", headers, rows))
    cures = [[c.column, f"{cure}."] for c in fit.columns for cure in c.cures]
    if cures:
        console.print(_table("PRIVATE - likely cures", ["column", "cure"], cures))


def defaults_table(filled: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each column has from ``defaults`` of the spec's file; public."""
    rows = [[name, ", ".join(f"{f}: {_printable(v)}" for f, v in fields.items())] for name, fields in filled.items()]
    return _table("Columns with fields from `defaults`", ["column", "fields"], rows)


def _span(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((f"{low:,.1f}", f"{high:,.1f}")))


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if part and whole else str(part)


def _table(title: str, headers: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for header in headers:
        table.add_column(header, justify="right" if header in ("codes", "bins", "how many", "sd") else "left")
    for row in rows:
        table.add_row(*(Text(_clean(cell)) for cell in row))
    return table


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
