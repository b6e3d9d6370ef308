"""Regressions and any function of a table: estimates from the rows, errors by simulation.

A simulation makes releases of the model: it counts the rows anew, adds noise like the receipts' noise, and repeats
every later step.  The spread of a statistic over these releases, around its value on the rows, is the error from noise
and post-processing (the parametric bootstrap).  Codes and measured marginals stay fixed.  No private table is read: the
synthetic rows take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from privsyn.answers.cells import as_released, check_column, compute_row_numbers, compute_values, convert_to_numbers
from privsyn.answers.conditions import make_unknown_column_error, refuse_unmeasured
from privsyn.answers.question import estimate_best_linear
from privsyn.answers.released_counts import Counts, ReleasedCounts, merge_recode
from privsyn.answers.unmeasured import read_row_codes
from privsyn.base.errors import RequestError
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.mechanism_options import AnyMechanism, PrivSyn
from privsyn.data_contracts.question_language import split_formula, strip_quotes
from privsyn.engine.memory import MemoryRun, Tables
from privsyn.pipelines.added_looks import COUNTED_FILE
from privsyn.pipelines.named_sets import MERGES_FILE
from privsyn.pipelines.rung_steps import CHOOSE
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.recode import Recode, recode_to_table, with_one_ways
from privsyn.tasks.estimation.rungs import RungCounts, pool_looks, share_rungs, tabulate_cuts
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.sample_estimates import fit_least_squares, fit_logistic
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.score_columns import count_trends, rank_asked_codes

if TYPE_CHECKING:
    import pandas as pd


SIMULATED_RELEASES = 25
"""Simulated releases behind one interval."""

MOST_BYTES = 1 << 30
"""Replicates that are larger together are not cached, but made anew for every question."""

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with (replicates done, replicates in total)."""


def iterate_replicates(released: ReleasedCounts, progress: Progress = lambda done, total: None) -> Iterator[pa.Table]:
    """Yield the rows of SIMULATED_RELEASES releases of the model, tables like the synthetic one.

    The replicates are cached if they are small.
    """
    cached = released.cache.get("replicates")
    if cached is not None:
        yield from cached
        return
    tables, size = [], 0
    for number in range(SIMULATED_RELEASES):
        progress(number, SIMULATED_RELEASES)
        table = make_replicate(released, number)
        size += table.nbytes
        if size <= MOST_BYTES:
            tables.append(table)
        yield table
    progress(SIMULATED_RELEASES, SIMULATED_RELEASES)
    if size <= MOST_BYTES:
        released.cache["replicates"] = tables


def make_replicate(released: ReleasedCounts, seed: int) -> pa.Table:
    """Return one release of the model; a function of the released folder and ``seed``."""
    noise = SeededNoise(seed)
    measured = {n: [_measure_again(released, c, noise) for c in every] for n, every in released.measured.items()}
    rungs = _count_rungs_again(released, noise)
    sums = _ask_sums_again(released, recode_by(released, measured, rungs), noise)
    return remake_rows(released, measured, sums=sums, rungs=rungs)


def make_unshrunk_rows(released: ReleasedCounts) -> pa.Table | None:
    """Return the rows that the release's counts give without shrinkage; None if its mechanism does not shrink.

    Shrinkage biases a count.  Releases of the model do not show that bias, because the model already contains it.
    """
    options = released.request.spec.mechanism
    if not isinstance(options, PrivSyn) or not options.consistency.shrink:
        return None
    unshrunk = options.having("consistency", shrink=False)
    return released.remember("unshrunk", lambda: remake_rows(released, released.measured, unshrunk))


def remake_rows(
    released: ReleasedCounts,
    measured: Mapping[str, Sequence[Counts]],
    mechanism: AnyMechanism | None = None,
    sums: Mapping[str, Sequence[Ints]] | None = None,
    rungs: Mapping[str, RungCounts] | None = None,
) -> pa.Table:
    """Return the rows that the release's own steps make from the counts ``measured`` instead of its own.

    From its own counts they make its own rows.

    ``mechanism``: other options for these steps; ``sums``: trend look, or step that asked sums -> other noisy sums;
    ``rungs``: attribute -> other counts of the first look.
    """
    tables_by_step: dict[str, Tables] = {}
    for name, file in released.list_files(LookKind.TRENDS).items():
        other = {} if sums is None else {"noisy": noisy.tabulate_answers(sums[name])}
        tables_by_step[name] = {**released.read_look(file), **other}
    for name, counts in measured.items():
        released_sums = [c.counts.astype(np.int64) for c in released.sums_beside[name]]
        sums_of_step = released_sums if sums is None else sums[name]
        tables_by_step[name] = {
            "noisy": noisy.tabulate_answers([*(c.counts.astype(np.int64) for c in counts), *sums_of_step]),
            "receipts": released.read(f"{released.noisy_files[name]}_receipts.parquet"),
        }
    for name, file in released.list_files(LookKind.VALUES).items():  # the counts of single values stay
        tables_by_step[name] = released.read_look(file)
        tables_by_step["find_heavy_cells"] = {"counted": released.read(COUNTED_FILE)}
    if released.sets:
        tables_by_step["plan_sets"] = {"merges": released.read(MERGES_FILE)}
    if any(step.cuts for step in released.steps):
        tables_by_step[CHOOSE] = {"cuts": tabulate_cuts(released.request.cuts)}
    recode = recode_by(released, measured, rungs)
    tables_by_step["compress_domain"] = {"recode": recode_to_table(recode, released.encoding.labels())}
    start = next(i for i, step in enumerate(released.steps) if step.name == "refine_codes")
    known_steps = (replace(step, inputs=()) for step in released.steps[:start] if step.name in tables_by_step)
    steps = [*known_steps, *released.steps[start:]]
    request = released.request
    if mechanism is not None:
        request = replace(request, spec=request.spec.by(mechanism))
    run = MemoryRun(request, steps, lambda step, queries: [], known_tables=tables_by_step)
    rows: pa.Table = run.run()["decode"]["synthetic"]
    return rows


def recode_by(
    released: ReleasedCounts, measured: Mapping[str, Sequence[Counts]], rungs: Mapping[str, RungCounts] | None = None
) -> Recode:
    """Return the release's codes with the first one-ways of ``measured`` and a first look; its own by default."""
    one_ways = next(iter(measured.values()))
    looks = released.rungs if rungs is None else rungs
    pooled = pool_looks(released.encoding, looks, [(c.attributes[0], c.sigma, c.counts) for c in one_ways])
    return with_one_ways(
        released.recode,
        {c.attributes[0]: y for c, y in zip(one_ways, pooled, strict=True)},
        {c.attributes[0]: c.sigma for c in one_ways},
        released.encoding.binning,
    )


def list_unmeasured_pairs(released: ReleasedCounts, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the pairs of these columns that are in no measurement."""
    inside = {pair for counts in released.joint for pair in combinations(counts.attributes, 2)}
    order = [a for a in released.attributes if a in columns]
    return [pair for pair in combinations(order, 2) if pair not in inside]


def _ask_sums_again(released: ReleasedCounts, recode: Recode, noise: SeededNoise) -> dict[str, list[Ints]]:
    """Return the sums of every trend look and counting step on the model's rows, with new noise of the same scale."""
    first_sums = {name: len(counts) for name, counts in released.measured.items()}
    sums: dict[str, list[Ints]] = {}
    for name, first in {**dict.fromkeys(released.list_files(LookKind.TRENDS), 0), **first_sums}.items():
        queries = noisy.read_receipts(released.read(f"{released.noisy_files[name]}_receipts.parquet"))[first:]
        if not queries:
            sums[name] = []
            continue
        ranks = rank_asked_codes(recode, released.encoding.binning, queries)
        sizes = {a: r.score.size for a, r in ranks.items()}
        coarse = {a: released.recode[a].coarse[read_row_codes(released, a)] for a in sizes}
        codes = {a: coarse[a].astype(choose_code_dtype(size)) for a, size in sizes.items()}
        rows = CodeTable(Domain.of({a: size - 1 for a, size in sizes.items()}), tuple(codes.values()), padded=True)
        exact = count_trends(rows, queries, 1, {a: r.score for a, r in ranks.items()})
        sums[name] = [y + noise.draw(q.sigma, 1) for y, q in zip(exact, queries, strict=True)]
    return sums


def _count_rungs_again(released: ReleasedCounts, noise: SeededNoise) -> dict[str, RungCounts]:
    """Return the first look at the model's rows, with new noise of the same scale; a cell's rows lie evenly in it."""
    again, uncut = {}, released.encoding.uncut or released.encoding
    before = {codec.attribute: codec for codec in uncut.codecs}
    for a, (query, y) in released.rungs.items():
        codec, rungs = released.codecs[a], before[a]
        assert isinstance(codec, OrderedCodec) and isinstance(rungs, OrderedCodec)  # noqa: S101 - these have rungs
        exact = np.bincount(read_row_codes(released, a), minlength=codec.size) @ share_rungs(codec, rungs)
        again[a] = query, exact + noise.draw(query.sigma, len(y))
    return again


def _find_cells(released: ReleasedCounts, attributes: Clique, recode: Recode) -> tuple[Ints, Ints]:
    """Return the synthetic rows that have a cell of ``attributes``, and their cells, flat; fine codes of one column."""
    codes = [read_row_codes(released, a) for a in attributes]
    if len(attributes) == 1:
        return np.arange(len(codes[0])), codes[0]
    sizes = [recode[a].size for a in attributes]
    coarse = [recode[a].coarse[c] for a, c in zip(attributes, codes, strict=True)]
    rows = np.flatnonzero(np.logical_and.reduce([c < size for c, size in zip(coarse, sizes, strict=True)]))
    return rows, np.ravel_multi_index([c[rows] for c in coarse], sizes)


def _measure_again(released: ReleasedCounts, counts: Counts, noise: SeededNoise) -> Counts:
    """Return the same counts on the model's rows, with new noise of the same scale."""
    _, cells = _find_cells(released, counts.attributes, merge_recode(released.recode, counts))
    exact = np.bincount(cells, minlength=counts.counts.size)
    return counts._replace(counts=(exact + noise.draw(counts.sigma, exact.size)).astype(np.float64))


Floats = NDArray[np.float64]
Kind = Literal["linear", "logistic"]

MOST_CUT = 0.1
"""A logistic regression has no interval if noise can make up more than this share of the rarer value's rows."""

CUT_NOISE_WARNING = (
    "Noise cut at 0 can exceed a tenth of the rows of the rarer value. It draws the coefficients of a logistic "
    "regression towards 0 by an unknown amount."
)

LINKED_ROWS_WARNING = "Releases of linked rows are not simulated, so the error is unknown here."

PRIOR_WARNING = (
    "Releases with a prior are not simulated, since their folder lacks the prior's rows. The error is unknown here."
)


class Simulated(NamedTuple):
    """Figures of a table by name, each of shape (figures,).

    ``missing``: unmeasured pairs of its columns; ``why``: another reason why the error is unknown.
    """

    names: list[str]
    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    source: str
    missing: list[tuple[str, str]]
    why: str = ""


def simulate_answer(
    released: ReleasedCounts,
    columns: Sequence[str],
    figures: Callable[[pa.Table], tuple[list[str], Floats]],
    level: float,
    progress: Progress,
) -> Simulated:
    """Return ``figures`` of the rows' ``columns``, with the error that noise and post-processing bring.

    The standard error starts from the root mean square difference to the rows' own figures over the releases of the
    model, so it includes bias.  It adds the change of the figures without shrinkage, and the change when the rows are
    reweighted to the released counts.  Positions inside cells are unknown, so it adds half the change when all values
    move to one end of their cells.  For the same reason it adds half the change when values rise or fall together
    inside their cells.

    The error is unknown if a pair of the columns was not measured, if rows are linked, or if the release has a prior.
    """
    columns = list(columns)
    names, estimate = figures(released.table.select(columns))
    missing = list_unmeasured_pairs(released, released.language.list_attributes(tuple(columns)))
    nothing = np.full(len(names), np.nan)
    why = PRIOR_WARNING if released.request.has_prior else ""
    why = why if released.request.spec.panel is None else LINKED_ROWS_WARNING
    if missing or why:
        return Simulated(names, estimate, nothing, nothing, nothing, "not known", missing, why)

    def differ(table: pa.Table) -> Floats:
        by_name = dict(zip(*figures(table), strict=True))
        others = [by_name.get(name, np.nan) for name in names]  # such as a group without rows
        return np.array(others, dtype=np.float64) - estimate

    differences = [differ(table.select(columns)) for table in iterate_replicates(released, progress)]
    elsewhere = [differ(place_rows(released, columns, end)) for end in (0, 1)]
    together = [differ(arrange_rows(released, columns, way)) for way in (-1, 1)]
    unknown = (np.max(np.abs(elsewhere), axis=0) ** 2 + np.max(np.abs(together), axis=0) ** 2) / 4
    free = make_unshrunk_rows(released)
    shrunk = 0.0 if free is None else differ(free.select(columns))
    kept_to = differ(refit_rows(released, columns).select(columns))
    bias = np.square(shrunk) + np.square(kept_to)
    error = np.sqrt(np.mean(np.square(differences), axis=0) + unknown + bias)
    factor = float(stdtrit(len(differences), 0.5 + level / 2))
    return Simulated(names, estimate, error, estimate - factor * error, estimate + factor * error, "simulated", [])


def arrange_rows(released: ReleasedCounts, columns: Sequence[str], direction: int) -> pa.Table:
    """Return the rows' columns, numbers permuted inside cells to rise (1) or fall (-1) with another column.

    The first column follows the order of the second; all others follow the first.  Counts of cells stay.
    """
    needed = released.language.book.find_measured_columns(tuple(columns))
    moved = {name: released.table[name] for name in released.table.column_names}
    for name in needed if len(needed) > 1 else ():
        if name in released.reach and released.codecs[name].in_order:
            other = released.language.attributes.get(needed[1] if name == needed[0] else needed[0], needed[0])
            cell = released.recode[name].coarse[read_row_codes(released, name)]
            numbers = compute_row_numbers(released, name)
            target = np.lexsort((direction * read_row_codes(released, other), cell))
            source = np.lexsort((numbers, cell))
            moved[name] = released.table[name].combine_chunks().take(pa.array(source[np.argsort(target)]))
    return pa.table({c: compute_values(c, released.every_codec[c], released.language, moved) for c in columns})


def place_rows(released: ReleasedCounts, columns: Sequence[str], end: int) -> pa.Table:
    """Return the rows' columns, every number at the lower (0) or the upper (1) end of its cell."""
    moved = {name: released.table[name] for name in released.table.column_names}
    for name in released.language.book.find_measured_columns(tuple(columns)):
        reach = released.reach.get(name)
        if reach is not None and released.codecs[name].in_order:
            moved[name] = as_released(reach[end][read_row_codes(released, name)], moved[name].type)
    return pa.table({c: compute_values(c, released.every_codec[c], released.language, moved) for c in columns})


def answer_function(
    released: ReleasedCounts,
    function: Callable[[pd.DataFrame], Any],
    columns: Sequence[str],
    level: float,
    progress: Progress,
) -> Simulated:
    """Return ``function`` of a pandas table of ``columns``: a number, a mapping, a Series or a list of numbers."""
    for name in columns:
        check_column(released, name)

    def figures(table: pa.Table) -> tuple[list[str], Floats]:
        answer = function(table.to_pandas())
        if hasattr(answer, "items"):
            pairs = list(answer.items())
            return [str(name) for name, _ in pairs], np.array([float(value) for _, value in pairs])
        values = np.atleast_1d(np.asarray(answer, dtype=np.float64)).ravel()
        return [str(i) if len(values) > 1 else "value" for i in range(len(values))], values

    return simulate_answer(released, columns, figures, level, progress)


def answer_regression(
    released: ReleasedCounts, formula: str, kind: Kind | None, level: float, progress: Progress
) -> tuple[Simulated, Kind]:
    """Return coefficients of ``y ~ a + b``: least squares for numbers, a logistic regression for two values.

    Raises RequestError for a formula of another form, an unknown column, or a ``y`` that does not fit.
    """
    target, terms = _read_formula(formula, tuple(released.language.types))
    for name in (target, *terms):
        refuse_unmeasured(name, released.language, "query.formula")
    codec = released.every_codec[target]
    two = len(set(codec.labels()) - {"(null)", "other"}) == 2
    text = pa.types.is_string(released.table[target].type)
    chosen: Kind = kind or ("linear" if codec.in_order else "logistic")
    if (chosen == "linear" and text) or (chosen == "logistic" and not two):
        needed = "numbers" if chosen == "linear" else "two values"
        raise RequestError(f"{target!r} does not hold {needed}", "Choose another column before `~`", "query.formula")
    levels = {name: _list_levels(released, name) for name in (target, *terms)}

    def figures(table: pa.Table) -> tuple[list[str], Floats]:
        names, design = ["(Intercept)"], [np.ones(table.num_rows)]
        for term in terms:
            for name, values in _list_columns(released, table[term], term, levels[term]):
                names.append(name)
                design.append(values)
        y = _list_columns(released, table[target], target, levels[target])[-1][1]
        x = np.stack(design, axis=1)
        complete = np.isfinite(x).all(axis=1) & np.isfinite(y)
        return names, (fit_least_squares if chosen == "linear" else fit_logistic)(x[complete], y[complete])

    columns = (target, *terms)
    if chosen == "logistic" and _cut_share(released, target, terms) > MOST_CUT:
        names, estimate = figures(released.table.select(list(columns)))
        nothing = np.full(len(names), np.nan)
        return Simulated(names, estimate, nothing, nothing, nothing, "not known", [], CUT_NOISE_WARNING), chosen
    return simulate_answer(released, columns, figures, level, progress), chosen


def _cut_share(released: ReleasedCounts, target: str, terms: Sequence[str]) -> float:
    """Return the rows that noise can leave in empty cells, as a share of the rows of the target's rarer value.

    An empty cell with normal noise of standard deviation s, cut at 0, keeps s / sqrt(2 pi) rows in expectation.
    """
    rows = np.bincount(read_row_codes(released, target), minlength=2) if target in released.codecs else np.zeros(2)
    rarer = float(np.sort(rows)[::-1][1])
    order = [a for a in released.attributes if a in {target, *terms}]
    every = [estimate_best_linear(released, pair) for pair in combinations(order, 2) if target in pair]
    cut = [float(np.sqrt(np.maximum(linear.variance, 0)).sum()) for linear in every if linear is not None]
    return max(cut, default=0.0) / np.sqrt(2 * np.pi) / max(rarer, 1.0)


def _read_formula(formula: str, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return the column before ``~`` and the columns after it; unusual names stand in backticks or quotation marks."""
    try:
        target, terms = split_formula(formula, only_names=True)
    except FieldError as error:
        raise RequestError(error.problem, error.cure, "query.formula") from None
    names = [part if part in columns else strip_quotes(part) for part in (target, *terms)]
    for name in names:
        if name not in columns:
            raise make_unknown_column_error(name, "query.formula")
    if len(set(names)) < len(names):
        raise RequestError("names one column twice", "Name each once", "query.formula")
    return names[0], names[1:]


def _list_levels(released: ReleasedCounts, name: str) -> list[Any] | None:
    """Return the values of a text column that occur in the rows, in the public order; None for other columns."""
    if not pa.types.is_string(released.table[name].type):
        return None
    present = set(released.table[name].unique().to_pylist())
    return [label for label in released.every_codec[name].labels() if label in present]


def _list_columns(
    released: ReleasedCounts, values: pa.ChunkedArray, name: str, levels: list[Any] | None
) -> list[tuple[str, Floats]]:
    """Return a column as numbers, NaN for null: itself (moments in seconds), or a dummy per value but the first."""
    array = values.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if levels is None:
        return [(name, convert_to_numbers(released, name, array))]
    text = np.asarray(array.to_numpy(zero_copy_only=False), dtype=object)
    null = np.array([v is None for v in text], dtype=bool) if array.null_count else np.zeros(len(text), dtype=bool)
    return [(f"{name}[{level}]", np.where(null, np.nan, (text == level).astype(np.float64))) for level in levels[1:]]


ROUNDS = 20


def refit_rows(released: ReleasedCounts, columns: Sequence[str]) -> pa.Table:
    """Return synthetic rows, dropped and repeated to match the counts of ``columns`` and of their measured pairs.

    A cell without rows stays empty.  If no row would be left, all rows stay.  A function of the released folder.
    """
    attributes = [a for a in released.attributes if a in released.language.list_attributes(tuple(columns))]
    every = []
    for some in (*((a,) for a in attributes), *combinations(attributes, 2)):
        linear = estimate_best_linear(released, some)
        if linear is not None:  # measured
            every.append((*_find_cells(released, some, released.recode), np.maximum(linear.cells, 0.0)))
    weights = np.ones(released.table.num_rows)
    for _ in range(ROUNDS):
        for rows, cells, counts in every:
            have = np.bincount(cells, weights[rows], minlength=len(counts))
            factor = np.where(have > 0, counts / np.where(have > 0, have, 1.0), 1.0)
            weights[rows] *= factor[cells]
    if weights.sum() < 1:
        return released.table
    ends = np.floor(np.cumsum(weights) + 0.5).astype(np.int64)
    return released.table.take(pa.array(np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))))
