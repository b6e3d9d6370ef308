"""A release whose cells a first look chose: improved, made again, evaluated as any other, and taken by a later one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.specs.spec_file import load_any_spec
from privsyn.storage.released_files import CUTS_FILE
from privsyn.tasks.estimation.rungs import read_cuts
from tests.unit.tasks.estimation.test_rungs import WEIGHT, weights

ROWS = weights()
SPEC: dict[str, Any] = {
    "dataset": "weights",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 10.0, "delta": 1e-9},
    "columns": dict.fromkeys(ROWS.column_names, WEIGHT),
}
CHOSEN = {"person", "household", "even"}


@pytest.mark.slow
def test_chosen_cells_go_through_improvement_rerun_and_evaluation(places: Path) -> None:
    first = privsyn.release(ROWS, SPEC)
    second = privsyn.improve(first, epsilon=1.0, data=ROWS)
    for release in (first, second):
        cuts = read_cuts(pq.read_table(release.folder / CUTS_FILE))
        assert {cut.attribute for cut in cuts} == CHOSEN
        assert privsyn.rerun(release).agrees
    assert privsyn.evaluate(second, ROWS).scores["release"]["l1_1way"] < 0.1


def test_a_later_period_takes_the_cells_of_an_earlier_one(places: Path) -> None:
    """It needs the released folder alone, takes no first look, and says so; the look's share goes to the one-ways."""
    shutil.move(privsyn.release(ROWS, SPEC, period="2024-01").folder, places / "earlier")
    first = privsyn.open_release(places / "earlier")
    shutil.rmtree(Settings().private_root / "runs")
    asked = {**SPEC, "cells": {"release": str(places / "earlier")}}
    report = privsyn.check_spec(asked)
    assert any(
        words.startswith(f"cells: person, household, even have the cells of {first.run}") for words in report.warnings
    )
    assert not any("double in width" in look for look in report.shares)
    second = privsyn.release(ROWS, asked, period="2024-02")
    costs = [{s.step: s.rho_budget for s in r.certificate.stages} for r in (first, second)]
    assert costs[0].keys() - costs[1].keys() == {"rung_counts"} and not costs[1].keys() - costs[0].keys()
    assert costs[0]["indif_scores"] == costs[1]["indif_scores"]
    assert first.certificate.rho_budget == second.certificate.rho_budget
    assert second.certificate.cells is not None and second.certificate.cells["run"] == first.run
    assert f"the cells that `{first.run}` chose" in (second.folder / "README.md").read_text()
    cuts = read_cuts(pq.read_table(places / "earlier" / CUTS_FILE))
    stated = second.spec.cells.columns
    assert {(a, low, i in c.doubtful) for a, c in stated.items() for i, low in enumerate(c.low)} == set(cuts)
    assert str(places) not in (second.folder / "manifest.json").read_text()
    assert privsyn.rerun(second).agrees
    third = load_any_spec({**SPEC, "cells": {"release": str(second.folder)}})  # one release's cells for all periods
    assert third.cells is not None and third.cells.columns == stated
    changed = second.compare(first).count("person")
    assert not any("differ" in words for words in changed.attrs["words"])
    larger = ROWS.set_column(0, "person", pc.multiply(ROWS["person"], 5))
    other = privsyn.release(larger, {**SPEC, "dataset": "larger"})
    words = second.compare(other).count("person").attrs["words"]
    assert words[-1].startswith("The cells of person") and words[-1].endswith(
        " differ: each release answers by its own."
    )


def test_cells_of_another_release_are_refused_in_one_sentence(places: Path) -> None:
    first = privsyn.release(ROWS, SPEC)
    cells = {"cells": {"release": str(first.folder)}}

    def refuse(problem: str, **changes: Any) -> None:
        with pytest.raises(RequestError, match=problem) as caught:
            load_any_spec({**SPEC, **cells, **changes})
        assert caught.value.field == "cells.release" and ". " not in str(caught.value.problem)

    refuse("nowhere is not the folder of a release", cells={"release": str(places / "nowhere")})
    wider = {**SPEC["columns"], "even": {**WEIGHT, "max": 99_999}}
    refuse("described the column 'even' in another way, such as by other bounds", columns=wider)
    refuse("has no cells of the column 'other'", columns={**SPEC["columns"], "other": WEIGHT})
    refuse("no column has cells that a first look would choose", columns={"even": {**WEIGHT, "bins": 32}})
    described = {**SPEC["columns"], "even": {**WEIGHT, "description": "Drawn evenly"}}
    assert load_any_spec({**SPEC, **cells, "columns": described}).cells is not None
    unread = load_any_spec(SPEC).model_copy(update={"cells": load_any_spec({**SPEC, **cells}).cells})
    assert unread.cells is not None and not unread.cells.release
    cuts = pq.read_table(first.folder / CUTS_FILE)
    pq.write_table(cuts.slice(1), first.folder / CUTS_FILE)
    refuse("is missing or was changed after its publication")
    (first.folder / CUTS_FILE).unlink()
    refuse("is missing or was changed after its publication")
