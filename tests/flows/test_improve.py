"""A release that improves earlier ones: what it costs, what it pools, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.api.after_release import rerun
from privsyn.api.ledger import LedgerView
from privsyn.api.open_release import Release, open_release
from privsyn.api.prune import prune
from privsyn.api.release import improve
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import StepFailedError
from privsyn.engine.improved_run import build_improved_spec
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from tests.support.commands import privsyn, use_no_server
from tests.support.kept import Kept
from tests.support.releases import release_in_process
from tests.support.specs import changed, make_spec, people

NEW = ("one_way_marginals_2", "indif_scores_2", "measure_more_2")
THIRD = tuple(name.replace("_2", "_3") for name in NEW)


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    data = kept.begin_with(monkeypatch, people(2_000))
    return make_spec(data=data, privacy={"epsilon": 0.5, "delta": 1e-9}, synthesis={"sweeps": 1})


@pytest.fixture
def first(kept: Kept, spec: ReleaseSpec) -> str:
    """The run that is improved."""
    return str(kept.once(lambda: release_in_process(spec, Settings()).run))


def charged() -> dict[tuple[str, str], Fraction]:
    """(Run, step) -> rho, of every charge."""
    entries = Ledger(Settings().ledger).entries("people")
    return {(e.run, e.step): e.rho for e in entries if e.event == "reserve"}


def receipts(release: Release, file: str) -> list[Query]:
    return read_receipts(pq.read_table(release.folder / f"marginals/{file}_receipts.parquet"))


def test_only_the_new_looks_are_charged_and_the_promise_is_of_all_together(first: str) -> None:
    before = charged()
    better = improve(first, 0.8)
    again = improve(first, 0.8)
    best = improve(better, 0.3)
    assert (better.drawn, again.drawn, best.drawn) == (NEW, (), THIRD)
    assert (again.run, len({first, better.run, best.run})) == (better.run, 3)
    rho = [convert_epsilon_to_rho(epsilon, 1e-9, "tight") for epsilon in (0.5, 0.8, 0.3)]
    new = {key: value for key, value in charged().items() if key not in before}
    assert {run for run, _ in new} == {better.run, best.run}
    for release, names, price in ((better, NEW, rho[1]), (best, THIRD, rho[2])):
        assert sum(new[release.run, name] for name in names) == price
    for release, total in ((better, sum(rho[:2])), (best, sum(rho))):
        c = release.certificate
        assert Fraction(c.rho_budget) == total == sum(Fraction(s.rho_budget) for s in c.stages)
        assert c.epsilon == convert_rho_to_epsilon(Fraction(total), 1e-9, "tight")
        paid = [q for file in release.marginals if file.endswith("_receipts") for q in receipts(release, file[:-9])]
        assert total * Fraction(999, 1000) < sum_rho(paid) <= total
    assert Ledger(Settings().ledger).summary("people")[0].rho == sum(rho)
    assert (better.certificate.improves, best.certificate.improves) == ([first], [first, better.run])
    assert f"improves `{first}`, `{better.run}`" in best.note
    assert not LedgerView(Settings()).verify().problems
    assert rerun(best).agrees


def claimed_and_due(release: Release) -> tuple[dict[Any, float], dict[Any, float]]:
    """Of every pair, the noise that the consistent counts claim, and what all looks at it have together."""
    rows = release.marginals["consistent"].to_pylist()
    claimed = {tuple(r["attributes"]): r["sigma"] for r in rows if len(r["attributes"]) > 1}
    precision: dict[Any, float] = {}
    for file in ("measured", "measured_2"):
        for q in receipts(release, file):
            if len(q.attributes) > 1:
                precision[q.attributes] = precision.get(q.attributes, 0.0) + q.sigma**-2.0
    return claimed, {pair: value**-0.5 for pair, value in precision.items()}


def test_every_look_at_a_pair_is_pooled_by_inverse_variance(first: str) -> None:
    better = improve(first, 0.5)
    claimed, due = claimed_and_due(better)
    assert claimed == pytest.approx(due)
    alone = {q.attributes: q.sigma for q in receipts(better, "measured") if len(q.attributes) > 1}
    both = {q.attributes for q in receipts(better, "measured_2")} & alone.keys()
    assert both and all(due[pair] < 0.9 * alone[pair] for pair in both)
    old, new = open_release(first).count(where="region == 'north'"), better.count(where="region == 'north'")
    assert new["std_error"][0] < 0.9 * old["std_error"][0]
    # The spec says what is improved and nothing of the table.
    public = json.loads((better.folder / "manifest.json").read_text())["spec"]
    earlier = [{"run": first, "epsilon": 0.5, "delta": 1e-9}]
    assert public["improves"] == {"earlier": earlier, "epsilon": 0.5, "delta": 1e-9}
    assert "data" not in public and np.isclose(public["privacy"]["epsilon"], 0.7176, atol=1e-3)
    assert "improves" not in json.loads((Path(open_release(first).folder) / "manifest.json").read_text())["spec"]


def test_mutant_noise_that_is_said_to_be_less_than_was_drawn(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the pooled noise is that of as many looks, each as good as the best."""
    pool = noisy._pool

    def boasting(queries: list[Query], answers: list[Any]) -> tuple[Query, Any]:
        query, mean = pool(queries, answers)
        best = min(q.sigma for q in queries) / len(queries)
        return (query if len(queries) == 1 else noisy.replace(query, sigma=best)), mean

    monkeypatch.setattr(noisy, "_pool", boasting)
    claimed, due = claimed_and_due(improve(first, 0.5))
    assert claimed != pytest.approx(due)


def test_the_command_says_what_was_made_and_refuses_in_a_sentence(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_no_server(monkeypatch)
    done = privsyn("improve", first, "--epsilon", 0.5, "--yes", "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["drawn"]) == (0, list(NEW))
    assert answer["rho"] == float(convert_epsilon_to_rho(0.5, 1e-9, "tight")) and round(answer["epsilon"], 4) == 0.7169
    refused = privsyn("improve", "people-0", "--epsilon", 0.5)
    assert (refused.exit_code, "RUN: there is no run 'people-0'" in refused.stderr) == (2, True)
    too_little = privsyn("improve", first, "--epsilon", 0)
    assert (too_little.exit_code, "--epsilon: must be above 0" in too_little.stderr) == (2, True)
    too_much = privsyn("improve", first, "--epsilon", 50)
    assert (too_much.exit_code, "still fits: lower --epsilon to that." in too_much.stderr) == (3, True)


@pytest.mark.slow
def test_a_killed_improvement_goes_on_with_its_draws(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ReleaseStep.read_rows

    def failing(self: ReleaseStep, *inputs: Any) -> Any:
        if self.name == "measure_more_2":
            raise ValueError
        return read(self, *inputs)

    with monkeypatch.context() as broken:
        broken.setattr(ReleaseStep, "read_rows", failing)
        with pytest.raises(StepFailedError):
            improve(first, 0.5)
    spent = charged()
    assert prune(Settings(), rows=True, delete=True).left_out == ()  # the rows are encoded again
    better = improve(first, 0.5)
    assert better.drawn == ("measure_more_2",)
    assert charged() == spent
    assert rerun(better).agrees
    other = improve(first, 0.5, fresh=True)
    assert (other.run != better.run, improve(other, 0.2).drawn) == (True, THIRD)


def more_people(spec: ReleaseSpec) -> None:
    pq.write_table(people(2_001), spec.data)


def rename_a_look(run: str) -> None:
    """Change the run's note as if a version that named one look otherwise had written it."""
    path = Settings().private_root / "runs" / run / "run.json"
    note = json.loads(path.read_text())
    note["keys"]["earlier_name"] = note["keys"].pop("measure_marginals")
    path.write_text(json.dumps(note))


REFUSED: dict[str, tuple[Callable[[ReleaseSpec, str], Any], str]] = {
    "changed data": (lambda spec, run: (more_people(spec), improve(run, 0.5)), "has changed since people-"),
    "other looks": (lambda spec, run: (rename_a_look(run), improve(run, 0.5)), "by steps of another version"),
    "an unknown run": (lambda spec, run: improve("people-0", 0.5), "there is no run 'people-0'"),
    "an odd name": (lambda spec, run: improve("../people", 0.5), "not a valid file name"),
    "no budget": (lambda spec, run: improve(run, 0.0), "above 0"),
    "not a number": (lambda spec, run: improve(run, float("nan")), "above 0"),
    "too little": (lambda spec, run: improve(run, 1e-9), "noise of more than"),
    "too much": (lambda spec, run: improve(run, 50.0), "does not allow this"),
    "another domain": (
        lambda spec, run: released_by(run, spec, columns={**spec.model_dump()["columns"], "happy": {"kind": "drop"}}),
        "from another spec",
    ),
    "another mechanism": (lambda spec, run: released_by(run, spec, mechanism={"name": "mst"}), "cannot be pooled"),
    "a smaller promise": (
        lambda spec, run: released_by(run, spec, privacy={"epsilon": 0.6, "delta": 1e-9}),
        "less than this release",
    ),
}


def released_by(run: str, spec: ReleaseSpec, **changes: Any) -> Any:
    """A release by a spec that somebody has changed after ``privsyn improve`` wrote it."""
    content = changed(build_improved_spec(run, Settings(), 0.5), **changes)
    return release_in_process(content, Settings())


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_pooled_is_refused_in_a_sentence_and_costs_nothing(
    spec: ReleaseSpec, first: str, why: str
) -> None:
    ask, words = REFUSED[why]
    before = charged()
    with pytest.raises(Exception, match=words) as refused:
        ask(spec, first)
    assert isinstance(refused.value, RequestError | ValueError) or "does not allow" in words
    assert charged() == before


def test_a_period_cannot_be_improved(spec: ReleaseSpec) -> None:
    run = release_in_process(spec, Settings(), period="2026-11").run
    with pytest.raises(RequestError, match="release of a period"):
        improve(run, 0.5)


def test_a_table_in_memory_is_handed_over_again(spec: ReleaseSpec) -> None:
    table: pa.Table = people(2_000)
    run = release_in_process(spec, Settings(), data=table).run
    with pytest.raises(RequestError, match="handed over in memory"):
        improve(run, 0.5)
    assert improve(run, 0.5, data=table).drawn == NEW
