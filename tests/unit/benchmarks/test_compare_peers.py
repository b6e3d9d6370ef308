"""The comparison with the peers: the figures of made-up tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import compare
from benchmarks.compare import Job
from benchmarks.compare_tables import DEMOGRAPHIC, SplitTable, figures, only, percentile_bins
from privsyn.data_contracts.domain import Domain
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import list_all_cliques
from privsyn.tasks.metrics.range_queries import draw_privsyn_queries


def table(rows: int = 400, seed: int = 0) -> CodeTable:
    domain = Domain.of({**dict.fromkeys(DEMOGRAPHIC, 3), "income": 2})
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, n, rows, dtype=np.uint8) for n in domain.sizes]
    columns[-1] = (columns[0] == 0).astype(np.uint8)  # the label follows from the first column
    return CodeTable(domain, tuple(columns))


def made_up(name: str = "adult", holdout: bool = True) -> SplitTable:
    train = table()
    pairs, triples = list_all_cliques(train.domain, 2), list_all_cliques(train.domain, 3)[:5]
    bins = {a: AttributeBins(np.arange(train.domain.size(a), dtype=np.int32)) for a in train.domain.attributes}
    queries = draw_privsyn_queries(train.domain, 20)
    return SplitTable(name, train, table(100, 1) if holdout else None, pairs, triples, queries, binning=bins)


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


def test_no_svm_without_a_hold_out() -> None:
    assert "svm" not in figures(made_up(holdout=False), table())


def test_a_run_of_ours_is_timed_and_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "load_split_table", lambda name: made_up())
    run = compare.run_job(Job("independent", "adult", 1.0, 0))
    assert run.outcome == "done"
    assert set(run.figures) == {"l1_2way", "l1_3way", "range_query", "svm", "k_marginal"}
    assert run.wall is not None and run.wall > 0
    assert run.peak_mb is not None and run.peak_mb > 1
