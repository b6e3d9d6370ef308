"""Coverage of the answers' intervals on public tables: ``python -m benchmarks.coverage [--seeds N] [--markdown]``.

Releases are made in memory with seeded noise: nothing here is a release.  Every answer's 95 % interval is compared
with the table's own value.  Finished releases are kept in coverage.jsonl and not made again.  Beside each kind of
answer stands the interval of the rows taken as a sample (naive).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.tables import FOLDER, keep_present, table_spec
from privsyn.answers.cells import compute_row_numbers
from privsyn.answers.conditions import read_condition
from privsyn.answers.counted import answer_counts, answer_means, answer_shares
from privsyn.answers.number_columns import answer_correlations, answer_quantiles, list_number_columns
from privsyn.answers.question import Question
from privsyn.answers.released_counts import MemoryCounts, ReleasedCounts
from privsyn.answers.simulated import Kind, answer_function, answer_regression, list_unmeasured_pairs
from privsyn.answers.unmeasured import read_row_codes, sum_rows
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed, name_by_files
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.specs.spec_file import load_spec

HERE = Path(__file__).parent
KEPT = HERE / "coverage.jsonl"
TABLES = ("adult", "gss_happiness", "national2019", "ma2019", "social_diagnosis2011", "support2")
SMALL = {
    "adult-small": ("age", "education-num", "sex", "income", "hours-per-week"),
    "support2-small": ("age", "sex", "event", "meanbp", "wblc"),
    "gss_happiness-small": ("educ", "prestige", "tvhours", "happy", "region"),
    "national2019-small": ("AGEP", "SEX", "EDU", "POVPIP", "OWN_RENT"),
    "ma2019-small": ("AGEP", "SEX", "EDU", "POVPIP", "OWN_RENT"),
    "social_diagnosis2011-small": ("age", "sex", "income", "edu", "marital"),
}
"""Tables of a few columns and SMALL_ROWS rows, drawn once, for what is simulated."""
OPEN = "-open"
"""Ends the name of a table without bins of its own."""
SMALL_ROWS = 4_000
ZEROS = {"census_income-zeros": "wage_per_hour", "national2019-zeros": "PINCP"}
"""Tables one of whose columns has 0 as an exact value, as its codebook says: no wage, no income."""

EXAMPLES = {"adult": "adult.yaml", "gss_happiness": "gss.yaml"}
EPSILONS = (0.2, 1.0, 5.0)
FEWEST = 20
"""Kinds of fewer answers are not shown."""
PAIRS, TRIPLES, REGRESSIONS, LEVEL = 6, 3, 3, 0.95


@dataclass(frozen=True)
class Truth:
    """A public table as its spec sees it: values in the released types, and the tables of the encoding step."""

    request: Request
    values: pa.Table
    encoded: Mapping[str, pa.Table]


def spec_of(name: str, epsilon: float) -> ReleaseSpec:
    """Return the table's spec at this epsilon."""
    if name.endswith(OPEN):
        content = spec_of(name.removesuffix(OPEN), epsilon).model_dump(mode="json", exclude_unset=True)
        columns = {c: {k: v for k, v in column.items() if k != "bins"} for c, column in content["columns"].items()}
        return ReleaseSpec.model_validate({**content, "columns": columns, "mechanism": {"name": "privsyn"}})
    if name in SMALL:
        spec = spec_of(name.removesuffix("-small"), epsilon)
        columns = {c: spec.columns[c] for c in SMALL[name]}
        return spec.model_copy(update={"columns": columns, "rules": (), "dataset": name.replace("-", "_")})
    if name in ZEROS:
        spec = spec_of(name.removesuffix("-zeros"), epsilon)
        column = spec.columns[ZEROS[name]]
        exact = type(column).model_validate({**column.model_dump(), "exact": [0]})
        return spec.model_copy(update={"columns": {**spec.columns, ZEROS[name]: exact}})
    if name in EXAMPLES:
        spec = load_spec(HERE.parent / "examples" / EXAMPLES[name])
        privacy = spec.privacy.model_copy(update={"epsilon": epsilon})
        budget = spec.budget.model_copy(update={"epsilon": 1000.0})
        return spec.model_copy(update={"data": str(FOLDER / f"{name}.parquet"), "privacy": privacy, "budget": budget})
    return table_spec(name, epsilon)


@cache
def truth_of(name: str) -> Truth:
    """Return the table's own rows."""
    spec = spec_of(name, 1.0)
    source = pq.read_table(spec.data)
    if name.removesuffix(OPEN) in SMALL:
        source = source.take(np.sort(np.random.default_rng(0).permutation(source.num_rows)[:SMALL_ROWS]))
    order = tuple(c for c in source.column_names if c in spec.released_columns)
    request = Request(spec, order, 1)
    access = PrivateAccess(lambda repairs=None: source.to_batches(65_536))
    first = build_steps(request)[:1]
    encoded = MemoryRun(request, first, lambda step, queries: [], access).run()["encode"]
    values = {}
    for codec in request.encoding.codecs:
        own = {name: source[name].combine_chunks() for name in codec.sources}
        codes = codec.encode(own)[0]
        found = codec.read(own) if codec.in_order else codec.decode(codes, np.random.default_rng(0))
        for column, kind in codec.ranges().items():
            values[column] = _as_released(found[column], kind.type) if codec.in_order else found[column]
    return Truth(request, pa.table(values), encoded)


def release(name: str, epsilon: float, seed: int) -> tuple[MemoryCounts, MemoryCounts]:
    """Return a release in memory, and the same with the table's own rows in the place of its rows."""
    truth = truth_of(name)
    request = Request(spec_of(name, epsilon), truth.request.column_order, 1)
    steps, draw = build_steps(request), draw_from_seed(10_000 * seed + int(epsilon * 10))

    access = PrivateAccess(lambda repairs=None: iter(()))
    made = MemoryRun(request, steps, draw, access, {"encode": truth.encoded}).run()
    tables = name_by_files(steps, made)
    mine = MemoryCounts.of_run(request, tables)
    return mine, MemoryCounts.of_run(request, {**tables, "synthetic.parquet": truth.values})


@dataclass
class Tally:
    """Coverage of one kind of answers: how many, how many intervals hold the truth, widths and naive ones."""

    answers: int = 0
    held: int = 0
    not_known: int = 0
    width: float = 0.0
    naive_held: int = 0
    naive_width: float = 0.0

    def add(self, low: Any, high: Any, truth: Any, naive: tuple[Any, Any] | None = None) -> None:
        """Add answers of one shape; NaN intervals are not known."""
        low, high, truth = (np.atleast_1d(np.asarray(v, dtype=float)) for v in (low, high, truth))
        there = np.isfinite(truth)
        known = there & np.isfinite(low) & np.isfinite(high)
        slack = 1e-9 * np.maximum(np.abs(truth), 1)
        self.answers += int(known.sum())
        self.not_known += int((there & ~known).sum())
        self.held += int(((low - slack <= truth) & (truth <= high + slack))[known].sum())
        self.width += float((high - low)[known].sum())
        if naive is not None:
            estimate, half = (np.broadcast_to(np.asarray(v, dtype=float), truth.shape) for v in naive)
            sure = known & np.isfinite(estimate) & np.isfinite(half)
            self.naive_held += int((np.abs(truth - estimate) <= half + slack)[sure].sum())
            self.naive_width += float(2 * half[sure].sum())


def measure(name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Return one release: the tally of every kind of answers."""
    started = time.perf_counter()
    mine, truth = release(name, epsilon, seed)
    made = time.perf_counter() - started
    rng = np.random.default_rng(seed)
    tallies: dict[str, Tally] = defaultdict(Tally)
    numbers, flat = list_number_columns(mine), [c for c in mine.columns if not mine.codecs[c].in_order]
    measured = list({c.attributes for c in mine.joint if len(c.attributes) == 2})
    others = [p for p in combinations(mine.columns, 2) if not any(set(p) <= set(c.attributes) for c in mine.joint)]
    for column in mine.columns:
        _counts(tallies["counts of one column"], mine, truth, (column,))
    for pair in _some(rng, measured, PAIRS):
        _counts(tallies["counts of measured pairs"], mine, truth, pair)
        for a, b in (pair, pair[::-1]):
            if b in flat:
                _shares(tallies["shares in measured pairs"], mine, truth, a, b)
    for pair in _some(rng, others, PAIRS):
        _counts(tallies["counts of pairs not measured"], mine, truth, pair)
        for a, b in (pair, pair[::-1]):
            if b in flat:
                _shares(tallies["shares in pairs not measured"], mine, truth, a, b)
    for triple in _some(rng, list(combinations(mine.columns, 3)), TRIPLES):
        if mine.domain.cells(triple) <= 3_000:
            _counts(tallies["counts of triples"], mine, truth, triple)
    for column in numbers:
        exact = _single_values(mine, column)
        _means(tallies[f"means, {'a cell a value' if exact else 'of binned columns'}"], mine, truth, (), column)
        _quantiles(tallies["quantiles"], mine, truth, column)
        for _ in range(2):
            below = _cut(mine, column, rng)
            _counts(tallies["counts where a condition cuts cells"], mine, truth, (), below)
    for pairs, words in ((measured, "measured"), (others, "not measured")):
        for pair in _some(rng, [p for p in pairs if set(p) & {*numbers} and set(p) & {*flat}], PAIRS):
            a, b = pair if pair[0] in flat else pair[::-1]
            if b in numbers and b not in flat:
                _means(tallies[f"means in groups, {words}"], mine, truth, (a,), b)
    _correlations(tallies, mine, truth, [c for c in numbers if c not in flat])
    return {
        "table": name,
        "epsilon": epsilon,
        "seed": seed,
        "seconds": round(made, 2),
        "answering": round(time.perf_counter() - started - made, 2),
        "tallies": {kind: [round(v, 6) for v in vars(t).values()] for kind, t in tallies.items()},
    }


def measure_simulated(name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Return one release of a small table.

    Regressions on two columns, medians, and means in groups, with simulated errors.
    """
    started = time.perf_counter()
    mine, truth = release(name, epsilon, seed)
    rng = np.random.default_rng(seed)
    tallies: dict[str, Tally] = defaultdict(Tally)
    numbers = [c for c in list_number_columns(mine) if mine.codecs[c].in_order]
    triples = [t for t in combinations(mine.columns, 3) if not list_unmeasured_pairs(mine, t) and {*t} & {*numbers}]
    for triple in _some(rng, triples, REGRESSIONS):
        target = next(c for c in triple if c in numbers)
        formula = f"`{target}` ~ " + " + ".join(f"`{c}`" for c in triple if c != target)
        _regression(tallies["linear regressions"], mine, truth, formula, "linear")
    for group, column in (
        (g, c)
        for g in mine.columns
        if pa.types.is_string(truth.table[g].type)
        for c in numbers
        if not list_unmeasured_pairs(mine, (g, c))
    ):
        mean = lambda rows: rows.iloc[:, 1].astype(float).groupby(rows.iloc[:, 0].astype(str)).mean()  # noqa: E731
        found = answer_function(mine, mean, [group, column], LEVEL, lambda done, total: None)
        own = mean(truth.table.select([group, column]).to_pandas())
        wide = float(np.nanstd(compute_row_numbers(truth, column))) or 1.0
        true = np.array([own.get(name, np.nan) for name in found.names]) / wide
        tallies["means in groups by estimate()"].add(found.low / wide, found.high / wide, true)
    for column in numbers:
        median = lambda rows: rows.iloc[:, 0].astype(float).median()  # noqa: E731
        found = answer_function(mine, median, [column], LEVEL, lambda done, total: None)
        spread = float(np.nanstd(compute_row_numbers(truth, column))) or 1.0
        tallies["medians by estimate()"].add(
            found.low / spread, found.high / spread, median(truth.table.select([column]).to_pandas()) / spread
        )
    return {
        "table": name,
        "epsilon": epsilon,
        "seed": seed,
        "part": "simulated",
        "seconds": round(time.perf_counter() - started, 2),
        "tallies": {kind: [round(v, 6) for v in vars(t).values()] for kind, t in tallies.items()},
    }


def measure_logistic(name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Return one release of a small table: logistic regressions of each column of two values on each one of numbers."""
    started = time.perf_counter()
    mine, truth = release(name, epsilon, seed)
    tally = Tally()
    targets = [c for c in mine.columns if len({*mine.codecs[c].labels()} - {"(null)", "other"}) == 2]
    for target, column in product(targets, list_number_columns(mine)):
        if target != column and mine.codecs[column].in_order and not list_unmeasured_pairs(mine, (target, column)):
            _regression(tally, mine, truth, f"`{target}` ~ `{column}`", "logistic")
    return {
        "table": name,
        "epsilon": epsilon,
        "seed": seed,
        "part": "logistic",
        "seconds": round(time.perf_counter() - started, 2),
        "tallies": {"logistic regressions": [round(v, 6) for v in vars(tally).values()]},
    }


def _regression(tally: Tally, mine: MemoryCounts, truth: MemoryCounts, formula: str, kind: Kind) -> None:
    found, _ = answer_regression(mine, formula, kind, LEVEL, lambda done, total: None)
    real, _ = answer_regression(_with_levels(truth, mine), formula, kind, LEVEL, lambda done, total: None)
    scale = np.nan_to_num(np.maximum(np.abs(found.std_error), 1e-12), nan=1.0)
    place = {term: i for i, term in enumerate(real.names)}
    value = np.array([real.estimate[place[term]] if term in place else np.nan for term in found.names])
    tally.add(found.low / scale, found.high / scale, value / scale)


def _with_levels(truth: MemoryCounts, mine: MemoryCounts) -> MemoryCounts:
    """Return table's own rows whose values the release's rows have, too, so that both have the same coefficients."""
    keep = np.ones(truth.table.num_rows, dtype=bool)
    for column in mine.columns:
        if pa.types.is_string(truth.table[column].type):
            there = mine.table[column].unique()
            keep &= np.asarray(
                pc.or_kleene(pc.is_in(truth.table[column], value_set=there), pc.is_null(truth.table[column]))
            )
    rows = truth.table.filter(pa.array(keep))
    tables = {**mine.cache["tables"], "synthetic.parquet": rows}
    return MemoryCounts(truth.folder, truth.manifest, {"tables": tables, "replicates": [rows]})  # nothing to simulate


def _some(rng: np.random.Generator, items: list[Any], number: int) -> list[Any]:
    items = sorted(items)
    return [items[i] for i in rng.permutation(len(items))[:number]]


def _single_values(mine: ReleasedCounts, column: str) -> bool:
    lowest, highest = mine.reach[column] or (np.zeros(0), np.zeros(0))
    return bool(np.nansum(highest - lowest) == 0)


def _shown(found: Any, asked: Question) -> list[int]:
    labels = asked.cells.indicators(asked.by)[0] if asked.columns else [()]
    place = {label: i for i, label in enumerate(labels)}
    return [place[label] for label in found.labels]


def _counts(
    tally: Tally, mine: ReleasedCounts, truth: ReleasedCounts, by: tuple[str, ...], where: str | None = None
) -> None:
    by = tuple(c for c in mine.columns if c in by)
    asked = Question.of(mine, by, where)
    found = answer_counts(asked, LEVEL)
    at = _shown(found, asked)
    real = sum_rows(truth, asked.columns, by, asked.where)[at]
    rows = sum_rows(mine, asked.columns, by, asked.where)[at]
    n = mine.table.num_rows
    tally.add(found.low, found.high, real, (rows, 1.96 * np.sqrt(rows * (1 - rows / n))))


def _shares(tally: Tally, mine: ReleasedCounts, truth: ReleasedCounts, by: str, column: str) -> None:
    value = mine.codecs[column].decode(np.zeros(1, dtype=np.int64), np.random.default_rng(0))[column][0].as_py()
    event = read_condition(f"`{column}` is null" if value is None else f"`{column}` == {value!r}", mine.language)
    asked = Question.of(mine, (by,), None, (column,))
    found = answer_shares(asked, event, LEVEL)
    at, part = _shown(found, asked), []
    for released in (truth, mine):
        whole = sum_rows(released, asked.columns, (by,), None)[at]
        part.append((sum_rows(released, asked.columns, (by,), event)[at] / np.where(whole > 0, whole, np.nan), whole))
    (real, _), (p, n) = part
    tally.add(found.low, found.high, real, (p, 1.96 * np.sqrt(p * (1 - p) / n)))


def _as_released(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Numbers as values of this type; moments come in seconds."""
    if pa.types.is_temporal(type_):
        micros = np.round(np.nan_to_num(numbers.to_numpy(zero_copy_only=False)) * 1e6).astype(np.int64)
        return pa.array(micros, mask=np.asarray(numbers.is_null())).cast(pa.timestamp("us")).cast(type_, safe=False)
    return numbers.cast(type_, safe=False)


def _means(tally: Tally, mine: ReleasedCounts, truth: ReleasedCounts, by: tuple[str, ...], column: str) -> None:
    asked = Question.of(mine, by, None, (column,))
    found = answer_means(asked, column, LEVEL)
    at, figures = _shown(found, asked), []
    for released in (truth, mine):
        values = compute_row_numbers(released, column)
        there = np.isfinite(values).astype(float)
        n = sum_rows(released, asked.columns, by, None, there)[at]
        with np.errstate(all="ignore"):
            mean = sum_rows(released, asked.columns, by, None, np.nan_to_num(values))[at] / n
            square = sum_rows(released, asked.columns, by, None, np.nan_to_num(values) ** 2)[at] / n
            figures.append((mean, np.sqrt(np.maximum(square - mean**2, 0) / n)))
    spread = float(np.nanstd(compute_row_numbers(truth, column))) or 1.0
    (real, _), (p, error) = figures
    tally.add(found.low / spread, found.high / spread, real / spread, (p / spread, 1.96 * error / spread))


def _quantiles(tally: Tally, mine: ReleasedCounts, truth: ReleasedCounts, column: str) -> None:
    found = answer_quantiles(Question.of(mine, (), None, (column,)), column, [0.1, 0.5, 0.9], LEVEL)
    values = compute_row_numbers(truth, column)
    spread = float(np.nanstd(values)) or 1.0
    real = np.nanquantile(values, [0.1, 0.5, 0.9], method="inverted_cdf")
    tally.add(found.low / spread, found.high / spread, real / spread)


def _cut(mine: ReleasedCounts, column: str, rng: np.random.Generator) -> str:
    lowest, highest = mine.reach[column] or (np.zeros(0), np.zeros(0))
    codes = read_row_codes(mine, column)
    cell = int(codes[rng.integers(len(codes))])
    while not np.isfinite(lowest[cell]):
        cell = int(np.flatnonzero(np.isfinite(lowest))[0])
    at = lowest[cell] + rng.random() * (highest[cell] - lowest[cell])
    if pa.types.is_boolean(mine.codecs[column].ranges()[column].type):
        return f"`{column}`"
    return f"`{column}` <= {at!r}".replace("np.float64(", "").replace(")", "")


def _correlations(tallies: dict[str, Tally], mine: ReleasedCounts, truth: ReleasedCounts, columns: list[str]) -> None:
    real = {c: compute_row_numbers(truth, c) for c in columns[:12]}
    rows = {c: compute_row_numbers(mine, c) for c in columns[:12]}
    for found in answer_correlations(mine, columns[:12], LEVEL):
        r, _ = _pearson(real[found.a], real[found.b])
        p, m = _pearson(rows[found.a], rows[found.b])
        kind = "not measured" if found.source in ("model", "not known") else "measured"
        half = 1.96 * (1 - p**2) / np.sqrt(max(m, 4) - 3)
        tallies[f"correlations, {kind}"].add(found.low, found.high, r, (p, half))


def _pearson(a: Any, b: Any) -> tuple[float, int]:
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < 3 or np.std(a[both]) == 0 or np.std(b[both]) == 0:
        return float("nan"), 0
    return float(np.corrcoef(a[both], b[both])[0, 1]), int(both.sum())


def kept() -> list[dict[str, Any]]:
    """Return the finished releases."""
    if not KEPT.exists():
        return []
    return [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown: coverage by kind of answer, at each epsilon, beside that of the naive intervals."""
    groups: dict[str, dict[float, Tally]] = defaultdict(lambda: defaultdict(Tally))
    for line in lines:
        for kind, figures in line["tallies"].items():
            tally = groups[kind][line["epsilon"]]
            for name, value in zip(vars(Tally()), figures, strict=True):
                setattr(tally, name, getattr(tally, name) + value)
    yield "| answers | number | held by the interval | naive: held |"
    yield "|---|---|---|---|"
    for kind, by_epsilon in sorted(groups.items()):
        tallies = [by_epsilon[epsilon] for epsilon in EPSILONS]
        held = ", ".join(f"{t.held / t.answers:.1%}" if t.answers else "-" for t in tallies)
        naive = ", ".join(f"{t.naive_held / t.answers:.1%}" for t in tallies if t.naive_width and t.answers)
        if (answers := sum(t.answers for t in tallies)) >= FEWEST:
            yield f"| {kind} | {answers:,} | {held} | {naive} |"


def main() -> None:
    """Make what is missing, one release after another, and print the table."""
    parser = argparse.ArgumentParser(description="Coverage of the answers' intervals on public tables.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--markdown", action="store_true", help="print the table of the finished releases only")
    parser.add_argument("--simulated", action="store_true", help="regressions and medians, with simulated errors")
    parser.add_argument("--open-bins", action="store_true", help="the small tables without bins of their own")
    arguments = parser.parse_args()
    every = SMALL if arguments.simulated else TABLES
    tables = arguments.tables or keep_present(every, "-small")
    parts = {"simulated": measure_simulated, "logistic": measure_logistic} if arguments.simulated else {"": measure}
    done = {(line["table"], line["epsilon"], line["seed"], line.get("part", "")) for line in kept()}
    if arguments.open_bins:
        tables = [f"{t}{OPEN}" for t in arguments.tables or SMALL if not t.startswith("ma2019")]  # held out
    jobs = product(range(0 if arguments.markdown else arguments.seeds), tables, EPSILONS, parts)
    for seed, name, epsilon, part in jobs:
        if (name, epsilon, seed, part) not in done:
            found = parts[part](name, epsilon, seed)
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(name, epsilon, seed, part, found["seconds"], flush=True)
    print("\n".join(summary([line for line in kept() if line["table"].endswith(OPEN) == arguments.open_bins])))


if __name__ == "__main__":
    main()
