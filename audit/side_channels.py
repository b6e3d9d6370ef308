"""What a served release shows beside its files: how long it took, how large it is, what it refused, how much it held.

Whole releases run in processes of their own, with files, ledger and OpenDP's noise, on one table and on others: a
neighbour, awkward neighbours whose new person has values that no spec foresees, and a table of ten times the rows, at
which the instrument has to see something.  A channel tells two tables apart where its values rank differently; the
share of pairs in which the other table's value is larger is 50 % where it does not (Mann and Whitney).

Not measured: caches, power, the network, and what other programs on the machine see.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from audit.planted_faults import BY_NAME
from audit.referee_cases import Case, hand_over
from audit.referee_tables import NEW, Tables, insert, shuffle
from audit.table import write_table
from privsyn.api.release import propose_release, run_proposal
from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings

CASE = "privsyn, persons of 2"
RUNS, PERSONS, TIMES = 20, 1_000, 10
LEVEL = 0.001
"""Chance that a channel without a difference is called one that tells (two-sided)."""

CHANNELS = ("seconds", "CPU seconds", "peak memory, MB", "released bytes", "released rows")
HEADER = ("what is seen", "table", "of the base", "of the other", "larger in so many pairs", "p-value", "it tells")


@dataclass(frozen=True)
class Observation:
    """What one release showed; ``values``: by CHANNELS, ``refusal``: the type and words of its error, or nothing."""

    values: tuple[float, ...]
    refusal: str = ""


def observe_release(case: Case, tables: Tables) -> Observation:
    """Return what one release of the tables shows, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        begin, child = time.monotonic(), os.fork()
        if child == 0:
            os.close(reading)
            _run_release(case, tables, Path(folder), writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            content = pipe.read()
        _, _, usage = os.wait4(child, 0)
        seconds = time.monotonic() - begin
    size, rows, refusal = pickle.loads(content)  # noqa: S301 - of the process that this one began
    return Observation((seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, size, rows), refusal)


def _run_release(case: Case, tables: Tables, folder: Path, writing: int) -> None:
    """Release the tables, write what is seen of it into the pipe, and end the process."""
    size, rows, refusal = 0, 0, ""
    try:
        settings = Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))
        summary = run_proposal(propose_release(case.spec, settings, data=hand_over(tables)))
        released = Path(summary.released)
        size = sum(file.stat().st_size for file in released.rglob("*") if file.is_file())
        rows = int(summary.rows)
    except PrivsynError as error:
        refusal = f"{type(error).__name__}: {error}"
    os.write(writing, pickle.dumps((size, rows, refusal)))
    sys.stdout.flush()
    os._exit(0)


def add_person(tables: Tables, values: dict[str, Any]) -> Tables:
    """Return the table with one person more, whose rows have these values and else those of the first row."""
    row = tables[""].slice(0, 1).to_pylist()[0] | {"pid": NEW} | values
    rows = pa.Table.from_pylist([row] * 2, schema=tables[""].schema)
    return insert(tables, {"": rows}, "middle")


def list_awkward_neighbours(tables: Tables) -> list[tuple[str, Tables]]:
    """Return neighbours whose new person has values that the spec does not foresee."""
    columns = tables[""].schema
    whole = {f.name: -(2**62) for f in columns if pa.types.is_integer(f.type)}
    texts = {f.name: "\u202e<b>\x00" * 400 for f in columns if pa.types.is_string(f.type) and f.name != "pid"}
    nulls = dict.fromkeys((name for name in columns.names if name != "pid"), None)
    return [
        ("all values are null", add_person(tables, nulls)),
        ("numbers out of all bounds", add_person(tables, whole)),
        ("texts of 2,000 signs", add_person(tables, texts)),
        ("an identifier of 10,000 signs", add_person(tables, {"pid": "x" * 10_000})),
    ]


def compare_channels(name: str, base: Sequence[Observation], other: Sequence[Observation]) -> list[tuple[str, ...]]:
    """Return a line for each channel, in the order of HEADER."""
    lines = []
    for place, channel in enumerate(CHANNELS):
        one, two = (np.array([o.values[place] for o in side]) for side in (base, other))
        test = stats.mannwhitneyu(two, one)
        larger = float(test.statistic) / (len(one) * len(two))
        middle = (f"{np.median(side):,.5g}" for side in (one, two))
        tells = "yes" if test.pvalue < LEVEL else "no"
        lines.append((channel, name, *middle, f"{larger:.0%}", f"{test.pvalue:.2g}", tells))
    return lines


def list_by_channel(lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return a line for each channel: in how many pairs each other table's value is larger, and the p-value."""
    cells: dict[str, list[str]] = {}
    for channel, _, _, _, larger, p_value, _ in lines[:-1]:
        cells.setdefault(channel, []).append(f"{larger} (p = {p_value})")
    return [(channel, *row) for channel, row in cells.items()]


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a refusal depends on rows, or if not even the larger table shows: too few runs."""
    parser = argparse.ArgumentParser(prog="python -m audit channels", description="Time, size, refusals and memory.")
    parser.add_argument("--runs", type=int, default=RUNS, help="releases of each table")
    parser.add_argument("--markdown", type=Path, help="also write the table into this page, between its marks")
    parsed = parser.parse_args(arguments)
    case, rng = BY_NAME[CASE], np.random.default_rng(0)
    base = case.make(PERSONS, 0)
    others = {
        "a neighbour": shuffle(add_person(base, {}), rng),
        f"{TIMES} times the rows": case.make(PERSONS * TIMES, 0),
    }
    seen: dict[str, list[Observation]] = {"": [], **{name: [] for name in others}}
    observe_release(case, base)  # what is compiled and cached by the first is so for all
    for _ in range(parsed.runs):  # in turns, so that a busier hour is every table's
        for name, tables in (("", base), *others.items()):
            seen[name].append(observe_release(case, tables))
    lines = [line for name in others for line in compare_channels(name, seen[""], seen[name])]
    refusals = {name: observe_release(case, tables).refusal for name, tables in list_awkward_neighbours(base)}
    refused = [f"{name}: {words}" for name, words in refusals.items() if words]
    refused += [o.refusal for side in seen.values() for o in side if o.refusal]
    tried = len(refusals) + sum(map(len, seen.values()))
    lines.append(("refusals", "all, and awkward neighbours", "0", f"{len(refused)} of {tried}", "", "", "no"))
    if refused:
        lines[-1] = (*lines[-1][:-1], "yes")
    for line in (HEADER, *lines):
        print(" | ".join(line), flush=True)
    print(*refused, sep="\n")
    if parsed.markdown:
        write_table(parsed.markdown, "channels", (HEADER[0], *others), list_by_channel(lines))
    power = any(line[1] == f"{TIMES} times the rows" and line[-1] == "yes" for line in lines)
    return int(bool(refused) or not power)
