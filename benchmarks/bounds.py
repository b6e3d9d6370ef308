"""What bounds cost that are wider than the data: ``python -m benchmarks.bounds [--widths 1 10 100 1000]``.

A made table, and the same spec with every bound so many times as wide, as careful people type them: away from the data
on both sides, so also off-centre.  All is made from seeds, in memory: nothing here is a release.

Errors are the mean over columns: of quantiles and means in units of the real interquartile range (a quarter of the
standard deviation where that is larger), of standard deviations relative to the real one.  *kept*: mean of synthetic
over real rank correlation, of pairs with a real one above .2.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers import LIMITS, NOT_DONE, Limits, name_outcome
from benchmarks.relations import DPSYNTH, PublicTable, run_binned
from privsyn.base.pictures import write_picture
from privsyn.data_contracts.public_counts import Prior
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.storage.named_files import compute_sha256

STRONG = 0.2
"""Real rank correlation above which a pair counts for *kept*."""


def make_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return the made table: pay and profit, waits, claims, counts, a score, visits, pressure, births and a day."""
    rng = np.random.default_rng(seed)
    skill, age = rng.normal(size=rows), rng.gamma(6.0, 7.0, rows).clip(18, 90)
    noise = lambda scale: rng.normal(0.0, scale, rows)  # noqa: E731
    claims = np.exp(6.0 + 0.4 * skill + noise(0.9)) * (rng.random(rows) < 0.4 / (1 + np.exp(-0.04 * (age - 45))) * 2)
    day = np.datetime64("2019-01-01") + (1000 * rng.beta(2, 1.2, rows) + 80 * skill).clip(0, 1460).astype(int)
    return pd.DataFrame(
        {
            "pay": np.round(np.exp(7.6 + 0.45 * skill + 0.004 * age + noise(0.25)), 2),
            "profit": np.round(400 * skill + noise(500) + 3 * (age - 45), 2),
            "wait": np.round(np.exp(1.5 - 0.3 * skill + noise(0.6)), 1),
            "claims": np.round(claims, 2),
            "items": 1 + rng.poisson(np.exp(0.8 + 0.4 * skill)),
            "score": np.rint(60 + 12 * skill + noise(8)).clip(0, 100).astype(int),
            "visits": np.maximum(1, rng.geometric(0.55, rows) + (age > 60)),
            "pressure": np.rint(105 + 0.5 * age + noise(11)).astype(int),
            "born": (2020 - age).astype(int),
            "since": day.astype("datetime64[s]"),
        }
    )


BOUNDS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "pay": ("number", 0, 10_000, {"decimals": 2}),
    "profit": ("number", -4_000, 4_000, {"decimals": 2}),
    "wait": ("number", 0, 60, {"decimals": 1}),
    "claims": ("number", 0, 10_000, {"decimals": 2}),
    "items": ("integer", 1, 40, {}),
    "score": ("integer", 0, 100, {}),
    "visits": ("integer", 1, 20, {}),
    "pressure": ("integer", 60, 220, {}),
    "born": ("integer", 1_925, 2_005, {}),
}
FIRST_DAY, DAYS = np.datetime64("2019-01-01"), 1_461
FURTHEST_DAYS = 360_000
"""Days that the bounds of the day may lie apart: about as many as a calendar of four digits has before 2100."""


def build_spec(epsilon: float, width: float, **changes: Any) -> ReleaseSpec:
    """Return the spec with bounds ``width`` times as wide: upwards, and downwards where the column has a lower side."""
    columns: dict[str, Any] = {"sex": {"kind": "categorical", "values": ["f", "m"]}}
    for name, (kind, low, high, more) in BOUNDS.items():
        number = int if kind == "integer" else float
        span = (high - low) * (width - 1)
        below = 0 if low in (0, 1) else (low * (width - 1) if low < 0 else -span / 4)
        columns[name] = {"kind": kind, "min": number(low + below), "max": number(high + span), **more}
    back = min(int(DAYS * (width - 1)), FURTHEST_DAYS)
    since = {"min": str(FIRST_DAY - back), "max": str(FIRST_DAY + DAYS)}
    columns["since"] = {"kind": "date", **since}
    content = {
        "dataset": "bounds",
        "data": "-",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": epsilon, "delta": 1e-9},
        "budget": {"epsilon": 2 * epsilon, "delta": 1e-8},
        "columns": columns,
    }
    return ReleaseSpec.model_validate({**content, **changes})


def save_prior(folder: str, kind: str) -> Prior:
    """Return a public prior, saved in the folder: other rows of the same table, or ``shifted`` ones."""
    rows, file = make_table(20_000, seed=7), Path(folder) / "prior.parquet"
    if kind == "shifted":
        rows["pay"], rows["wait"], rows["claims"] = rows["pay"] * 3, rows["wait"] * 4, rows["claims"] * 0.3
        rows["pressure"] += 40
    rows.insert(0, "sex", np.random.default_rng(2).choice(["f", "m"], len(rows)))
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), file)
    return Prior(
        table=str(file), statement="Made rows of a benchmark, which are nobody's.", sha256=compute_sha256(file)
    )


def release_in_memory(spec: ReleaseSpec, table: pa.Table, seed: int) -> pd.DataFrame:
    """Return synthetic rows, by seeded noise."""
    request = Request(spec, tuple(table.column_names), 1)
    access = PrivateAccess(lambda repairs=None: table.to_batches(65_536))
    made = MemoryRun(request, build_steps(request), draw_from_seed(seed), access).run()
    return made["decode"]["synthetic"].to_pandas()


def release_by_peer(name: str, spec: ReleaseSpec, table: pa.Table, seed: int, minutes: float) -> pd.DataFrame:
    """Return a peer's rows as :func:`to_numbers` does, within so many CPU minutes; a day is a whole number to it."""
    columns: dict[str, Any] = {"sex": {"kind": "categorical", "values": ["f", "m"]}}
    columns |= {c: spec.columns[c].model_dump(include={"kind", "min", "max"}) for c in BOUNDS}
    since = spec.columns["since"].model_dump(include={"min", "max"})
    days = {end: int((np.datetime64(day) - FIRST_DAY).astype(int)) for end, day in since.items()}
    columns["since"] = {"kind": "integer", **days}
    numbers = to_numbers(table.to_pandas())
    arrays = {c: pa.array(numbers[c], pa.int64() if columns[c]["kind"] == "integer" else None) for c in numbers}
    public = PublicTable("bounds", pa.table({c: table[c] if c == "sex" else arrays[c] for c in columns}), columns)
    epsilon = float(spec.privacy.epsilon)
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(minutes * 60, LIMITS.megabytes)
        made, _, cpu, _ = run_binned(public, name, epsilon, seed, Path(folder) / "log", limits=limits)
    frame = made.to_pandas().drop(columns="sex").astype(float)
    frame.attrs["cpu"] = cpu
    return frame


def to_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns with an order as numbers; days since the first of the table's calendar."""
    numbers = frame.drop(columns="sex").copy()
    numbers["since"] = (pd.to_datetime(numbers["since"]) - pd.Timestamp(FIRST_DAY)).dt.total_seconds() / 86_400
    return numbers.astype(float)


def measure(real: pd.DataFrame, made: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    """Yield (column, figure, error) of each column, and ("", "kept", share)."""
    for name in real.columns:
        x, y = real[name].to_numpy(), made[name].to_numpy()
        q25, q75 = np.quantile(x, [0.25, 0.75])
        unit = max(q75 - q25, x.std() / 4)
        for figure, at in (("median", 0.5), ("75 %", 0.75), ("95 %", 0.95)):
            yield name, figure, abs(float(np.quantile(y, at) - np.quantile(x, at))) / unit
        yield name, "mean", abs(float(y.mean() - x.mean())) / unit
        yield name, "sd", abs(float(y.std() / x.std()) - 1)
        mode = pd.Series(x).mode()[0]
        yield name, "mode", abs(float((y == mode).mean() - (x == mode).mean()))
    ours, theirs = made.corr("spearman").to_numpy(), real.corr("spearman").to_numpy()
    pairs = np.triu(np.abs(theirs) > STRONG, 1)
    yield "", "kept", float((ours[pairs] / theirs[pairs]).mean())


PICTURED = {"pay": 12_000, "pressure": 220, "since": None}
"""Columns of the picture, and where each axis ends; None: at the last value."""


def draw_picture(path: Path, epsilon: float, width: float, stored: pa.Table) -> None:
    """Draw shares of rows of three columns: real, with equal cells between the bounds, and with cells chosen.

    Rows beyond an axis are in its last bar.
    """
    spec = build_spec(epsilon, width)
    tables = {
        "real": to_numbers(stored.to_pandas()),
        "equal cells": to_numbers(release_in_memory(spec.without_ladder(), stored, 0)),
        "chosen cells": to_numbers(release_in_memory(spec, stored, 0)),
    }
    rows = []
    for name, end in PICTURED.items():
        low, high = tables["real"][name].min(), end or tables["real"][name].max()
        edges = np.linspace(low, high, 31)
        for made, table in tables.items():
            counts, _ = np.histogram(table[name].clip(low, high), edges)
            rows += [(name, made, place, n / len(table)) for place, n in zip(edges[:-1], counts, strict=True)]
    bars = alt.Chart(pd.DataFrame(rows, columns=["column", "rows", "value", "share"])).mark_bar(width=6)
    bars = bars.encode(
        alt.X("value:Q", title=None),
        alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
        alt.Color("rows:N", legend=None, scale=alt.Scale(range=["#3a3a3a", "#8d99ae", "#d1495b"]), sort=list(tables)),
        alt.Row("rows:N", title=None, sort=list(tables)),
        alt.Column("column:N", title=None, sort=list(PICTURED)),
    )
    chart = bars.properties(width=210, height=90).resolve_scale(x="independent", y="independent")
    write_picture(chart.to_dict(), path, "picture")


def main() -> None:
    """Print the table: a line for each width."""
    parser = argparse.ArgumentParser(description="What bounds cost that are wider than the data.")
    parser.add_argument("--widths", nargs="*", type=float, default=[1, 10, 100, 1_000])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--mechanism", default="privsyn")
    parser.add_argument("--prior", choices=["right", "shifted"], help="with a public prior: of like rows, or others")
    parser.add_argument("--peer", choices=DPSYNTH, help="of a peer in place of ours: make .venv-peers/dpsynth/.done")
    parser.add_argument("--minutes", type=float, default=LIMITS.seconds / 60, help="CPU minutes of a peer's run")
    parser.add_argument("--columns", action="store_true", help="print medians and means of each column, too")
    parser.add_argument("--picture", type=Path, help="draw columns at the first width into this file, and no table")
    arguments = parser.parse_args()
    table = make_table(arguments.rows)
    table.insert(0, "sex", np.random.default_rng(1).choice(["f", "m"], arguments.rows))
    stored, real = pa.Table.from_pandas(table, preserve_index=False), to_numbers(table)
    if arguments.picture:
        draw_picture(arguments.picture, arguments.epsilon, arguments.widths[0], stored)
        return
    folder = tempfile.TemporaryDirectory()
    stated = {"prior": save_prior(folder.name, arguments.prior)} if arguments.prior else {}
    for width in arguments.widths:
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        cpu = time.process_time()
        for seed in range(arguments.seeds):
            spec = build_spec(arguments.epsilon, width, mechanism={"name": arguments.mechanism}, **stated)
            if arguments.peer:
                try:
                    made = release_by_peer(arguments.peer, spec, stored, seed, arguments.minutes)
                except NOT_DONE as error:
                    print(f"x{width:<5g} {arguments.peer}: {name_outcome(error)}, {error}", flush=True)
                    break
                cpu -= made.attrs["cpu"]
            else:
                made = to_numbers(release_in_memory(spec, stored, seed))
            for column, figure, error in measure(real, made):
                found[figure][column].append(error)
        cpu = (time.process_time() - cpu) / arguments.seeds
        if not found:
            continue
        means = {f: np.mean([np.mean(v) for v in by_column.values()]) for f, by_column in found.items()}
        line = "  ".join(f"{figure} {value:.3f}" for figure, value in means.items())
        print(f"x{width:<5g} {line}  CPU {cpu:.1f} s", flush=True)
        if arguments.columns:
            for name in real.columns:
                errors = {figure: np.mean(found[figure][name]) for figure in means if figure != "kept"}
                print(f"  {name:10}", "  ".join(f"{figure} {error:8.3f}" for figure, error in errors.items()))


if __name__ == "__main__":
    main()
