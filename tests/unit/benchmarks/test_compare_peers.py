"""The comparison with the peers: the order of its runs, what is left out, and the figures of made-up tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare
from benchmarks.compare import OURS, Job, jobs, methods_of, run_all
from benchmarks.compare_page import REAL
from benchmarks.compare_store import Run, Store
from benchmarks.compare_tables import DEMOGRAPHIC, Given, demographic_score, figures, only, percentile_bins
from benchmarks.peers import PeerError
from privsyn.comparison.methods import METHODS
from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import list_all_cliques
from privsyn.tasks.metrics.range_queries import draw_privsyn_queries


def table(rows: int = 400, seed: int = 0) -> CodeTable:
    domain = Domain.of({**dict.fromkeys(DEMOGRAPHIC, 3), "income": 2})
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, n, rows, dtype=np.uint8) for n in domain.sizes]
    columns[-1] = (columns[0] == 0).astype(np.uint8)  # the label follows from the first column
    return CodeTable(domain, tuple(columns))


def made_up(name: str = "adult", holdout: bool = True) -> Given:
    train = table()
    pairs, triples = list_all_cliques(train.domain, 2), list_all_cliques(train.domain, 3)[:5]
    return Given(
        name, train, table(100, 1) if holdout else None, pairs, triples, draw_privsyn_queries(train.domain, 20)
    )


def test_seeds_outermost_then_the_first_table_then_the_smallest_epsilon() -> None:
    order = list(jobs(["x", "y"], ["first", "b", "c"], [1.0, 0.2], 2))
    assert len(order) == len(set(order)) == 2 * 3 * 2 * 2
    assert order[:4] == [
        Job("x", "first", e, 0) if m == "x" else Job("y", "first", e, 0) for e in (0.2, 1.0) for m in "xy"
    ]
    assert [(j.table, j.epsilon) for j in order[4:12:2]] == [("b", 0.2), ("c", 0.2), ("b", 1.0), ("c", 1.0)]
    assert [j.seed for j in order] == [0] * 12 + [1] * 12


def test_the_table_itself_is_perfect_and_another_one_is_not() -> None:
    given = made_up()
    perfect = figures(given, given.train)
    assert perfect == {"l1_2way": 0, "l1_3way": 0, "range_query": 0, "svm": 0, "k_marginal": 1000}
    other = figures(given, table(seed=7))
    assert other["l1_2way"] > 0
    assert other["l1_3way"] > other["l1_2way"]
    assert other["range_query"] > 0
    assert other["k_marginal"] < 1000


def test_the_k_marginal_score_is_of_the_demographic_pairs_only() -> None:
    given = made_up()
    wrong = (*given.train.columns[:-1], 1 - given.train.columns[-1])
    assert figures(given, CodeTable(given.train.domain, wrong))["k_marginal"] == 1000
    without = only(given.train, [*DEMOGRAPHIC[1:], "income"])
    queries = draw_privsyn_queries(without.domain, 5)
    given = replace(
        given, train=without, holdout=None, pairs=list_all_cliques(without.domain, 2), triples=[], queries=queries
    )
    assert "k_marginal" not in figures(given, without)


def test_percentile_bins_by_hand() -> None:
    codes = np.repeat([1, 2, 4], [1, 4, 5])  # mean ranks 1, 3.5 and 8 of 10
    assert percentile_bins(codes, 7, bins=10).tolist() == [1, 1, 3, 8, 8, 8, 8]
    assert percentile_bins(np.arange(100), 100).tolist() == [min(19, (i + 1) // 5) for i in range(100)]
    assert percentile_bins(np.zeros(0, np.int64), 3).shape == (3,)


def test_ages_of_one_percentile_bin_are_the_same_to_the_score() -> None:
    ages, sizes = np.arange(400, dtype=np.uint16), dict.fromkeys(DEMOGRAPHIC, 1) | {"AGEP": 400}
    rest = [np.zeros(400, np.uint8)] * (len(DEMOGRAPHIC) - 1)
    real, near, far = (CodeTable(Domain.of(sizes), (a, *rest)) for a in (ages, ages // 20 * 20 + 1, 399 - ages // 2))
    assert demographic_score(real, real) == 1000
    assert demographic_score(real, near) == pytest.approx(1000, abs=3)  # the first and last bins are cut differently
    assert demographic_score(real, far) < 950


def test_no_svm_without_a_hold_out() -> None:
    assert "svm" not in figures(made_up(holdout=False), table())


@pytest.mark.parametrize("method", OURS)
def test_our_methods_get_and_give_codes_of_the_same_public_bins(method: str) -> None:
    given = made_up()
    trial = given.trial(1.0, 0)
    assert trial.bins == given.train.domain
    assert METHODS[method].run(trial).table.domain == given.train.domain


def test_a_run_of_ours_is_timed_and_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "given", lambda name: made_up())
    run = compare.run_job(Job("independent", "adult", 1.0, 0))
    assert run.outcome == "done"
    assert set(run.figures) == {"l1_2way", "l1_3way", "range_query", "svm", "k_marginal"}
    assert run.wall is not None and run.wall > 0
    assert run.peak_mb is not None and run.peak_mb > 1


@pytest.mark.parametrize(
    ("error", "outcome"), [(TimeoutError("t"), "time"), (MemoryError("m"), "memory"), (PeerError("p"), "failed")]
)
def test_a_peer_that_is_stopped_or_fails_is_a_result(
    error: Exception, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Run:
        raise error

    monkeypatch.setattr(compare, "given", lambda name: made_up())
    monkeypatch.setattr(compare, "_peer", fail)
    run = compare.run_job(Job("aim-dpmm", "adult", 1.0, 0))
    assert (run.outcome, run.detail, run.figures) == (outcome, str(error), {})


class Fake:
    """Runs in place of the real ones: what was run, and which (method, epsilon) are stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stopped: set[tuple[str, float]] | None = None) -> None:
        self.ran: list[Job] = []
        self.stopped = stopped or set()
        monkeypatch.setattr(compare, "run_job", self.run)
        monkeypatch.setattr(compare, "real_rows", lambda name: Run(REAL, "", name, 0.0, 0, "done"))
        monkeypatch.setattr(compare, "method_version", lambda method: "" if method == "absent" else "1")

    def run(self, job: Job) -> Run:
        self.ran.append(job)
        outcome = "time" if (job.method, job.epsilon) in self.stopped else "done"
        return Run(job.method, "1", job.table, job.epsilon, job.seed, outcome)


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    wanted = list(jobs(["default", "aim-dpmm"], ["t", "u"], [0.2, 1.0], 2))
    run_all(Store(tmp_path / "s"), iter(wanted[:5]))
    run_all(Store(tmp_path / "s"), iter(wanted))
    assert fake.ran == wanted  # each one once
    run_all(Store(tmp_path / "s"), iter(wanted), again=["default"])
    assert fake.ran[len(wanted) :] == [job for job in wanted if job.method == "default"]


def test_after_a_stop_larger_epsilons_and_other_seeds_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch, {("aim-dpmm", 1.0)})
    run_all(Store(tmp_path / "s"), jobs(["aim-dpmm", "default", "absent"], ["t"], [0.2, 1.0, 2.0], 2))
    aim = [(job.epsilon, job.seed) for job in fake.ran if job.method == "aim-dpmm"]
    assert aim == [(0.2, 0), (1.0, 0), (0.2, 1)]
    assert len([job for job in fake.ran if job.method == "default"]) == 6
    assert not [job for job in fake.ran if job.method == "absent"]


def test_a_peer_that_takes_hours_is_run_where_it_is_named_only() -> None:
    assert "aim-dpmm" in methods_of(True, True)
    assert "aim-80-dpmm" not in methods_of(True, True)
    assert methods_of(True, True, ["aim-80-dpmm", "default"]) == ["default", "aim-80-dpmm"]
    assert methods_of(True, False, ["aim-80-dpmm"]) == []
