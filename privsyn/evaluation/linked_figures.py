"""Figures of linked rows, for the real and the synthetic tables: persons, households, and further tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsyn.data_contracts.columns import NumberColumn
from privsyn.data_contracts.evaluation import PanelFigure
from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import EvaluatedRelease, read_released_cuts
from privsyn.sources.joined_source import JoinedSource
from privsyn.sources.private_table import Source
from privsyn.storage.released_files import read_table_pair
from privsyn.tasks.codecs import EncodingPlan, plan, plan_every_column
from privsyn.tasks.codecs.encode_rows import OF_RULE, Repairs, encode_batch
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.codecs.person_figures import get_unit
from privsyn.tasks.metrics import panels
from privsyn.tasks.metrics.marginal_distance import measure_association
from privsyn.tasks.metrics.panels import MOST_LEVELS, PanelTable
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.steps.encode import iterate_kept_batches

Batches = Iterable[pa.RecordBatch]
Passes = Callable[[], Batches]

BROKEN = "rows that break a rule: "
"""Prefix of the names of figures about broken rules."""

SAMPLE = 0.1
"""Share of the real persons in the sample that a release is compared with."""


def compute_panel_figures(release: EvaluatedRelease, real: Passes, synthetic: Passes) -> tuple[PanelFigure, ...]:
    """Return the figures of a release of linked rows; empty for any other release.

    ``real``: starts a pass over the kept rows as stored, with the person's identifier; ``synthetic``: starts a pass
    over the release's rows, in the order of its files.
    """
    panel = release.spec.panel
    if panel is None:
        return ()
    persons = [pq.read_table(path, columns=[panel.person])[panel.person] for path in release.synthetic]
    synthetic_person = pa.chunked_array([chunk for column in persons for chunk in column.chunks], pa.int64()).to_numpy()
    encoding, spec = release.encoding, release.spec
    real_table = read_panel_table(real(), encoding, spec)
    synthetic_table = read_panel_table(synthetic(), encoding, spec, synthetic_person)

    shares = share_broken(real(), encoding, spec), share_broken(synthetic(), encoding, spec, synthetic_person)
    broken = compare_broken_across(encoding, shares)

    def list_figures(other: PanelTable) -> Iterator[PanelFigure]:
        if panel.household:
            return list_household_figures(real_table, other, spec, encoding.get_codec(panel.order).labels())
        return list_panel_figures(real_table, other, panel)

    of_sample = {(f.name, f.column): f for f in list_figures(sample_persons(real_table))}
    figures = []
    for figure in list_figures(synthetic_table):
        of_persons = of_sample.get((figure.name, figure.column))
        if of_persons is not None:
            update = {"sample": of_persons.synthetic, "sample_distance": of_persons.distance}
            figure = figure.model_copy(update=update)
        figures.append(figure)
    return (*figures, *broken)


def compare_broken_across(encoding: EncodingPlan, shares: tuple[list[float], list[float]]) -> Iterator[PanelFigure]:
    """Yield the figure of each rule across rows; ``shares``: :func:`share_broken` of both tables."""
    if encoding.rules is not None:
        for condition, both in zip(encoding.rules.across, zip(*shares, strict=True), strict=True):
            yield compare_figures(f"{BROKEN}{condition.words}", "", list(both))


def share_broken(
    batches: Batches, encoding: EncodingPlan, spec: ReleaseSpec, person: NDArray[np.int64] | None = None
) -> list[float]:
    """Return the share of rows that break each rule across rows; arguments: see :func:`read_panel_table`."""
    panel, rules = spec.panel, encoding.rules
    if panel is None or rules is None or not rules.across:
        return []
    needed = {panel.order, *(name for condition in rules.across for name in condition.needs)}
    codecs = [codec for codec in encoding.codecs if not needed.isdisjoint(codec.ranges())]
    parts: dict[str, list[pa.Array]] = {}
    keys = [pa.array([], pa.string())]
    for batch in batches:
        for codec in codecs:
            for name, values in codec.read({n: batch.column(n) for n in codec.sources}).items():
                parts.setdefault(name, []).append(values)
        if person is None:
            keys.append(to_keys(batch.column(panel.person), pa.string()))
    if not parts:
        return [0.0] * len(rules.across)
    columns = {name: pa.chunked_array(values).combine_chunks() for name, values in parts.items()}
    if person is None:
        person = _number_persons(keys)
    order = columns[panel.order]
    place = encoding.get_codec(panel.order).encode({panel.order: order})[0] if panel.household else order
    by_place = pc.rank(place if isinstance(place, pa.Array) else pa.array(place), tiebreaker="dense")
    chosen = np.lexsort((np.asarray(by_place), person))
    chosen = chosen[(person >= 0)[chosen] & (np.asarray(order.is_valid())[chosen] | panel.household)]
    if not len(chosen):
        return [0.0] * len(rules.across)
    table = {name: values.take(pa.array(chosen)) for name, values in columns.items()}
    broken = rules.find_broken_persons(table, np.diff(person[chosen], prepend=-1) != 0)
    return [float(share) for share in broken.mean(axis=1)]


def _number_persons(keys: list[pa.Array]) -> NDArray[np.int64]:
    """Return a number for each row's identifier, -1 for null."""
    indices = pa.chunked_array(keys).dictionary_encode().combine_chunks().indices
    return np.asarray(indices.fill_null(-1)).astype(np.int64)


def sample_persons(table: PanelTable) -> PanelTable:
    """Return the rows of a random sample of the persons, of the share SAMPLE."""
    persons = np.unique(table.person)
    chosen = np.random.default_rng(0).permutation(persons)[: max(1, round(SAMPLE * len(persons)))]
    rows = np.isin(table.person, chosen)
    codes = {name: column[rows] for name, column in table.codes.items()}
    values = {name: column[rows] for name, column in table.values.items()}
    return PanelTable(table.person[rows], table.step[rows], codes, table.sizes, values)


def read_panel_table(
    batches: Batches,
    encoding: EncodingPlan,
    spec: ReleaseSpec,
    person: NDArray[np.int64] | None = None,
    repairs: Repairs | None = None,
) -> PanelTable:
    """Return a table person by person, in the public bins; ``person``: number of each row's person (None: identifier).

    Rows without a person or a place in the order are left out.  ``repairs``: gets the repairs of reading, and the
    numbers of rows that break a rule.
    """
    panel = spec.panel
    if panel is None:
        raise ValueError("the spec links no rows")
    codes: dict[str, list[NDArray[np.int64]]] = {c.attribute: [np.empty(0, np.int64)] for c in encoding.codecs}
    ordered = [c for c in encoding.codecs if isinstance(c, OrderedCodec)]
    values: dict[str, list[NDArray[np.float64]]] = {c.attribute: [np.empty(0)] for c in ordered}
    keys = [pa.array([], pa.string())]
    for batch in batches:
        coded = encode_batch(batch, encoding, Repairs() if repairs is None else repairs)
        for codec in encoding.codecs:
            fine = np.asarray(coded.column(codec.attribute)).astype(np.int64)
            codes[codec.attribute].append(codec.groups[fine].astype(np.int64))
        for codec in ordered:
            numbers, not_numbers = codec.clamp(batch.column(codec.attribute))
            exact, _ = codec.numbers(batch.column(codec.attribute))
            values[codec.attribute].append(np.where(not_numbers, exact, numbers))
        if person is None:
            keys.append(to_keys(batch.column(panel.person), pa.string()))
    columns = {name: np.concatenate(parts) for name, parts in codes.items()}
    numbers_of = {name: np.concatenate(parts) for name, parts in values.items()}
    if person is None:
        person = _number_persons(keys)
    has_person = person >= 0
    if panel.household:
        step = columns[panel.order][has_person]
    else:
        has_person &= ~np.isnan(numbers_of[panel.order])
        step = np.floor(numbers_of[panel.order][has_person] / get_unit(spec.columns[panel.order])).astype(np.int64)
    sizes = {c.attribute: int(c.groups.max()) + 1 for c in encoding.codecs}
    two = {n: c.astype(np.float64) for n, c in columns.items() if n not in numbers_of and sizes[n] <= 3}
    return PanelTable.sort(
        person[has_person],
        step,
        {n: c[has_person] for n, c in columns.items()},
        sizes,
        {n: v[has_person] for n, v in (numbers_of | two).items()},
    )


_NUMBER_FIGURES: tuple[tuple[str, Callable[[PanelTable, str], float]], ...] = (
    (
        "correlation of ranks with the next row",
        lambda t, column: panels.compute_autocorrelation(t.by_ranks(column), column),
    ),
    ("correlation with the next row", panels.compute_autocorrelation),
    ("share of the variance between persons", panels.compute_person_share),
)
"""The figures of each number column: name, and function of a table and a column."""


def _compare_counts(name: str, counts: list[NDArray[np.int64]]) -> PanelFigure:
    """Return the mean number in both tables, from how often each number occurs, and the distance of both."""
    means = [float(c @ np.arange(len(c)) / max(c.sum(), 1)) for c in counts]
    return compare_figures(name, "", means, panels.compute_l1(*counts))


def _compare_pairs(name: str, column: str, tables: list[NDArray[np.int64]]) -> PanelFigure:
    """Return the share of pairs with equal codes in both tables, and the distance of both."""
    alike = [float(np.trace(t) / max(t.sum(), 1)) for t in tables]
    return compare_figures(name, column, alike, panels.compute_l1(*tables))


def list_panel_figures(real: PanelTable, synthetic: PanelTable, panel: Panel) -> Iterator[PanelFigure]:
    """Yield the figures of persons of both tables."""
    both = (real, synthetic)
    for name, count in (("rows per person", panels.count_rows_per_person), ("gaps in the order", panels.count_gaps)):
        yield _compare_counts(name, [count(table) for table in both])
    for column in panel.constant:
        yield compare_figures("persons that never change", column, [panels.share_always(t, column) for t in both])
    for column in real.codes:
        if column in panel.constant or column == panel.order:
            continue
        for name, figure in _NUMBER_FIGURES if column in real.values else ():
            yield compare_figures(name, column, [figure(table, column) for table in both])
        if real.sizes[column] <= MOST_LEVELS:
            tables = [panels.count_transitions(t, column) for t in both]
            yield _compare_pairs("transitions, and the share that stays", column, tables)
            yield compare_figures("rows in a row alike", column, [panels.compute_spell_length(t, column) for t in both])
            ever = [panels.share_ever(t, column) for t in both]
            largest = float(np.abs(ever[0] - ever[1]).max())
            yield compare_figures("persons that ever had a value", column, None, largest)
            yield compare_figures("persons that never change", column, [panels.share_always(t, column) for t in both])
            first, off = _compare_curves([panels.survive(t, column) for t in both])
            yield compare_figures("persons still as in their first row", column, first, off)
            seen = map(int, np.flatnonzero(ever[0]))
            events = [_compare_curves([panels.survive_from_event(t, column, code) for t in both])[1] for code in seen]
            yield compare_figures("persons still so since they first were", column, None, max(events, default=0.0))
    few = [c for c in real.codes if c not in panel.constant and real.sizes[c] <= MOST_LEVELS]
    if few:
        distance = panels.compare_kinds_of_persons(real, synthetic, few, panel.most)
        yield compare_figures("persons like a random one", "", None, distance)
    yield from _list_regressions(both, panel)


def _compare_curves(curves: list[NDArray[np.float64]]) -> tuple[list[float], float]:
    """Return both curves' values at their last common step, and their largest distance."""
    last = min(map(len, curves))
    return [float(c[last - 1]) for c in curves], float(np.abs(curves[0][:last] - curves[1][:last]).max())


def _list_regressions(both: tuple[PanelTable, PanelTable], panel: Panel) -> Iterator[PanelFigure]:
    """Yield the largest error of a slope in the regression of each changing number on the others."""
    numbers = [n for n in both[0].values if n not in panel.constant and n not in panel.carried and n in both[1].values]
    of_values = [n for n in numbers if both[0].sizes[n] > 3]
    for name, regress in (("fixed", panels.regress_within), ("random", panels.regress_random)):
        for column in of_values:
            others = [n for n in numbers if n != column]
            if not others:
                continue
            slopes = [regress(table, column, others) for table in both]
            largest = int(np.nanargmax(np.abs(slopes[0]))) if np.isfinite(slopes[0]).any() else 0
            off = float(np.abs(slopes[0] - slopes[1]).max())
            words = f"{name}-effects regression on the other columns, the steepest slope ({others[largest]})"
            yield compare_figures(words, column, [float(s[largest]) for s in slopes], off)


def list_household_figures(
    real: PanelTable, synthetic: PanelTable, spec: ReleaseSpec, roles: list[str]
) -> Iterator[PanelFigure]:
    """Yield the figures of households of both tables; ``roles``: in the order of their codes."""
    both, panel = (real, synthetic), spec.panel
    yield _compare_counts("members per household", [panels.count_rows_per_person(table) for table in both])
    yield compare_figures("members by role", "", None, panels.compare_compositions(real, synthetic, len(roles)))
    constant = {*panel.constant} if panel else set()
    for number, role in enumerate(roles[1:], start=1):
        pairs = [panels.pair_with_first(table, number) for table in both]
        if not all(len(second) for _, second in pairs):
            continue
        for column in real.codes:
            if column in constant or (panel and column == panel.order):
                continue
            if column in real.values:
                correlations = [panels.correlate_pairs(t.values[column], *p) for t, p in zip(both, pairs, strict=True)]
                yield compare_figures(f"correlation of {roles[0]} and {role}", column, [r for r, _ in correlations])
                yield compare_figures(f"{roles[0]} less {role}, on average", column, [mean for _, mean in correlations])
            if real.sizes[column] <= MOST_LEVELS:
                tables = [panels.count_pairs(t, column, p) for t, p in zip(both, pairs, strict=True)]
                yield _compare_pairs(f"{roles[0]} by {role}, and the share alike", column, tables)
    for column, described in spec.measured_columns.items():
        if isinstance(described, NumberColumn) and column in real.values:
            sums = [panels.sum_by_household(t, column, constant=column in constant) for t in both]
            yield compare_figures("Gini coefficient over households", column, [panels.compute_gini(s) for s in sums])


def compare_figures(name: str, column: str, figures: list[float] | None, distance: float | None = None) -> PanelFigure:
    """Return a figure of the real and the synthetic table, and their distance; NaN becomes None."""
    real, synthetic, distance = (
        figure if figure is not None and math.isfinite(figure) else None
        for figure in (*(figures or (None, None)), distance)
    )
    return PanelFigure(name=name, column=column, real=real, synthetic=synthetic, distance=distance)


def compute_table_pair_figures(release: EvaluatedRelease, real: Source) -> tuple[PanelFigure, ...]:
    """Return the figures of every further table; empty for a release of one or two tables.

    ``real``: the private tables.
    """
    if not isinstance(real, JoinedSource):
        return ()
    read = lambda name: pq.read_table(release.folder / name)  # noqa: E731
    figures: list[PanelFigure] = []
    for name in release.spec.further_tables:
        pair_spec, joined = release.spec.table_pairs[name], real.join_every_row(name)
        key = str(pair_spec.unit.identifier)
        cuts = read_released_cuts(release.folder, name)
        encoding, by = plan_every_column(pair_spec, cuts=cuts), plan(pair_spec, cuts=cuts)
        rows = RowsOfPersons(joined.batches, joined.order)
        iterate_kept = partial(iterate_kept_batches, rows, by, pair_spec.unit, Repairs())
        synthetic = read_table_pair(release.spec, name, read)
        person, repairs = synthetic[key].to_numpy(), (Repairs(), Repairs())
        tables = (
            read_panel_table(iterate_kept(), encoding, pair_spec, repairs=repairs[0]),
            read_panel_table(synthetic.to_batches(), encoding, pair_spec, person, repairs[1]),
        )
        upper_table, _ = release.spec.get_parent_table(name)
        rows_above = joined.count_above(), read(f"tables/{upper_table}.parquet").num_rows
        figures += list_table_pair_figures(tables, rows_above, pair_spec, name, upper_table)
        of_real = share_broken(iterate_kept(), encoding, pair_spec)
        of_synthetic = share_broken(synthetic.to_batches(), encoding, pair_spec, person)
        across = compare_broken_across(encoding, (of_real, of_synthetic))
        broken = [*_list_broken_rows(tables, repairs), *across]
        figures += [figure.with_table(name) for figure in broken]
    return tuple(figures)


def _list_broken_rows(tables: tuple[PanelTable, PanelTable], repairs: tuple[Repairs, Repairs]) -> Iterator[PanelFigure]:
    """Yield for each rule about one row the shares of both tables' rows that break it; ``repairs``: of both tables."""
    rows = [max(len(table.person), 1) for table in tables]
    counted = {broken for repaired in repairs for broken in repaired.counts}
    for place, words in sorted(b for b in counted if b[0].startswith((f"{OF_RULE}[", f"{OF_RULE}."))):
        shares = [repaired.counts[place, words] / n for repaired, n in zip(repairs, rows, strict=True)]
        yield compare_figures(f"{BROKEN}{words}", "", shares)


def list_table_pair_figures(
    tables: tuple[PanelTable, PanelTable], rows_above: tuple[int, int], spec: ReleaseSpec, name: str, parent: str
) -> Iterator[PanelFigure]:
    """Yield the figures of a further table ``name``.

    ``tables``: its real and synthetic rows with the rows above; ``rows_above``: number of rows of the tables above;
    ``spec``: the table pair's spec.
    """
    counts = []
    for table, rows in zip(tables, rows_above, strict=True):
        below = panels.count_rows_per_person(table)[1:]  # a table without rows has not even a count at 0
        counts.append(np.append(rows - below.sum(), below))
    yield _compare_counts(f"{name}: rows per row of {parent}", counts)
    panel = spec.panel
    assert panel is not None  # noqa: S101 - a table pair links rows
    for column in tables[0].codes:
        if column in panel.constant:
            continue
        best: tuple[float, str] = (-1.0, "")
        for other in panel.constant:
            if other in tables[0].codes:
                best = max(best, (_associate(tables[0], other, column), other))
        if best[0] >= 0:
            both = [_associate(table, best[1], column) for table in tables]
            joint = [_count_pair(table, best[1], column) for table in tables]
            words = f"{name}: Cramer's V with {best[1]}, the most related column above"
            yield compare_figures(words, column, both, panels.compute_l1(*joint))
    left_out = {"rows per person"} | ({"gaps in the order"} if panel.order == name_one_place(name) else set())
    for figure in list_panel_figures(*tables, panel):
        if figure.column not in panel.constant and figure.name not in left_out:
            yield figure.with_table(name)


def _count_pair(table: PanelTable, first: str, second: str) -> NDArray[np.int64]:
    sizes = table.sizes[first], table.sizes[second]
    cells = table.codes[first] * sizes[1] + table.codes[second]
    return np.bincount(cells, minlength=sizes[0] * sizes[1]).reshape(sizes)


def _associate(table: PanelTable, first: str, second: str) -> float:
    association = measure_association(_count_pair(table, first, second).astype(np.float64), None, None)
    return association if association == association else -1.0
