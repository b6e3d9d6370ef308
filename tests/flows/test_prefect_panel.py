"""A release of linked rows under Prefect: the same rows and certificate as without it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privsyn.flows.release import release
from tests.flows.test_run_page import run as run_shown
from tests.support.linked_tables import make_tables_spec, make_tree, make_tree_content, save_tables
from tests.support.releases import QUICK


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server", "places")
def test_the_flow_makes_a_tree_of_tables_and_finds_them_again(tmp_path: Path) -> None:
    spec = make_tables_spec(save_tables(tmp_path, make_tree(200), make_tree_content()), **QUICK)
    summary = release(spec)
    made = {path.stem: pq.read_table(path) for path in (Path(summary.released) / "tables").glob("*.parquet")}
    assert set(made) == {"persons", "visits", "drugs", "buys"}
    again, shown = run_shown(spec)
    assert again.released == summary.released
    for name, table in made.items():
        card = shown[f"table-{name}-{spec.dataset}"]
        assert f"{name}: {table.num_rows:,} synthetic rows" in str(card.description)
        assert [list(row) for row in json.loads(str(card.data))] == [table.column_names] * min(5, table.num_rows)
