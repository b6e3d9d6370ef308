"""Figures of persons' rows where a table has no person."""

from __future__ import annotations

import numpy as np

from privsyn.data_contracts.panels import Panel
from privsyn.evaluation.linked_figures import list_panel_figures, list_table_pair_figures
from privsyn.tasks.metrics.panels import PanelTable
from tests.support.linked_tables import make_tables_spec, make_tree_content


def make_table(persons: int, *columns: str) -> PanelTable:
    person, step = np.repeat(np.arange(persons), 3), np.arange(3 * persons)
    return PanelTable(
        person, step, dict.fromkeys(columns, step % 2), dict.fromkeys(columns, 2), dict.fromkeys(columns, step % 2.0)
    )


def test_a_release_without_a_person_has_figures() -> None:
    """At a small epsilon a release of few persons has none: what is not known is no figure, and the others stand."""
    figures = {
        f.name: f for f in list_panel_figures(make_table(4, "job"), make_table(0, "job"), Panel("pid", 3, "year"))
    }
    assert figures["rows per person"].real == 3 and figures["persons like a random one"].distance is None


def test_a_further_table_without_a_row_has_figures() -> None:
    pair_spec = make_tables_spec(make_tree_content()).table_pairs["drugs"]
    assert pair_spec.panel is not None
    tables = make_table(4, *pair_spec.panel.constant, "dose"), make_table(0, *pair_spec.panel.constant, "dose")
    figures = {f.name: f for f in list_table_pair_figures(tables, (6, 5), pair_spec, "drugs", "visits")}
    assert (figures["drugs: rows per row of visits"].real, figures["drugs: rows per row of visits"].synthetic) == (2, 0)
