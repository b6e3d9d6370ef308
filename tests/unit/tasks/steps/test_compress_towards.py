"""Bins towards a prior: a wrong one changes nothing, a right one keeps more codes and says which counts are surer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins, Level
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.compress_domain import compress_domain, compress_towards

SIZE, ROWS, SIGMA = 50, 2_000, 30.0
NAMES = ("a", "b", "c")
BINNING = {a: AttributeBins(np.arange(SIZE, dtype=np.int32)) for a in NAMES}


def table(seed: int, turned: int = 0) -> CodeTable:
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, SIZE + 1) ** 1.5
    columns = ((rng.choice(SIZE, ROWS, p=shares / shares.sum()) + turned) % SIZE for _ in NAMES)
    return CodeTable(Domain(NAMES, (SIZE,) * 3), tuple(c.astype(np.uint8) for c in columns))


def made(public: CodeTable | None) -> Recode:
    rng, private = np.random.default_rng(7), table(1)
    exact = [np.bincount(private.column(a), minlength=SIZE) for a in NAMES]
    answers = [np.rint(y + rng.normal(0, SIGMA, SIZE)).astype(np.int64) for y in exact]
    queries = [Query((a,), SIZE, 1, SIGMA) for a in NAMES]
    if public is None:
        return compress_domain(answers, queries, BINNING, Compression())
    return compress_towards(public, answers, queries, BINNING, Compression())


def error(recode: Recode) -> float:
    """Of the fine counts that the recode stands for, in squares."""
    private, whole = table(1), 0.0
    for a, r in recode.items():
        true = np.bincount(private.column(a), minlength=SIZE)
        codes = np.bincount(r.coarse, weights=r.estimate)
        whole += float(((codes[r.coarse] * r.weight - true) ** 2).sum())
    return whole


def test_a_right_prior_makes_the_counts_surer_and_nearer() -> None:
    usual, drawn = made(None), made(table(2))
    assert all(r.by_prior and r.noise < SIGMA**2 for r in drawn.values())
    assert not any(r.by_prior for r in usual.values())
    assert error(drawn) < 0.5 * error(usual)


def test_a_wrong_prior_changes_nothing() -> None:
    usual, drawn = made(None), made(table(2, turned=SIZE // 2))
    for a in NAMES:
        assert not drawn[a].by_prior
        assert (drawn[a].coarse == usual[a].coarse).all() and (drawn[a].weight == usual[a].weight).all()


def test_attributes_with_levels_keep_their_own_counts_beside_a_prior() -> None:
    of = np.arange(SIZE) // 10
    public, tens = table(2), Level("a (in tens)", of)
    queries = [Query((a,), SIZE, 1, SIGMA) for a in ("a", "b")] + [Query(("a (in tens)",), 5, 1, SIGMA)]
    exact = [np.bincount(table(1).column(a), minlength=SIZE) for a in ("a", "b")]
    answers = [*exact, np.bincount(of, weights=exact[0]).astype(np.int64)]
    binning = {
        **BINNING,
        "a": replace(BINNING["a"], levels=(tens,)),
        "a (in tens)": AttributeBins(np.arange(5, dtype=np.int32)),
    }
    found = compress_towards(public, answers, queries, binning, Compression())
    assert not found["a"].by_prior and found["b"].by_prior
    alone = compress_towards(public, answers[::2], queries[::2], binning, Compression())
    assert (alone["a"].estimate == found["a"].estimate).all()
