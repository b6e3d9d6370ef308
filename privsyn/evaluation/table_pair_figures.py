"""Figures of further tables and their relations to the table above, for the real and the synthetic tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsyn.data_contracts.evaluation_results import PanelFigure
from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import EvaluatedRelease, read_released_cuts
from privsyn.evaluation.panel_figures import (
    compare_broken,
    compare_broken_across,
    compare_figures,
    list_panel_figures,
    read_panel_table,
    share_broken,
)
from privsyn.sources.joined_source import JoinedSource
from privsyn.sources.private_table import Source
from privsyn.storage.released_files import read_table_pair
from privsyn.tasks.codecs import plan, plan_every_column
from privsyn.tasks.codecs.encode_rows import OF_RULE, Repairs
from privsyn.tasks.metrics import panels
from privsyn.tasks.metrics.pairs import measure_association
from privsyn.tasks.metrics.panels import PanelTable
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.steps.encode import iterate_kept_batches


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
        upper_table = str(release.spec.tables[name].of)
        rows_above = joined.count_above(), read(f"tables/{upper_table}.parquet").num_rows
        figures += list_table_pair_figures(tables, rows_above, pair_spec, name, upper_table)
        across = (
            share_broken(iterate_kept(), encoding, pair_spec),
            share_broken(synthetic.to_batches(), encoding, pair_spec, person),
        )
        broken = [*_list_broken_rows(tables, repairs), *compare_broken_across(encoding, across)]
        figures += [figure.with_table(name) for figure in broken]
    return tuple(figures)


def _list_broken_rows(tables: tuple[PanelTable, PanelTable], repairs: tuple[Repairs, Repairs]) -> Iterator[PanelFigure]:
    """Yield for each rule about one row the shares of both tables' rows that break it; ``repairs``: of both tables."""
    rows = [max(len(table.person), 1) for table in tables]
    for place, words in sorted(
        {
            broken
            for repaired in repairs
            for broken in repaired.counts
            if broken[0].startswith((f"{OF_RULE}[", f"{OF_RULE}."))
        }
    ):
        yield compare_broken(
            words, (repaired.counts[place, words] / n for repaired, n in zip(repairs, rows, strict=True))
        )


def list_table_pair_figures(
    tables: tuple[PanelTable, PanelTable], rows_above: tuple[int, int], spec: ReleaseSpec, name: str, parent: str
) -> Iterator[PanelFigure]:
    """Yield the figures of a further table ``name``.

    ``tables``: its real and synthetic rows with the rows above; ``rows_above``: number of rows of the tables above;
    ``spec``: the table pair's spec.
    """
    counts = [_count_below(table, rows) for table, rows in zip(tables, rows_above, strict=True)]
    means = [float(c @ np.arange(len(c)) / max(c.sum(), 1)) for c in counts]
    yield compare_figures(f"{name}: rows per row of {parent}", "", means, panels.compute_l1(*counts))
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


def _count_below(table: PanelTable, rows_above: int) -> NDArray[np.int64]:
    """Return the number of rows above by their number of rows below, from 0."""
    counts = panels.count_rows_per_person(table)[1:]  # a table without rows has not even a count at 0
    return np.append(rows_above - counts.sum(), counts)


def _count_pair(table: PanelTable, first: str, second: str) -> NDArray[np.int64]:
    sizes = table.sizes[first], table.sizes[second]
    cells = table.codes[first] * sizes[1] + table.codes[second]
    return np.bincount(cells, minlength=sizes[0] * sizes[1]).reshape(sizes)


def _associate(table: PanelTable, first: str, second: str) -> float:
    association = measure_association(_count_pair(table, first, second).astype(np.float64), None, None)
    return association if association == association else -1.0
