"""Linked rows beside other ways: ``python -m benchmarks.panels [--tables ..] [--epsilons ..] [--seeds N] [--ways ..]``.

``linked``: a release with `order`.  ``unlinked``: the same request without it, every kept row counted, and the rows put
together at random into persons of the real numbers of rows.  ``flat``: one row a person with a column for every year
and variable, by the defaults.  ``sample``: a random tenth of the persons, as they are, which is not private.  ``free``
and ``ruled``: linked with nothing that grows with the order, without and with the table's rules across rows.  The
tables are public and the noise is seeded: nothing here is a release.  ``--counts``: what is best counted;
``--persistence``: how much of each number's correlation with the next row linked rows keep; ``--persons``: how often
intervals of answers about persons hold; ``--named``: of those that the spec's workload names, and how near rows come to
them with and without.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.tables import FOLDER
from privsyn.answers.questions import Questions, answer
from privsyn.answers.released_counts import MemoryCounts
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed, name_by_files
from privsyn.engine.request import Request
from privsyn.engine.step import list_published_files
from privsyn.evaluation.coded_tables import encode_table
from privsyn.evaluation.linked_figures import list_panel_figures, read_panel_table, share_broken
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs import plan_every_column
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques

TABLES: dict[str, dict[str, Any]] = {
    "rwm5yr": {
        "person": "id",
        "order": "year",
        "most": 5,
        "constant": ["female"],
        "with_order": ["age"],
        "left": ["edlevel1", "edlevel2", "edlevel3", "edlevel4"],
        "rules": [
            "age < previous.age",
            "age - previous.age > year - previous.year + 1",
            "educ < previous.educ",
        ],
    },
    "males": {
        "person": "nr",
        "order": "year",
        "most": 8,
        "constant": ["school", "ethn"],
        "with_order": ["exper"],
        "left": [],
        "rules": ["exper < previous.exper", "exper - previous.exper > year - previous.year + 1"],
    },
    "insteval": {
        "person": "s",
        "order": "lectage",
        "most": 50,
        "constant": ["studage"],
        "with_order": [],
        "left": [],
        "rules": [],
    },
}
"""Table -> whose rows are linked, and what is public of a person; ``left``: dummies of another column."""

NAMED: dict[str, list[tuple[str, str, Callable[[Any], pd.Series]]]] = {
    "rwm5yr": [
        ("ever(outwork == '1')", "female", lambda g: g["outwork"].max() == "1"),
        ("always(married == '1')", "female", lambda g: g["married"].min() == "1"),
        ("count(hospvis > 0) > 1", "", lambda g: g["hospvis"].agg(lambda v: (v > 0).sum()) > 1),
        ("sum(docvis) >= 10", "female", lambda g: g["docvis"].sum() >= 10),
        ("change(hhninc) < 0", "", lambda g: g["hhninc"].last() < g["hhninc"].first()),
        ("spells(outwork == '1') > 1", "", lambda g: g["outwork"].agg(lambda v: _count_spells(v == "1")) > 1),
    ],
    "males": [
        ("ever(union == 'yes')", "ethn", lambda g: g["union"].max() == "yes"),
        ("always(married == 'yes')", "", lambda g: g["married"].min() == "yes"),
        ("count(union == 'yes') > 3", "", lambda g: g["union"].agg(lambda v: (v == "yes").sum()) > 3),
        ("change(wage) > 0.5", "", lambda g: g["wage"].last() - g["wage"].first() > 0.5),
        ("spells(union == 'yes') > 1", "", lambda g: g["union"].agg(lambda v: _count_spells(v == "yes")) > 1),
    ],
}
"""Table -> statements about persons that a workload may name: text, column that they are asked by, and the truth."""


def _count_spells(holds: pd.Series) -> int:
    values = holds.to_numpy()
    return int(values[0]) + int((values[1:] & ~values[:-1]).sum())


WAYS = ("linked", "unlinked", "flat", "sample", "free", "ruled")
EPSILONS = (0.2, 1.0)
MOST_LEVELS = 6
SAMPLE = 0.1


def load(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the rows, the order as a number, and the columns as a spec has them."""
    about = TABLES[name]
    described = json.loads((Path(FOLDER) / f"{name}.json").read_text(encoding="utf-8"))["columns"]
    rows = pd.read_parquet(Path(FOLDER) / f"{name}.parquet").drop(columns=about["left"])
    order = about["order"]
    rows[order] = rows[order].astype(int)
    columns: dict[str, Any] = {}
    for column, known in described.items():
        if column not in rows:
            continue
        if column == about["person"]:
            columns[column] = {"kind": "drop"}
        elif column == order:
            columns[column] = {"kind": "integer", "min": int(rows[order].min()), "max": int(rows[order].max())}
        elif known["kind"] == "id":  # of another than the person: a column of many levels
            columns[column] = {"kind": "categorical", "values": [str(v) for v in sorted(rows[column].unique())]}
        elif known["kind"] == "categorical":
            columns[column] = {"kind": "categorical", "values": known["values"], "nullable": known["missing"] > 0}
        else:
            kind = "integer" if known["integer"] else "number"
            columns[column] = {"kind": kind, "min": known["min"], "max": known["max"]}
    return rows, columns


def widen(columns: Mapping[str, Any], width: float, but: Sequence[str]) -> dict[str, Any]:
    """Return the columns with bounds of numbers ``width`` times as wide, away from the data; of ``but`` as they are."""
    widened = dict(columns)
    for name, column in columns.items():
        if column["kind"] in ("integer", "number") and name not in but:
            low, number = column["min"], int if column["kind"] == "integer" else float
            span = (column["max"] - low) * (width - 1)
            below = 0 if low in (0, 1) else (low * (width - 1) if low < 0 else -span / 4)
            widened[name] = {**column, "min": number(low + below), "max": number(column["max"] + span)}
    return widened


def build_spec(name: str, columns: Mapping[str, Any], epsilon: float, seed: int, **changes: Any) -> ReleaseSpec:
    """Return the request of the linked release, or another's."""
    about = TABLES[name]
    content: dict[str, Any] = {
        "dataset": name,
        "unit": {"person_id": about["person"], "max_records": about["most"]},
        "privacy": {"epsilon": epsilon, "delta": 1e-9},
        "budget": {"epsilon": 100.0, "delta": 1e-6},
        "columns": columns,
        "order": about["order"],
        "constant": about["constant"],
        "with_order": about["with_order"],
        "mechanism": {"name": "privsyn", "synthesis": {"seed": seed}},
    }
    return ReleaseSpec.model_validate({**content, **changes})


def synthesize(rows: pd.DataFrame, spec: ReleaseSpec, seed: int, threads: int) -> pd.DataFrame:
    """Return synthetic rows by the steps of a release, with seeded noise."""
    order = tuple(name for name in rows.columns if name in spec.released_columns)
    request = Request(spec, order, threads)
    batches = pa.Table.from_pandas(rows, preserve_index=False).to_batches(max_chunksize=65_536)
    run = MemoryRun(request, build_steps(request), draw_from_seed(seed), PrivateAccess(lambda repairs=None: batches))
    made = run.run()["decode"]["synthetic"]
    return made.to_pandas()


def make_linked(name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return linked rows."""
    return synthesize(rows, build_spec(name, columns, epsilon, seed), seed, 2)


def make_free(
    name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int, rules: Sequence[str] = ()
) -> pd.DataFrame:
    """Return linked rows of which nothing grows with the order."""
    never = [{"never": rule} for rule in rules]
    return synthesize(rows, build_spec(name, columns, epsilon, seed, with_order=[], rules=never), seed, 2)


def make_ruled(name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return the same with the table's rules across rows."""
    return make_free(name, rows, columns, epsilon, seed, TABLES[name]["rules"])


def make_unlinked(name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return rows of today's release, as persons of the real numbers of rows."""
    spec = build_spec(name, columns, epsilon, seed, order=None, constant=[], with_order=[])
    made = synthesize(rows, spec, seed, 2)
    person = TABLES[name]["person"]
    sizes = rows.groupby(person).size().sample(frac=2.0, replace=True, random_state=seed).to_numpy()
    made.insert(0, person, np.repeat(np.arange(len(sizes)), sizes)[: len(made)])
    return made


def make_flat(name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return rows of a release of one row a person: presence and every variable of every year."""
    about = TABLES[name]
    person, order, constant = about["person"], about["order"], list(about["constant"])
    changing = [n for n in rows.columns if n not in (person, order, *constant)]
    years = sorted(rows[order].unique())
    wide = rows.pivot_table(index=person, columns=order, values=changing, aggfunc="first")
    wide.columns = [f"{n} {y}" for n, y in wide.columns]
    wide = wide.join(rows.groupby(person)[constant].first())
    there = rows.assign(there="yes").pivot_table(index=person, columns=order, values="there", aggfunc="first")
    described: dict[str, Any] = {n: columns[n] for n in constant}
    for year in years:
        wide[f"there {year}"] = there[year].fillna("no")
        described[f"there {year}"] = {"kind": "categorical", "values": ["no", "yes"]}
        for n in changing:
            described[f"{n} {year}"] = {**columns[n], "nullable": True}
    wide = wide[[n for n in described if n in wide]]
    described = {n: described[n] for n in wide}
    unit = {"records_per_person": 1}
    changes = {"unit": unit, "order": None, "constant": [], "with_order": []}
    made = synthesize(wide, build_spec(name, described, epsilon, seed, **changes), seed, 2)
    rng, parts = np.random.default_rng(seed), []
    for year in years:
        part = made[made[f"there {year}"] == "yes"]
        found = {person: part.index.to_numpy(), order: np.full(len(part), year)}
        for n in constant:
            found[n] = part[n].to_numpy()
        for n in changing:
            values = part[f"{n} {year}"] if f"{n} {year}" in part else pd.Series([None] * len(part))
            known = values.dropna().to_numpy()
            if not columns[n].get("nullable") and len(known):  # a row that is there has a value
                values = values.where(values.notna().to_numpy(), rng.choice(known, len(values)))
            found[n] = values.to_numpy()
        parts.append(pd.DataFrame(found))
    return pd.concat(parts)[[person, *(n for n in rows.columns if n != person)]]


def make_sample(name: str, rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return a random tenth of the persons."""
    person = TABLES[name]["person"]
    persons = pd.Series(rows[person].unique()).sample(frac=SAMPLE, random_state=seed)
    return rows[rows[person].isin(persons)]


MAKE: dict[str, Callable[..., pd.DataFrame]] = {
    "linked": make_linked,
    "unlinked": make_unlinked,
    "flat": make_flat,
    "sample": make_sample,
    "free": make_free,
    "ruled": make_ruled,
}


def score(name: str, rows: pd.DataFrame, made: pd.DataFrame, columns: Mapping[str, Any]) -> dict[str, float]:
    """Return how far the made rows are from the real ones: single rows, and persons over time."""
    spec = build_spec(name, columns, 1.0, 0).without_ladder()
    encoding = plan_every_column(spec)
    tables, coded = [], []
    for table in (rows, made):
        batches = pa.Table.from_pandas(table, preserve_index=False).to_batches()
        coded.append(encode_table(batches, encoding).bins)
        tables.append(read_panel_table(batches, encoding, spec))
    figures = list(list_panel_figures(tables[0], tables[1], spec.panel))  # type: ignore[arg-type]
    few = {n for n, size in tables[0].sizes.items() if size <= MOST_LEVELS + 1}
    moves = [f.distance for f in figures if f.name.startswith("transitions") and f.column in few]
    ranks = [_share_kept(f) for f in figures if f.name.startswith("correlation of ranks") and f.real]
    plain = [_share_kept(f) for f in figures if f.name == "correlation with the next row" and f.real]
    spread = [_share_kept(f) for f in figures if f.name.startswith("share of the variance") and f.real]
    ever = [f.distance for f in figures if f.name.startswith("persons that ever")]
    alone = {f.name: f.distance for f in figures if not f.column}
    return {
        "one column": average_l1(*coded, list_all_cliques(coded[0].domain, 1)),
        "two columns": average_l1(*coded, list_all_cliques(coded[0].domain, 2)),
        "transitions": _mean(moves),
        "worst transitions": max(moves, default=np.nan),
        "rank autocorrelation kept": float(np.median(ranks)),
        "least rank autocorrelation kept": min(ranks),
        "autocorrelation kept": float(np.median(plain)),
        "least autocorrelation kept": min(plain),
        "ICC kept": float(np.median(spread)),
        "ever": max(ever, default=np.nan),
        "rows per person": alone["rows per person"] or 0.0,
        "gaps": alone["gaps in the order"] or 0.0,
        **_count_broken(name, rows, made, columns),
    }


def _count_broken(name: str, rows: pd.DataFrame, made: pd.DataFrame, columns: Mapping[str, Any]) -> dict[str, float]:
    """Return how many persons were made for one real one, and the share of rows that break a rule across rows."""
    spec = build_spec(name, columns, 1.0, 0, rules=[{"never": rule} for rule in TABLES[name]["rules"]])
    person, table = TABLES[name]["person"], pa.Table.from_pandas(made, preserve_index=False)
    broken = share_broken(table.to_batches(), plan_every_column(spec), spec)
    return {
        "persons": made[person].nunique() / rows[person].nunique(),
        "rows that break a rule": max(broken, default=np.nan),
    }


def _share_kept(figure: Any) -> float:
    return (figure.synthetic or 0.0) / figure.real


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else float("nan")


def measure_persistence(name: str, epsilon: float, width: float, seed: int) -> dict[str, float]:
    """Return by number that changes how much of the correlation with the next row linked rows keep (Pearson)."""
    rows, columns = load(name)
    about, widened = TABLES[name], widen(columns, width, [TABLES[name]["order"]])
    tables = [
        t.sort_values([about["person"], about["order"]], kind="stable")
        for t in (rows, make_linked(name, rows, widened, epsilon, seed))
    ]
    kept = {}
    for column, known in columns.items():
        if known["kind"] in ("integer", "number") and column not in (about["order"], *about["constant"]):
            real, made = (t[column].corr(t.groupby(about["person"])[column].shift()) for t in tables)
            kept[column] = float(made / real)
    return kept


def compare_counts(name: str, epsilon: float, seeds: int) -> dict[str, tuple[float, float]]:
    """Return how far noisy counts of all columns, and of all pairs, lie from those of all rows: L1, means over seeds.

    Each is measured at the same price: ``one row`` of each person, drawn at random; ``all rows`` that are kept, with
    the noise of so many; ``weights``: all kept rows with weights that sum to one a person, whatever number it has.
    """
    rows, columns = load(name)
    spec = build_spec(name, columns, epsilon, 0)
    person, most = TABLES[name]["person"], TABLES[name]["most"]
    bins = encode_table(pa.Table.from_pandas(rows, preserve_index=False).to_batches(), plan_every_column(spec)).bins
    own = pd.Series(rows[person]).groupby(rows[person].to_numpy()).transform("size").to_numpy()
    rho = float(Request(spec, tuple(n for n in rows if n in spec.released_columns), 1).total_rho)
    found: dict[str, tuple[float, float]] = {}
    shuffled = np.random.default_rng(0)
    drawn = rows.groupby(person).sample(1, random_state=0).index
    weights = {
        "one row": (np.isin(rows.index, drawn).astype(float), 1.0),
        "all rows": (np.ones(len(rows)), float(most)),
        "weights": (1.0 / own, 1.0),
    }
    for way, (weight, sensitivity) in weights.items():
        errors = []
        for size, share in ((1, 0.25), (2, 0.73)):
            cliques = list_all_cliques(bins.domain, size)
            sigma = sensitivity * np.sqrt(len(cliques) / (2 * rho * share))
            off = []
            for clique in cliques:
                shape = bins.domain.shape(clique)
                cell = np.ravel_multi_index([bins.column(a).astype(np.int64) for a in clique], shape)
                real = np.bincount(cell, minlength=int(np.prod(shape))) / len(rows)
                counts = np.bincount(cell, weights=weight, minlength=len(real))
                for _ in range(seeds):
                    noisy = np.maximum(counts + shuffled.normal(0, sigma, len(counts)), 0.0)
                    off.append(np.abs(noisy / max(noisy.sum(), 1.0) - real).sum())
            errors.append(float(np.mean(off)))
        found[way] = errors[0], errors[1]
    return found


def measure_coverage(name: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return how many answers about persons were given, in what share the interval holds, its width, and the error.

    Asked are, of every column of few values, the shares of persons that ever and always have each value.
    """
    rows, columns = load(name)
    person, found = TABLES[name]["person"], []
    few = [n for n, c in columns.items() if c["kind"] == "categorical" and len(c["values"]) <= MOST_LEVELS]
    release = open_in_memory(rows, build_spec(name, columns, epsilon, seed), seed)
    for column in few:
        for value, when in product(columns[column]["values"], ("ever", "always")):
            holds = (rows[column] == value).groupby(rows[person].to_numpy())
            real = float((holds.any() if when == "ever" else holds.all()).mean())
            asked = release.persons(f"{when}({column} == {value!r})", share=True).iloc[0]
            inside = asked["low"] <= real <= asked["high"]
            found.append((inside, asked["high"] - asked["low"], abs(asked["estimate"] - real)))
    held, width, off = np.array(found, dtype=float).mean(axis=0)
    return {"answers": len(found), "interval holds": held, "mean width": width, "mean error": off}


def open_in_memory(rows: pd.DataFrame, spec: ReleaseSpec, seed: int) -> Questions:
    """Return what answers questions about a release with seeded noise."""
    request = Request(spec, tuple(n for n in rows.columns if n in spec.released_columns), 2)
    steps, batches = build_steps(request), pa.Table.from_pandas(rows, preserve_index=False).to_batches(65_536)
    made = MemoryRun(request, steps, draw_from_seed(seed), PrivateAccess(lambda repairs=None: batches)).run()
    release = Questions()
    release.__dict__["_counts"] = MemoryCounts.of_run(request, name_by_files(steps, made))
    return release


NAMED_ROWS = 3
"""Seeds with which rows are made for answers about persons that a workload names; with others only counts are drawn."""


def measure_named(name: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return how answers about persons that a workload names hold, and how far rows are off, with and without naming.

    Shares of persons, in all and by the groups of NAMED.
    """
    rows, columns = load(name)
    person, found = TABLES[name]["person"], []
    questions = [f"share({what}){f' by {by}' if by else ''}" for what, by, _ in NAMED[name]]
    spec = build_spec(name, columns, epsilon, seed, workload=[{"question": question} for question in questions])
    release, tables = draw_counts(rows, spec, seed), [rows.sort_values([person, TABLES[name]["order"]])]
    if seed < NAMED_ROWS:
        tables += [synthesize(rows, s, seed, 2) for s in (spec, build_spec(name, columns, epsilon, seed))]
    for question, (_, by, holds) in zip(questions, NAMED[name], strict=True):
        true, *made = (_share_by(table, person, by, holds) for table in tables)
        for _, asked in answer(release, question).iterrows():
            group = asked[by] if by else ""
            if group in true:  # rare values are one level together
                off = [abs(of.get(group, 0.0) - true[group]) for of in made] or [np.nan, np.nan]
                inside = asked["low"] <= true[group] <= asked["high"]
                found.append((inside, asked["high"] - asked["low"], abs(asked["estimate"] - true[group]), *off))
    heads = ("interval holds", "mean width", "mean error", "error of rows", "error of rows, nothing named")
    return {"answers": len(found), **dict(zip(heads, np.array(found, dtype=float).mean(axis=0), strict=True))}


def draw_counts(rows: pd.DataFrame, spec: ReleaseSpec, seed: int) -> Questions:
    """Return what answers questions from the counts of a release with seeded noise, of which no rows are made."""
    request = Request(spec, tuple(n for n in rows.columns if n in spec.released_columns), 2)
    steps, batches = build_steps(request), pa.Table.from_pandas(rows, preserve_index=False).to_batches(65_536)
    counting = steps[: [step.name for step in steps].index("measure_sets") + 1]
    made = MemoryRun(request, counting, draw_from_seed(seed), PrivateAccess(lambda repairs=None: batches)).run()
    places = {file: place.split(".") for file, place in list_published_files(steps).items()}
    tables = {file: made[step][table] for file, (step, table) in places.items() if step in made}
    release = Questions()
    release.__dict__["_counts"] = MemoryCounts.of_run(request, {**tables, "synthetic.parquet": pa.table({})})
    return release


def _share_by(table: pd.DataFrame, person: str, by: str, holds: Callable[[Any], pd.Series]) -> dict[str, float]:
    """Return the share of persons that a statement holds of in each group; without ``by`` the one group has no name."""
    texts = [name for name, of in table.items() if not pd.api.types.is_numeric_dtype(of)]
    of_each = table.astype(dict.fromkeys(texts, str)).groupby(person, sort=False)
    group = of_each[by].first().astype(str) if by else of_each.size().astype(str).str.slice(0, 0)
    return dict(holds(of_each).groupby(group).mean())


Measure = Callable[[int], Mapping[str, float]]
"""Returns the figures of one seed."""


def print_means(measured: Iterable[tuple[Mapping[str, str], Measure]], seeds: int) -> None:
    """Print a table of means over seeds, a row for each of ``measured``: what it is of, and its figures by seed."""
    head = False
    for labels, measure in measured:
        start = time.process_time()
        found = [measure(seed) for seed in range(seeds)]
        seconds = (time.process_time() - start) / seeds
        if not head:
            names = [*labels, *found[0], "CPU seconds"]
            print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
            head = True
        means = [f"{np.nanmean([f[key] for f in found]):.3f}" for key in found[0]]
        print(f"| {' | '.join([*labels.values(), *means, f'{seconds:.0f}'])} |", flush=True)


def main() -> None:
    """Print a row for every table, epsilon and way: means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=["rwm5yr", "males"], choices=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--widths", nargs="+", type=float, default=[1.0], help="how many times as wide bounds are")
    parser.add_argument("--persistence", action="store_true", help="of one table: what linked rows keep of each number")
    parser.add_argument("--counts", action="store_true", help="what is best counted of a person's rows")
    parser.add_argument("--persons", action="store_true", help="how often intervals of answers about persons hold")
    parser.add_argument("--named", action="store_true", help="the same where the spec names the questions, and rows")
    asked = parser.parse_args()
    if asked.counts:
        print("| table | epsilon | counted | one column | two columns |\n|---|---|---|---|---|")
        for name, epsilon in product(asked.tables, asked.epsilons):
            for way, (alone, pairs) in compare_counts(name, epsilon, asked.seeds).items():
                print(f"| {name} | {epsilon:g} | {way} | {alone:.3f} | {pairs:.3f} |", flush=True)
        return
    measured: list[tuple[dict[str, str], Measure]] = []
    for name, epsilon in product(asked.tables, asked.epsilons):
        labels = {"table": name, "epsilon": f"{epsilon:g}"}
        if asked.named or asked.persons:
            measured.append((labels, partial(measure_named if asked.named else measure_coverage, name, epsilon)))
            continue
        if asked.persistence:
            for width in asked.widths:
                by_width = {**labels, "bounds": f"x{width:g}"}
                measured.append((by_width, partial(measure_persistence, name, epsilon, width)))
            continue
        for width, way in product(asked.widths, asked.ways):
            measured.append(
                ({**labels, "bounds": f"x{width:g}", "way": way}, partial(score_way, name, epsilon, way, width))
            )
    print_means(measured, asked.seeds)


def score_way(name: str, epsilon: float, way: str, width: float, seed: int) -> dict[str, float]:
    """Return the figures of rows that are made one way, with bounds of numbers ``width`` times as wide."""
    rows, columns = load(name)
    widened = widen(columns, width, [TABLES[name]["order"]])
    return score(name, rows, MAKE[way](name, rows, widened, epsilon, seed), columns)


if __name__ == "__main__":
    main()
