"""The release as a whole, run directly: money, caching, files, refusals."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary, is_whole
from privsyn.sources.private_table import Source
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.releases import read_files, run, spent
from tests.support.specs import changed, make_spec, people


@pytest.fixture
def spec(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    """A request whose table, ledger and zones lie in a new folder; ``places`` is another one, for what a test adds."""
    return make_spec(data=kept.begin_with(monkeypatch, people(2_000)))


@pytest.fixture
def first(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A finished release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: run(spec))


STAGES = ("one_way_marginals", "indif_scores", "measure_marginals")


CATEGORY = "dictionary<values=string, indices=int32, ordered=0>"


def test_what_a_release_leaves(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    assert set(read_files(first.released)) == {
        "README.md",
        "certificate.json",
        "croissant.json",
        "datapackage.json",
        "manifest.json",
        "registry.yaml",
        "relations.svg",
        "synthetic.parquet",
        "marginals/one_way.parquet",
        "marginals/one_way_receipts.parquet",
        "marginals/recode.parquet",
        "marginals/scores.parquet",
        "marginals/scores_receipts.parquet",
        "marginals/measured.parquet",
        "marginals/measured_receipts.parquet",
        "marginals/consistent.parquet",
    }
    table = pq.read_table(Path(first.released) / "synthetic.parquet")
    assert table.column_names == ["age", "income", "region", "happy", "seen"]
    assert [str(t) for t in table.schema.types] == ["int64", "double", CATEGORY, "bool", "timestamp[us]"]
    assert table.num_rows == first.rows
    assert abs(first.rows - 2_000) < 600
    private = {p.name for p in Path(first.private).iterdir()}
    assert private == {"run.json", "repairs.json"}
    assert first.drawn == STAGES
    assert is_whole(Path(first.released))
    text = (Path(first.released) / "manifest.json").read_text()
    assert str(Path(spec.data).parent) not in text
    assert "data" not in json.loads(text)["spec"]
    assert json.loads(text)["differentially_private"] is True
    assert set(json.loads(text)["files"]) == set(read_files(first.released)) - {"manifest.json"}
    assert not list(Settings().private_root.glob("noise/**/*.parquet"))


def test_a_recipient_can_read_the_noisy_counts_from_the_released_files_alone(
    spec: ReleaseSpec, first: ReleaseSummary
) -> None:
    folder = Path(first.released) / "marginals"
    one_way, recode = (pq.read_table(folder / name).to_pandas() for name in ("one_way.parquet", "recode.parquet"))
    receipts = pq.read_table(folder / "one_way_receipts.parquet").to_pylist()
    query = next(r for r in receipts if list(r["attributes"]) == ["region"])
    labels = recode[recode["attribute"] == "region"].set_index("code")["label"]
    counts = one_way[one_way["query"] == query["query"]].set_index("cell")["count"].rename(labels)
    real = people(2_000)["region"].to_pylist()
    assert list(counts.index) == ["north", "south", "east", "other"]
    assert abs(counts["north"] - real.count("north")) < 6 * query["sigma"]
    sizes = recode[recode["kept"]].groupby("attribute")["coarse"].max() + 1
    for receipt in pq.read_table(folder / "measured_receipts.parquet").to_pylist():
        names = list(receipt["attributes"])
        fine = (recode["attribute"] == names[0]).sum()
        assert receipt["cells"] == (sizes[names].prod() if len(names) > 1 else fine)


def test_receipts_ledger_and_certificate_agree_exactly(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    certificate = json.loads((Path(first.released) / "certificate.json").read_text())
    rho = convert_epsilon_to_rho(1.0, 1e-9, "tight")
    receipts = [
        read_receipts(pq.read_table(Path(first.released) / f"marginals/{stage}_receipts.parquet"))
        for stage in ("one_way", "scores", "measured")
    ]
    costs = [sum(q.rho for q in stage) for stage in receipts]
    budgets = [rho / 4, rho / 50, rho * 73 / 100]
    for stage, cost in zip(certificate["stages"], costs, strict=True):
        assert cost <= Fraction(stage["rho_spent"]) < cost + Fraction(1, 10**30)
    assert [Fraction(s["rho_budget"]) for s in certificate["stages"]] == budgets
    for cost, budget in zip(costs, budgets, strict=True):
        assert budget * Fraction(999_999, 10**6) < cost <= budget
    assert spent() == rho == Fraction(certificate["rho_budget"]) == Fraction(certificate["dataset_total"]["rho"])
    states = [Ledger(Settings().ledger).state("people", e.key) for e in Ledger(Settings().ledger).entries("people")]
    assert set(states) == {"spent"}
    assert certificate["accountant"] == certificate["dataset_total"]["accountant"] == "tight"


def test_a_reader_finds_the_promise_from_the_released_receipts_alone(spec: ReleaseSpec) -> None:
    """By the formulas that the certificate states, in floating point, with nothing of this project."""
    folder = Path(run(changed(spec, accountant="gaussian")).released)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert "sensitivity^2 / (2 (sigma^2 - 3))" in certificate["price"] and "Theorem 8" in certificate["composition"]
    names = ("one_way", "scores", "measured")
    rows = [row for name in names for row in pq.read_table(folder / f"marginals/{name}_receipts.parquet").to_pylist()]
    prices = [row["sensitivity"] ** 2 / (2 * (row["sigma"] ** 2 - 3)) for row in rows]
    assert prices == pytest.approx([float(Fraction(row["rho"])) for row in rows])
    assert sum(prices) == pytest.approx(float(Fraction(certificate["rho_spent"])))
    mu, epsilon = math.sqrt(2 * sum(prices)), certificate["epsilon"]
    near, far = (math.erfc((epsilon / mu + shift) / math.sqrt(2)) / 2 for shift in (-mu / 2, mu / 2))
    found = near - math.exp(epsilon) * far
    assert found == pytest.approx(certificate["delta"], rel=1e-5) and found <= certificate["delta"]
    groups = [g for stage in certificate["stages"] for g in stage["groups"]]
    listed = sum((g["queries"] * Fraction(g["rho_each"]) for g in groups), Fraction(0))
    assert float(listed) == pytest.approx(sum(prices)) and sum(g["queries"] for g in groups) == len(rows)


@pytest.mark.parametrize("accountant", ["tight", "paper"])
def test_the_other_accountants_say_which_formula_is_theirs(spec: ReleaseSpec, accountant: str) -> None:
    folder = Path(run(changed(spec, accountant=accountant)).released)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert "sensitivity^2 / (2 sigma^2)" in certificate["price"]
    assert {"tight": "Corollary 13", "paper": "ln(1/delta)"}[accountant] in certificate["composition"]
    assert (certificate["accountant"], certificate["dataset_total"]["accountant"]) == (accountant, "tight")
    assert spent() == convert_epsilon_to_rho(1.0, 1e-9, accountant)
    for row in pq.read_table(folder / "marginals/measured_receipts.parquet").to_pylist():
        assert Fraction(row["rho"]) == 1 / (2 * Fraction(row["sigma"]) ** 2)


def test_noise_of_zcdp_under_the_gaussian_accountant_is_found(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: the run forgets the 3 counts of variance."""
    monkeypatch.setattr(Query, "under", lambda query, pricing: query)
    with pytest.raises(LedgerError, match="priced for another accountant"):
        run(changed(spec, accountant="gaussian"))
    assert not list(Settings().released_root.glob("people-*"))


def test_the_same_again_draws_nothing_and_gives_the_same_bytes_whatever_was_lost_or_damaged(
    spec: ReleaseSpec, first: ReleaseSummary
) -> None:
    before, cost = read_files(first.released), spent()

    def harm_table() -> None:
        (Path(first.released) / "synthetic.parquet").write_bytes(b"broken")
        assert not is_whole(Path(first.released))

    def harm_store() -> None:
        for path in Settings().private_root.glob("store/people/make_consistent-*.parquet"):
            path.write_bytes(b"")

    for harm in (lambda: None, lambda: shutil.rmtree(first.released), harm_table, harm_store):
        harm()
        again = run(spec)
        assert (again.drawn, again.run, spent()) == ((), first.run, cost)
        assert read_files(again.released) == before


def test_fresh_draws_new_noise_and_costs_again(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    fresh = run(spec, fresh=True)
    assert fresh.drawn == STAGES
    assert fresh.run != first.run
    assert spent() == 2 * convert_epsilon_to_rho(1.0, 1e-9, "tight")
    one, two = (pq.read_table(Path(s.released) / "marginals/one_way.parquet") for s in (first, fresh))
    assert not one.equals(two)
    after = run(spec)
    assert after.run == fresh.run
    assert after.drawn == ()


def test_other_synthesis_settings_cost_nothing_and_other_gamma_costs_stage_three(
    spec: ReleaseSpec, first: ReleaseSummary
) -> None:
    other = run(changed(spec, synthesis={"seed": 7, "iterations": 3}))
    assert other.drawn == ()
    assert other.run != first.run
    cost = spent()
    assert run(changed(spec, selection={"gamma": 4_999})).drawn == ()  # pairs are not merged: gamma means nothing
    merged = run(changed(spec, selection={"combine_cliques": True}))
    assert merged.drawn == ("measure_marginals",)
    gamma = run(changed(spec, selection={"combine_cliques": True, "gamma": 4_999}))
    assert gamma.drawn == ("measure_marginals",)
    assert spent() == cost + 2 * convert_epsilon_to_rho(1.0, 1e-9, "tight") * 73 / 100


def test_scores_against_exact_one_ways_draw_from_the_scores_on(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    cost = spent()
    paper = run(changed(spec, selection={"scores": "indif"}))
    assert paper.drawn == ("indif_scores", "measure_marginals")
    assert spent() == cost + convert_epsilon_to_rho(1.0, 1e-9, "tight") * 3 / 4
    receipts = [
        read_receipts(pq.read_table(Path(s.released) / "marginals/scores_receipts.parquet")) for s in (first, paper)
    ]
    assert [{q.sensitivity for q in queries} for queries in receipts] == [{1}, {4}]
    reasons = [
        json.loads((Path(s.released) / "certificate.json").read_text())["stages"][1]["reason"] for s in (first, paper)
    ]
    assert "noisy one-ways" in reasons[0] and "Lemma 4" in reasons[1]


def test_schedules_stop_at_the_cap_and_the_refused_run_leaves_nothing(spec: ReleaseSpec) -> None:
    tight = changed(spec, budget={"epsilon": 1.3, "delta": 1e-9})
    run(tight)
    cost = spent()
    with pytest.raises(BudgetRefusedError):
        run(tight, fresh=True)
    assert spent() == cost
    assert run(tight).drawn == ()
    assert len(list(Settings().released_root.iterdir())) == 1


def test_a_refused_first_request_does_not_fix_the_cap(spec: ReleaseSpec) -> None:
    with pytest.raises(BudgetRefusedError):
        run(changed(spec, budget={"epsilon": 0.5, "delta": 1e-8}))
    with pytest.raises(RequestError):
        run(changed(spec, data="nowhere.parquet"))
    run(changed(spec, budget={"epsilon": 2.0, "delta": 1e-8}))


def test_data_that_changes_while_it_is_read_is_refused_and_kept_nowhere(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Source.batches

    def changing(source: Source, *repairs: Repairs) -> Iterator[pa.RecordBatch]:
        yield from batches(source, *repairs)
        pq.write_table(people(2_001, seed=1), spec.data)

    monkeypatch.setattr(Source, "batches", changing)
    with pytest.raises(RequestError, match="changed while it was read"):
        run(spec)
    assert spent() == 0
    assert not list(Settings().private_root.glob("store/people/*encoded_rows*"))


def test_renamed_data_and_reordered_columns_cost_nothing(
    spec: ReleaseSpec, first: ReleaseSummary, places: Path
) -> None:
    renamed = Path(spec.data).rename(places / "renamed.parquet")
    columns = dict(reversed(spec.model_dump()["columns"].items()))
    again = run(changed(spec, data=str(renamed), columns=columns))
    assert again.drawn == ()
    assert again.run == first.run


@pytest.mark.slow
def test_fresh_shares_no_noise_with_other_requests(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    """--fresh after another request has drawn the first stages draws them anew, and does so every time."""
    other = changed(spec, selection={"gamma": 10})
    assert run(other, fresh=True).drawn == STAGES
    assert run(spec, fresh=True).drawn == STAGES
    assert run(other).drawn == run(spec).drawn == ()
    assert spent() == 3 * convert_epsilon_to_rho(1.0, 1e-9, "tight")


def test_fresh_of_a_request_draws_no_other_one_anew(places: Path) -> None:
    """Single values are counted last and follow from the one-ways alone: two requests have this look in common."""
    columns = {"age": {"kind": "integer", "min": 18, "max": 89}, "income": {"kind": "number", "min": 0, "max": 200_000}}
    pq.write_table(people(400).select(list(columns)), places / "people.parquet")
    cap = {"epsilon": 50.0, "delta": 1e-8}
    one = make_spec(columns, data=str(places / "people.parquet"), budget=cap, synthesis={"sweeps": 1})
    other = changed(one, selection={"combine_cliques": True})
    run(one)
    assert run(other).drawn == ("measure_marginals",)
    assert "measure_marginals" in run(one, fresh=True).drawn
    assert run(other).drawn == ()


def test_one_column_needs_no_scores_and_a_cached_rerun_reserves_nothing(spec: ReleaseSpec) -> None:
    columns = {
        n: c if n == "happy" else {"kind": "drop"} for n, c in spec.model_dump(exclude_defaults=True)["columns"].items()
    }
    alone = changed(spec, columns=columns)
    assert run(alone).drawn == ("one_way_marginals", "measure_marginals")
    entries = len(Ledger(Settings().ledger).entries("people"))
    assert run(alone).drawn == ()
    assert len(Ledger(Settings().ledger).entries("people")) == entries
    assert spent() == convert_epsilon_to_rho(1.0, 1e-9, "tight") * 49 / 50


def test_a_changed_cap_is_refused(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    with pytest.raises(RequestError, match="budget"):
        run(changed(spec, budget={"epsilon": 20.0, "delta": 1e-8}))


def test_the_two_roots_may_lie_apart(spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_PRIVATE", str(places / "safe" / "room"))
    monkeypatch.setenv("PRIVSYN_RELEASED", str(places / "shop" / "window"))
    summary = run(spec)
    assert Path(summary.released).parent == places / "shop" / "window"
    assert Path(summary.private).is_relative_to(places / "safe" / "room")
    assert (places / "safe" / "room").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("seed", keep_first([0, 1, 2]))
def test_noise_alone_makes_no_category(places: Path, seed: int) -> None:
    """Of 63 rows every value of a column is below its noise; none of its rows is `other`."""
    columns = {"region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other"}}
    data = places / "few.parquet"
    pq.write_table(pa.table({"region": ["north"] * 31 + ["south"] * 20 + ["east"] * 12}), data)
    asked = make_spec(columns, data=str(data), privacy={"epsilon": 0.2, "delta": 1e-9}, synthesis={"rows": 400})
    made = run(asked, noise=SeededNoise(seed))
    regions = pq.read_table(Path(made.released) / "synthetic.parquet")["region"].to_pylist()
    assert set(regions) <= {"north", "south", "east"}
