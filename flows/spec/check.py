"""``spec check``: what a spec would do, before anything is spent.

Belongs here: warnings and predicted noise from the public spec, and, for the operator's eyes only, how
well the private table fits it.  Does not belong here: structure (flows/source.py) and a broken spec
(flows/spec/file.py), which are errors.  Nothing is drawn, spent or written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from data_contracts.receipts import sigma_for
from data_contracts.spec import Guarantee, ReleaseSpec
from flows.errors import RequestError
from flows.source import Source
from tasks.codecs import Codec, plan
from tasks.codecs.parsing import to_keys
from tasks.privacy.accountant import Accountant, cap_accountant, pricing_of

MANY_CODES = 10_000
LARGE_EPSILON = 10.0
LARGE_DELTA = 1e-5
EXAMPLES = 5
_TRIED = 500
"""Different values tried per column and batch in search of examples."""


@dataclass(frozen=True)
class NoiseLine:
    """Predicted noise: ``sigma`` is the standard deviation of each count, in records."""

    what: str
    queries: int
    sigma: float


@dataclass(frozen=True)
class ColumnPlan:
    """A released column: its kind, its fine codes, and the bins that joint marginals use."""

    column: str
    kind: str
    codes: int
    bins: int


@dataclass
class ColumnFit:
    """PRIVATE: how one column of the table fits.  ``repairs`` counts values by what would be done to them."""

    column: str
    stored: str
    released: str
    nulls: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


@dataclass
class Fit:
    """PRIVATE: the whole table.  ``cut`` are rows left out by unit.person_id and unit.max_records."""

    rows: int
    columns: list[ColumnFit]
    cut: int | None = None


@dataclass(frozen=True)
class CheckReport:
    """Public findings and, if a table was given, its private fit."""

    warnings: tuple[str, ...]
    noise: tuple[NoiseLine, ...]
    columns: tuple[ColumnPlan, ...]
    fit: Fit | None = None


def check(spec: ReleaseSpec, source: Source | None = None) -> CheckReport:
    """Warnings, predicted noise and column sizes; with ``source`` also its fit, which is PRIVATE.

    Raises RequestError if the table breaks off while it is read or the privacy cannot be accounted.
    """
    encoding = plan(spec)
    columns = tuple(
        ColumnPlan(c.attribute, spec.columns[c.attribute].kind, c.size, int(c.groups.max()) + 1)
        for c in encoding.codecs
    )
    fit = None if source is None else _fit(spec, source, encoding.codecs)
    return CheckReport(tuple(_warnings(spec, columns)), _noise(spec, len(columns)), columns, fit)


def _warnings(spec: ReleaseSpec, columns: tuple[ColumnPlan, ...]) -> list[str]:
    privacy, budget, unit = spec.privacy, spec.budget, spec.unit
    found = []
    if privacy.epsilon > LARGE_EPSILON:
        found.append(f"privacy.epsilon is {privacy.epsilon:g}: above {LARGE_EPSILON:g} a release protects little.")
    if privacy.delta >= LARGE_DELTA:
        found.append(f"privacy.delta is {privacy.delta:g}: it should be far below one over the number of people.")
    if _rho(privacy, "privacy", spec.accountant) > _rho(budget, "budget", cap_accountant(spec.accountant)):
        found.append("privacy is larger than budget: the ledger will refuse this release.")
    if unit.records > 1:
        found.append(f"unit: every count gets {unit.records} times the noise of one record a person.")
    if unit.records_per_person == 1:
        found.append("unit.records_per_person is 1: the promise holds only if nobody has two rows.")
    if isinstance(spec.synthesis.rows, int):
        found.append("synthesis.rows is a number: it must not be the table's row count, which is private.")
    found.extend(
        f"columns.{c.column} has {c.codes:,} codes: noise will outweigh rare ones; merge values or use fewer bins."
        for c in columns
        if c.codes > MANY_CODES
    )
    return found


def _rho(promise: Guarantee, name: str, accountant: Accountant) -> Fraction:
    from flows.preflight import accounted  # it loads the accountant's libraries

    return accounted(promise, name, accountant)


def _noise(spec: ReleaseSpec, attributes: int) -> tuple[NoiseLine, ...]:
    rho = _rho(spec.privacy, "privacy", spec.accountant)
    one_way, _, measurement = spec.split.exact()
    sizes = [("one-way marginals", one_way, attributes)]
    sizes += [("chosen marginals, if as many and equal", measurement, n) for n in (10, 50, 200)]
    return tuple(_line(what, rho * share, n, spec) for what, share, n in sizes)


def _line(what: str, rho: Fraction, queries: int, spec: ReleaseSpec) -> NoiseLine:
    if rho <= 0:
        raise RequestError("is too small to be accounted", "Choose a larger epsilon", "privacy.epsilon")
    return NoiseLine(what, queries, sigma_for(rho / queries, spec.unit.records, pricing_of(spec.accountant)))


def _fit(spec: ReleaseSpec, source: Source, codecs: tuple[Codec, ...]) -> Fit:
    types = source.layout.types
    ranges = {name: str(r.type) for codec in codecs for name, r in codec.ranges().items()}
    fits = {
        name: ColumnFit(name, "text" if types is None else str(types[name])[:60], ranges.get(name, ""))
        for codec in codecs
        for name in codec.sources
    }
    people: Counter[Any] = Counter()
    rows = 0
    for batch in source.batches():
        rows += batch.num_rows
        data = dict(zip(batch.schema.names, batch.columns, strict=True))
        if spec.unit.person_id is not None:
            people.update(_counts(data[spec.unit.person_id]))
        for codec in codecs:
            _add(fits[codec.sources[0]], codec, data)
    return Fit(rows, list(fits.values()), _cut(people, spec))


def _add(fit: ColumnFit, codec: Codec, data: Mapping[str, pa.Array]) -> None:
    arrays = {name: data[name] for name in codec.sources}
    array: Any = arrays[codec.sources[0]]
    fit.nulls += int(np.count_nonzero(pc.is_null(array, nan_is_null=True)))
    repairs = codec.inspect(arrays)
    fit.repairs.update(repairs)
    odd = {"unlisted", "unparseable"} & set(repairs)
    if not odd or len(fit.examples) >= EXAMPLES or len(arrays) > 1:
        return
    different = pc.unique(array)
    for i in range(min(len(different), _TRIED)):
        if odd & set(codec.inspect({codec.sources[0]: different.slice(i, 1)})):
            shown = _printable(to_keys(different.slice(i, 1), pa.string())[0].as_py())
            if shown not in fit.examples:
                fit.examples.append(shown)
        if len(fit.examples) >= EXAMPLES:
            return


def _counts(array: pa.Array) -> dict[str | None, int]:
    """Rows of each person, by the key that tasks.encode bounds them by."""
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
            [[c.column, c.kind, f"{c.codes:,}", f"{c.bins:,}"] for c in report.columns],
        )
    )
    console.print(
        _table(
            "Predicted noise (standard deviation of each count)",
            ["what", "how many", "sd"],
            [[n.what, f"{n.queries:,}", f"{n.sigma:,.1f}"] for n in report.noise],
        )
    )
    if report.warnings:
        console.print(_table("Worth a thought", ["warning"], [[w] for w in report.warnings]))
    if report.fit is not None:
        _render_fit(report.fit, console)


def _render_fit(fit: Fit, console: Console) -> None:
    cut = "" if fit.cut is None else f" {fit.cut:,} of them are left out by the unit of protection."
    console.print(
        Panel(
            Text(f"The table below is computed from the private rows ({fit.rows:,} rows).{cut}"),
            title="PRIVATE - do not share",
            border_style="bold red",
        )
    )
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
