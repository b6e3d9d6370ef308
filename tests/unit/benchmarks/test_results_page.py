"""The comparisons on Adult in docs/results/papers.md: verdicts and overlaps by hand, and the page is generated."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.results import BEGIN, DOCS, END, FIGURES, PAGE, errors_needed, marginals, overlap, page, shape
from privsyn.data_contracts.evaluation import ComparedMethod, Comparison, EvaluationSpec, MethodRun, Metric
from privsyn.evaluation.comparison.compare_methods import METHODS


def run(method: str, seed: int, value: float, marginals: Any = ()) -> MethodRun:
    metric = Metric(
        name="l1_2way", title="Pairs", group="marginals", value=value, unit="u", low=0, high=2, better="lower",
        source="s", meaning="m",
    )  # fmt: skip
    return MethodRun(
        method=method, epsilon=1.0, seed=seed, outcome="done", seconds=1.0, metrics=(metric,), marginals=marginals
    )


def comparison(*runs: MethodRun) -> Comparison:
    methods = tuple(
        ComparedMethod(name=m.name, title=m.title, description="d", source="s", private=m.private)
        for m in METHODS.values()
    )
    return Comparison(
        dataset="adult", rows_real=10, rows_holdout=None, columns=("x",), delta=1e-9, unit_of_protection="one person",
        settings=EvaluationSpec(), machine="this one", methods=methods, epsilons=(1.0,), seeds=2, runs=runs,
    )  # fmt: skip


def test_verdicts_by_hand() -> None:
    """Differences 0.0295 and 0.0305: mean 0.03, standard error 0.0005, so 60 errors; of a's mean of 0.2 it is 15 %."""
    found = comparison(run("a", 0, 0.1), run("a", 1, 0.3), run("b", 0, 0.1295), run("b", 1, 0.3305))
    assert list(shape(found, "a", "b")) == ["| a < b | l1_2way | +15.0% yes |"]
    assert list(shape(found, "b", "a")) == ["| b < a | l1_2way | -13.0% **no** |"]
    assert list(shape(found, "b", "a", close=True)) == ["| b ≈ a | l1_2way | -13.0% **no** |"]
    assert list(shape(found, "a", "nobody")) == []


def test_few_seeds_need_more_standard_errors() -> None:
    """Student's t, two-sided 95 %: 12.706 for 1 degree of freedom, 2.776 for 4.  Differences 0.02 and 0.04 are 3 errors
    of 0.01 from 0: too few for two seeds.  0.02 four times and 0.04: mean 0.024, error 0.004, so 6 errors of five."""
    assert (errors_needed(2), errors_needed(5)) == (pytest.approx(12.706, abs=1e-3), pytest.approx(2.776, abs=1e-3))
    two = comparison(run("a", 0, 0.1), run("a", 1, 0.3), run("b", 0, 0.12), run("b", 1, 0.34))
    assert next(shape(two, "a", "b")).endswith(" ? |")
    ones, others = [run("a", s, 0.1) for s in range(5)], [run("b", s, 0.12 + 0.02 * (s == 4)) for s in range(5)]
    assert " yes |" in next(shape(comparison(*ones, *others), "a", "b"))
    single = comparison(run("a", 0, 0.1), run("b", 0, 0.2))
    assert next(shape(single, "a", "b")).endswith(" ? |")


def test_the_overlap_counts_the_pairs_inside_cliques() -> None:
    """Exact: x-y, x-z, y-z (one clique) and y-w; private has x-y, x-z, y-z as pairs: 3 of 4, and 0 of 1."""
    found = comparison(
        run("non-private-selection", 0, 0.1, (("x", "y", "z"), ("y", "w"))),
        run("privsyn-paper", 0, 0.1, (("x", "y"), ("x", "z"), ("y", "z"))),
        run("non-private-selection", 1, 0.1, (("x", "y"),)),
        run("privsyn-paper", 1, 0.1, (("x", "w"),)),
    )
    assert overlap(found, 1.0) == (3 / 4 + 0) / 2
    assert marginals(found, "non-private-selection", 1.0) == 1.5
    assert marginals(found, "default", 1.0) == 0.0


def test_the_page_is_generated_with_every_method_and_picture() -> None:
    made = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert {name for names, _ in FIGURES.values() for name in names} <= set(METHODS)
    for first, second in (
        ("privsyn-paper <", "equal-gaussian"), ("equal-gaussian <", "equal-laplace"),
        ("non-private-selection ≈", "privsyn-paper"),
    ):  # fmt: skip
        assert made.count(f"| {first} {second} | ") == 3
    for name in FIGURES:
        assert f"](../img/{name}.png)" in made
        assert (DOCS / "img" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    heads = [line for line in page(comparison(run("equal-laplace", 0, 0.1))) if line.startswith("| epsilon")]
    assert heads[0] in made.splitlines()
