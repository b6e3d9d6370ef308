"""Figures of persons' rows where a table has no person."""

from __future__ import annotations

import numpy as np

from privsyn.data_contracts.panels import Panel
from privsyn.evaluation.panel_figures import list_panel_figures
from privsyn.tasks.metrics.panels import PanelTable


def make_table(persons: int) -> PanelTable:
    person, none = np.repeat(np.arange(persons), 3), np.arange(3 * persons)
    return PanelTable(person, none, {"job": none % 2}, {"job": 2}, {"job": (none % 2).astype(float)})


def test_a_release_without_a_person_has_figures() -> None:
    """At a small epsilon a release of few persons has none: what is not known is no figure, and the others stand."""
    figures = {f.name: f for f in list_panel_figures(make_table(4), make_table(0), Panel("pid", 3, "year"))}
    assert figures["rows per person"].real == 3 and figures["persons like a random one"].distance is None
