"""Answers of columns that have the names of figures, and of columns whose totals are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.answers.questions import Questions
from privsyn.answers.released_counts import MemoryCounts
from privsyn.base.errors import RequestError
from tests.support.answered import released, spec, table
from tests.support.specs import make_spec

STATEMENT = "Residents by region, published by the office on 2026-01-01."
NAMES = ("estimate", "source", "probability", "n")


class Asked(Questions):
    """The questions of a release in memory."""

    def __init__(self, counts: MemoryCounts) -> None:
        self._own = counts

    @property
    def _counts(self) -> Any:
        return self._own


@pytest.fixture(scope="module")
def odd() -> Asked:
    rng = np.random.default_rng(3)
    n = rng.integers(0, 10, 400)
    rows = {name: rng.choice(["a", "b"], 400) for name in NAMES[:3]}
    kinds = {name: {"kind": "categorical", "values": ["a", "b"], "unlisted": "b"} for name in NAMES[:3]}
    whole = pa.table({**rows, "n": n, "low": np.where(n < 5, "few", "many")})
    columns = {
        **kinds,
        "n": {"kind": "integer", "min": 0, "max": 9},
        "low": {"kind": "categorical", "values": ["few", "many"]},
    }
    rule = {"derive": {"low": "'few' if n < 5 else 'many'"}}
    asked = make_spec(columns, privacy={"epsilon": 5.0, "delta": 1e-9}, rules=[rule])
    return Asked(released(whole, asked, 1))


def test_columns_named_as_figures_keep_their_labels(odd: Asked) -> None:
    assert odd.count("estimate")["estimate (column)"].tolist() == ["a", "b"]
    assert abs(odd.count("source")["estimate"].sum() - 400) < 40
    assert set(odd.count("low")["low (column)"]) == {"few", "many"}
    assert set(odd.share("source", by="low")["source (column)"]) == {"a", "b"}
    assert odd.quantile("n", [0.25, 0.5], by="probability")["probability"].tolist() == [0.25, 0.5] * 2


def test_a_share_of_what_it_is_grouped_by_is_refused(odd: Asked) -> None:
    with pytest.raises(RequestError, match="'source' is both asked for and grouped by"):
        odd.share("source", by="source")


def test_answers_by_known_totals_say_that_they_were_not_measured() -> None:
    known = {"north": 250, "south": 130, "east": 120}
    counts = [{"region": name, "count": n} for name, n in known.items()]
    told = {"columns": ["region"], "counts": counts, "statement": STATEMENT}
    release = Asked(released(table(500), spec(totals=[told]), 1))
    said = "Not measured: counts of region are the spec's known totals"
    for answer in (release.count("region"), release.count(), release.quantile("age", 0.5, by="region")):
        assert any(word.startswith(said) for word in answer.attrs["words"])
    assert not any(word.startswith(said) for word in release.count("happy").attrs["words"])
