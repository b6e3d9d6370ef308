"""Further rounds of measuring in a release: their own entries, an exact budget, the same rows as the method's."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.base.settings import Settings
from privsyn.data_contracts.mechanism_options import MOST_ROUNDS
from privsyn.data_contracts.receipts import sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import open_release
from privsyn.evaluation.details import ReleasedTables
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines import adaptive
from privsyn.pipelines.registry import build_steps
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from tests.support.kept import Kept
from tests.support.releases import run
from tests.support.specs import COLUMNS, changed, make_spec, people

ROUNDS = {"rounds": 2, "share": 0.6, "scores": 0.2, "triples": True}
LOOKS = (
    "one_way_marginals",
    "indif_scores",
    "measure_marginals",
    "residual_scores_2",
    "measure_again_2",
    "residual_scores_3",
    "measure_again_3",
)


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    data = kept.begin_with(monkeypatch, people(2_000))
    return make_spec(data=data, adaptive=ROUNDS, synthesis={"sweeps": 3, "seed": 7})


@pytest.fixture
def released(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: run(spec))


def stages(summary: ReleaseSummary) -> dict[str, dict[str, Any]]:
    text = (Path(summary.released) / "certificate.json").read_text()
    return {stage["step"]: stage for stage in json.loads(text)["stages"]}


def test_each_round_has_its_own_entries_and_the_whole_costs_what_a_release_costs(
    spec: ReleaseSpec, released: ReleaseSummary
) -> None:
    ledger = Ledger(Settings().ledger)
    rho = convert_epsilon_to_rho(1.0, 1e-9, "tight")
    third = rho * spec.mechanism.split.exact()[2]
    each = third * Fraction(6, 10) / 2
    budgets = {
        "measure_marginals": third * Fraction(4, 10),
        **{f"residual_scores_{n}": each / 5 for n in (2, 3)},
        **{f"measure_again_{n}": each * Fraction(4, 5) for n in (2, 3)},
    }
    charged = {e.step: e.rho for e in ledger.entries("people") if e.event == "reserve"}
    assert tuple(charged) == LOOKS == released.drawn
    assert {step: charged[step] for step in budgets} == budgets
    assert sum(charged.values()) == rho == ledger.summary("people")[0].rho
    assert {e.event for e in ledger.entries("people")} == {"reserve", "spent"}
    for step, stage in stages(released).items():
        assert Fraction(stage["rho_budget"]) == charged[step]
        paid = Fraction(stage["rho_spent"])
        assert Fraction(999_999, 10**6) * charged[step] < paid <= charged[step] + Fraction(1, 10**30)
        assert stage["reason"]
    # What a round asked is released with its receipts and can be read.
    folder = Path(released.released)
    for n in (2, 3):
        receipts = read_receipts(pq.read_table(folder / f"marginals/round_{n}_scores_receipts.parquet"))
        assert {q.cells for q in receipts} == {1} and {q.sensitivity for q in receipts} == {1}
        assert {len(q.attributes) for q in receipts} == {2, 3}
        measured = read_receipts(pq.read_table(folder / f"marginals/round_{n}_measured_receipts.parquet"))
        assert sum_rho(measured) > 0
    tables = ReleasedTables.read(open_release(folder, Settings(), spec.data))
    attributes = [m.attributes for m in tables.measured]
    assert len(attributes) == len(set(attributes))  # measured twice is one marginal, of less noise
    note = (folder / "README.md").read_text()
    for n in (2, 3):
        assert note.count(f"| how far the rows made so far are from the private table, round {n} |") == 1
    assert LedgerView(Settings()).verify().problems == ()


@pytest.mark.slow
def test_again_it_draws_nothing_and_another_share_draws_from_the_first_round_on(
    spec: ReleaseSpec, released: ReleaseSummary
) -> None:
    assert run(spec).drawn == ()
    assert run(changed(spec, synthesis={"sweeps": 3, "seed": 7, "rows": 500})).drawn == ()  # no part of the rows so far
    assert run(changed(spec, adaptive={**ROUNDS, "triples": False})).drawn == LOOKS[3:]
    assert run(changed(spec, adaptive={**ROUNDS, "share": 0.5})).drawn == LOOKS[2:]
    without = run(changed(spec, adaptive={}))
    assert without.drawn == LOOKS[2:3]
    assert set(stages(without)) == set(LOOKS[:3])
    assert released.rho == without.rho


@pytest.mark.parametrize(
    ("step", "newer"),
    [
        ("REFINE_CODES", "refine_codes_2"),
        ("MAKE_CONSISTENT", "rows_so_far_2"),
        ("SYNTHESIZE", "rows_so_far_2"),
        ("SELECT_PAIRS", "select_again_2"),
    ],
)
def test_a_rounds_steps_are_newer_when_the_steps_with_their_code_are(
    step: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round runs the code of these steps, so its own steps take their versions from them."""
    before = {s.name: s.version for s in build_steps(Request(make_spec(adaptive={"rounds": 1})))}
    declared = getattr(adaptive, step)
    monkeypatch.setattr(adaptive, step, replace(declared, version=declared.version + 1))
    after = {s.name: s.version for s in build_steps(Request(make_spec(adaptive={"rounds": 1})))}
    assert {name for name in after if after[name] != before[name]} == {newer}


@pytest.mark.slow
def test_the_most_rounds_are_all_read_back(places: Path, save: Any) -> None:
    two = {name: c if name in ("age", "region") else {"kind": "drop"} for name, c in COLUMNS.items()}
    adaptive = {"rounds": MOST_ROUNDS, "share": 0.9}
    summary = run(make_spec(two, data=save(people(300)), adaptive=adaptive, synthesis={"sweeps": 1}))
    folder = Path(summary.released) / "marginals"
    receipts = [folder / "measured_receipts.parquet", *folder.glob("round_*_measured_receipts.parquet")]
    assert len(receipts) == 1 + MOST_ROUNDS
    asked = {q.attributes for file in receipts for q in read_receipts(pq.read_table(file))}
    measured = ReleasedTables.read(open_release(summary.released, Settings()))
    assert {m.attributes for m in measured.measured} == {a for a in asked if len(a) > 1}
    queries = [q for file in receipts for q in read_receipts(pq.read_table(file))]
    precision = sum(q.sigma**-2 for q in queries if len(q.attributes) == 2)
    if measured.measured:
        assert measured.measured[0].sigma == pytest.approx(precision**-0.5)


@pytest.mark.parametrize("field", ["share", "scores"])
@pytest.mark.parametrize("value", [1e-40, 0.0, 0.999])
def test_a_share_too_small_to_draw_noise_for_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        make_spec(adaptive={"rounds": 1, field: value})
