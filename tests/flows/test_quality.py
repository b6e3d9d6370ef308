"""The quality figures as a whole: what is released and nothing else, money, caching, refusals, a kill, mutants."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import BudgetRefusedError, LedgerError, LostNoiseError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.evaluation import QualityReport
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import ReleaseStep
from privsyn.evaluation import quality_release as quality
from privsyn.evaluation.quality_release import QualitySummary, publish_quality
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary, is_whole
from privsyn.sources.private_table import Source
from privsyn.storage.records import Records
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import NoNoise
from privsyn.tasks.steps import quality_figures
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.kills import run_killed
from tests.support.releases import few, read_files, release_in_process, spent
from tests.support.specs import make_spec, people, people_with, with_public_inputs

Save = Callable[..., str]
QUICK: dict[str, Any] = {"synthesis": {"iterations": 2}}


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return make_spec(data=kept.begin_with(monkeypatch, people_with("CANARY", 400)), **QUICK)


@pytest.fixture
def release(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: release_in_process(spec, Settings()))


def ask(release: ReleaseSummary, epsilon: float = 1.0, **how: Any) -> QualitySummary:
    return publish_quality(release.run, epsilon, Settings(), **how)


def report_of(summary: QualitySummary) -> QualityReport:
    return QualityReport.model_validate_json((Path(summary.released) / "figures.json").read_text())


def test_what_is_released_and_nothing_else(release: ReleaseSummary) -> None:
    before = {p.name for p in Settings().released_root.iterdir()}
    summary = ask(release)
    assert {p.name for p in Settings().released_root.iterdir()} == before | {summary.run}
    assert summary.run.startswith(f"{release.run}-quality-")
    found = read_files(summary.released)
    assert set(found) == {"figures.json", "certificate.json", "README.md", "manifest.json"}
    assert is_whole(Path(summary.released))
    report = report_of(summary)
    assert (report.release, report.run) == (release.run, summary.run)
    assert [f.name for f in report.figures] == ["one_way", "pairs", "triples", "range_queries"]
    for figure in report.figures:
        assert figure.value == figure.noisy_sum / (figure.compared * release.rows)
        assert figure.noise_sd == figure.sigma / (figure.compared * release.rows)
    manifest = Manifest.model_validate_json(found["manifest.json"])
    assert manifest.differentially_private
    assert manifest.spec["privacy"] == {"epsilon": 1.0, "delta": 1e-9}
    assert [s["step"] for s in manifest.steps] == ["encode", "quality_figures"]
    private = str(Settings().private_root).encode()
    for name, content in found.items():
        assert not any(secret in content for secret in (b"CANARY", private)), name
    assert "CANARY" not in summary.model_dump_json()
    # The same again draws nothing and gives the same bytes.
    first = ask(release)
    before, cost = read_files(first.released), spent()
    again = ask(release)
    assert (again.run, again.drawn, spent()) == (first.run, (), cost)
    assert read_files(again.released) == before
    shutil.rmtree(first.released)
    shutil.copytree(release.released, Settings().released_root.parent / "copy")
    back = publish_quality(Settings().released_root.parent / "copy", 1.0, Settings())
    assert read_files(back.released) == before
    assert spent() == cost


def test_sigma_receipts_ledger_and_certificate_agree_exactly(release: ReleaseSummary) -> None:
    before = spent()
    summary = ask(release, 0.7, delta=1e-10)
    rho = convert_epsilon_to_rho(0.7, 1e-10, "tight")
    assert spent() == before + rho
    certificate = Certificate.model_validate_json(read_files(summary.released)["certificate.json"])
    (stage,) = certificate.stages
    assert (stage.step, Fraction(stage.rho_budget), Fraction(certificate.rho_budget)) == ("quality_figures", rho, rho)
    assert Fraction(certificate.dataset_total.rho) == spent()
    (receipts,) = Settings().private_root.glob("store/people/quality_figures-*-receipts.parquet")
    queries = noisy.read_receipts(pq.read_table(receipts))
    figures = report_of(summary).figures
    assert [(q.sigma, q.sensitivity) for q in queries] == [(f.sigma, f.compared) for f in figures]
    assert [g.sigma for g in stage.groups for _ in range(g.queries)] == [f.sigma for f in figures]
    cost = sum(Fraction(f.compared) ** 2 / (2 * Fraction(f.sigma) ** 2) for f in figures)
    assert cost <= Fraction(stage.rho_spent) < cost + Fraction(1, 10**30)
    assert rho * Fraction(999_999, 10**6) < cost <= rho
    last = [e for e in Ledger(Settings().ledger).entries("people") if e.step == "quality_figures"]
    assert [e.event for e in last] == ["reserve", "spent"]
    assert {(e.run, e.rho) for e in last} == {(summary.run, rho)}


def test_without_noise_the_figures_are_the_exact_ones_and_stay_private(
    release: ReleaseSummary, spec: ReleaseSpec
) -> None:
    """The referee counts values, not codes: whether somebody is happy, and from which listed region."""
    exact = ask(release, noise=NoNoise())
    assert Path(exact.released).is_relative_to(Settings().private_root)
    assert "NOT PRIVATE" in (Path(exact.released) / "README.md").read_text()
    real, made = pq.read_table(spec.data), pq.read_table(Path(release.released) / "synthetic.parquet")
    opened = quality.open_release(release.run, Settings())
    asked = (quality_figures.Figure("pairs", cliques=(("region", "happy"),)),)
    files = (spec.data, Path(release.released) / "synthetic.parquet")
    rows = [quality.open_table(p, opened.encoding, opened.spec, "data").read().bins for p in files]
    counted = [
        t.group_by(["region", "happy"]).aggregate([([], "count_all")]).to_pylist()
        for t in (listed(real), made.select(["region", "happy"]))
    ]
    tallies = [{(r["region"], r["happy"]): r["count_all"] for r in c} for c in counted]
    apart = sum(abs(tallies[0].get(k, 0) - tallies[1].get(k, 0)) for k in {*tallies[0], *tallies[1]})
    assert [int(s[0]) for s in quality_figures.count_exactly(rows[0], rows[1], asked, 1)] == [apart]
    whole = quality_figures.build_figures(rows[0].domain)
    sums = [int(s[0]) for s in quality_figures.count_exactly(rows[0], rows[1], whole, 1)]
    assert [f.noisy_sum for f in exact.figures] == sums


def listed(table: pa.Table) -> pa.Table:
    """Region and happiness as the spec reads them: what is not listed is ``other``."""
    regions = [r if r in ("north", "south", "east") else "other" for r in table["region"].to_pylist()]
    return pa.table({"region": regions, "happy": table["happy"]})


@pytest.mark.slow
def test_whole_encoded_rows_are_used_again_and_lost_ones_made_again(
    release: ReleaseSummary, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[str] = []
    batches = Source.batches

    def noted(source: Source, *arguments: Any) -> Any:
        passes.extend(source.names)
        return batches(source, *arguments)

    monkeypatch.setattr(Source, "batches", noted)
    ask(release)
    assert passes == [str(Path(release.released) / "synthetic.parquet")]
    for path in Settings().private_root.glob("store/people/encode-*-encoded_rows.parquet"):
        path.write_bytes(b"")
    monkeypatch.setattr("privsyn.sources.file_source._WHOLE", {})  # as in a new process
    other = ask(release, 0.5)
    assert passes.count(spec.data) == 2  # looked through before anything is reserved, then encoded
    assert other.drawn == ("quality_figures",)


@pytest.mark.slow
def test_figures_of_an_improved_release_with_a_prior_cost_their_own_price(places: Path, save: Save) -> None:
    spec = few(save(people(200)), prior={"table": "public.parquet", "statement": "Rows of a public register of 2025."})
    pq.write_table(people(100), places / "public.parquet")
    better = privsyn.improve(release_in_process(with_public_inputs(spec, places), Settings(), data=None).run, 0.5)
    before = spent()
    for epsilon in (0.5, 3.0):
        made = publish_quality(better.run, epsilon, Settings())
        assert made.drawn == ("quality_figures",)
        assert float(made.rho) == pytest.approx(float(convert_epsilon_to_rho(epsilon, 1e-9, "tight")))
    assert float(spent() - before) == pytest.approx(
        sum(float(convert_epsilon_to_rho(e, 1e-9, "tight")) for e in (0.5, 3.0))
    )


def test_the_bound_of_the_unit_is_enforced(places: Path, save: Save) -> None:
    """One person with 300 rows counts as at most two: the sums are those of the table with two of them."""
    table = people(200)
    much = pa.concat_tables([table, *[table.slice(0, 1)] * 299])
    unit = {"person_id": "caseid", "max_records": 2}
    spec = make_spec(data=save(much), unit=unit, **QUICK)
    release = release_in_process(spec, Settings())
    found = ask(release, noise=NoNoise())
    (receipts,) = Settings().private_root.glob("store/people/quality_figures-*-receipts.parquet")
    assert [q.sensitivity for q in noisy.read_receipts(pq.read_table(receipts))] == [10, 20, 20, 2_000]
    two = ask(release, noise=NoNoise(), data=save(pa.concat_tables([table, table.slice(0, 1)]), "two.parquet"))
    assert [f.noisy_sum for f in two.figures] == [f.noisy_sum for f in found.figures]


def test_a_request_above_the_cap_is_refused_and_nothing_is_read(
    release: ReleaseSummary, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, entries = spent(), len(Ledger(Settings().ledger).entries("people"))
    Path(spec.data).unlink()
    monkeypatch.setattr(ReleaseStep, "read_rows", lambda *a: pytest.fail("the rows were read"))
    with pytest.raises(BudgetRefusedError, match=r"^epsilon_report: .* lower epsilon_report") as refused:
        ask(release, 50.0)
    assert refused.value.exit_code == 3
    assert (spent(), len(Ledger(Settings().ledger).entries("people"))) == (cost, entries)
    assert {p.name for p in Settings().released_root.iterdir()} == {release.run}


@pytest.mark.parametrize("share", keep_first([Fraction(101, 100), Fraction(99, 100)]))
def test_a_look_that_costs_more_or_less_than_the_request_is_refused(
    release: ReleaseSummary, monkeypatch: pytest.MonkeyPatch, share: Fraction
) -> None:
    """Planted mutant: the ledger would hold another price than the certificate promises."""
    step, cost = quality.build_quality_step, spent()
    monkeypatch.setattr(
        quality, "build_quality_step", lambda compared: replace(step(compared), shares={quality.STEP: share})
    )
    with pytest.raises(ValueError, match="must sum to 1"):
        ask(release)
    assert spent() == cost


@pytest.mark.parametrize(
    ("epsilon", "how", "field"),
    [
        (0.0, {}, "evaluate.epsilon_report"),
        (float("nan"), {}, "evaluate.epsilon_report"),
        (1e-17, {"delta": 1e-30}, "evaluate.epsilon_report"),
        pytest.param(1e-17, {}, "evaluate.epsilon_report", marks=pytest.mark.slow),
        pytest.param(1e-100, {}, "evaluate.epsilon_report", marks=pytest.mark.slow),
        pytest.param(1e-300, {}, "evaluate.epsilon_report", marks=pytest.mark.slow),
        (1e-4, {}, "evaluate.epsilon_report"),
        (1.0, {"delta": 1.0}, "evaluate.delta"),
        (1.0, {"data": "nowhere.parquet"}, "data"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    release: ReleaseSummary, epsilon: float, how: dict[str, Any], field: str
) -> None:
    cost = spent()
    with pytest.raises(RequestError) as refused:
        ask(release, epsilon, **how)
    assert refused.value.field == field
    assert refused.value.exit_code == 2
    assert spent() == cost


def test_only_a_whole_and_private_release_counts_as_public(spec: ReleaseSpec, release: ReleaseSummary) -> None:
    fake = release_in_process(spec, Settings(), noise=NoNoise())
    with pytest.raises(RequestError, match="test noise"):
        publish_quality(fake.released, 1.0, Settings(), data=spec.data)
    manifest = Path(fake.released) / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"differentially_private": false', '"differentially_private": true')
    )
    with pytest.raises(RequestError, match="does not know a release"):
        publish_quality(fake.released, 1.0, Settings(), data=spec.data)
    with pytest.raises(RequestError, match=r"^release: .*holds figures .*Name the release itself"):
        publish_quality(ask(release).run, 1.0, Settings())
    (Path(release.released) / "synthetic.parquet").write_bytes(Path(spec.data).read_bytes())
    with pytest.raises(RequestError, match="not a whole release"):
        ask(release, 0.5)
    with pytest.raises(RequestError, match="not a release"):
        publish_quality("people-00000000", 1.0, Settings())


def replace_table(folder: Path, table: Path) -> None:
    """Put another table in the release's place, and its hash and size into the manifest."""
    (folder / "synthetic.parquet").write_bytes(table.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    manifest["files"]["synthetic.parquet"] = {"sha256": digest, "bytes": table.stat().st_size}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert is_whole(folder)


def test_a_table_that_no_run_made_is_refused_although_the_manifest_agrees(
    spec: ReleaseSpec, release: ReleaseSummary
) -> None:
    cost = spent()
    replace_table(Path(release.released), Path(spec.data))
    with pytest.raises(RequestError, match=r"^release: .*is not the one that the private folder recorded") as refused:
        ask(release)
    assert (refused.value.exit_code, spent()) == (2, cost)
    assert {p.name for p in Settings().released_root.iterdir()} == {release.run}


def test_a_release_without_rows_is_refused(spec: ReleaseSpec) -> None:
    empty = release_in_process(spec.with_rows(rows=0), Settings())
    with pytest.raises(RequestError, match="no synthetic rows"):
        ask(empty)


def test_a_ledger_that_does_not_know_the_release_is_refused(
    release: ReleaseSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "another.sqlite"))
    with pytest.raises(LedgerError, match="has no charge"):
        ask(release)


def test_lost_figures_are_never_drawn_anew_in_silence(release: ReleaseSummary) -> None:
    ask(release)
    for path in Settings().private_root.glob("store/people/quality_figures-*-noisy.parquet"):
        path.write_bytes(b"")
    with pytest.raises(LostNoiseError, match=r"on disk; nothing was spent\. Restore.*, or ask for another epsilon"):
        ask(release)
    assert ask(release, 1.1).drawn == ("quality_figures",)


def test_a_release_at_the_same_epsilon_is_another_request(spec: ReleaseSpec) -> None:
    """The figures at epsilon 2 are no release at epsilon 2: that one is refused before its data is opened."""
    spec = ReleaseSpec.model_validate({**spec.model_dump(), "budget": {"epsilon": 2.5, "delta": 1e-8}})
    ask(release_in_process(spec, Settings()), 2.0)
    dear = {**spec.model_dump(), "privacy": {"epsilon": 2.0, "delta": 1e-9}, "data": "nowhere.parquet"}
    with pytest.raises(BudgetRefusedError):
        release_in_process(ReleaseSpec.model_validate(dear), Settings())
    assert release_in_process(spec, Settings()).drawn == ()


# mutants


def test_noise_stands_in_every_figure(release: ReleaseSummary) -> None:
    exact = [f.noisy_sum for f in ask(release, noise=NoNoise()).figures]
    assert all_noised(release, exact)


def all_noised(release: ReleaseSummary, exact: list[int]) -> bool:
    """Whether each figure differed from the exact one in one of two requests, and by no more than 7 sigma."""
    found = [ask(release, 0.3 + i / 1_000).figures for i in range(2)]
    apart = np.array([[f.noisy_sum - e for f, e in zip(figures, exact, strict=True)] for figures in found])
    sigma = np.array([[f.sigma for f in figures] for figures in found])
    return bool(np.any(apart, axis=0).all() and (np.abs(apart) < 7 * sigma).all())


@pytest.mark.slow
def test_a_figure_without_noise_is_found(release: ReleaseSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mutant: one of the figures is published as it is counted."""
    from privsyn.engine.execute import Run

    draw_noise = Run._draw_noise

    def quiet(shell: Any, queries: Any) -> Any:
        return [*draw_noise(shell, queries)[:-1], np.zeros(1, np.int64)]

    exact = [f.noisy_sum for f in ask(release, noise=NoNoise()).figures]
    monkeypatch.setattr(Run, "_draw_noise", quiet)
    assert not all_noised(release, exact)


# a kill


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name"),
    [(Ledger, "reserve"), (Records, "keep_noise"), (ReleaseStep, "read_rows"), (Ledger, "settle")],
    ids=["reserve", "keep_noise", "read_rows", "settle"],
)
def test_killed_once_the_figures_rest_on_one_draw_and_one_charge(
    children: Any, release: ReleaseSummary, owner: Any, name: str
) -> None:
    exact = [f.noisy_sum for f in ask(release, noise=NoNoise()).figures]
    before = spent()
    run_killed(children, publish_quality, release.run, 1.0, Settings(), at=(owner, name, "after"))
    kept = [pq.read_table(p)["count"].to_pylist() for p in Settings().private_root.glob("noise/people/*.parquet")]
    assert len(kept) == int(name != "reserve")
    assert [p.name for p in Settings().released_root.iterdir()] == [release.run]
    summary = ask(release)
    found = [f.noisy_sum for f in summary.figures]
    for noise in kept:
        assert found == [e + n for e, n in zip(exact, noise, strict=True)]
    assert spent() == before + convert_epsilon_to_rho(1.0, 1e-9, "tight")
    assert Ledger(Settings().ledger).verify() == []
    assert not list(Settings().private_root.glob("noise/people/*.parquet"))
    assert json.loads(read_files(summary.released)["certificate.json"])["run"] == summary.run
