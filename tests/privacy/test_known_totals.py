"""Bug classes 1, 3 and 8: known totals that are read from the private table, or checked against it.

It does not see totals of linked rows, of linked tables or of a period, nor looks beyond the default three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import fund
from privsyn.pipelines import common_steps, one_shot, registry
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.knowledge.totals import KnownTotals
from tests.support.releases import few, released, run
from tests.support.specs import people

Save = Callable[..., str]
STATEMENT = "Residents by region, published by the office on 2026-01-01."
COUNTS = [{"region": "north", "count": 160}, {"region": "south", "count": 140}]


def stated(data: str, **more: Any) -> ReleaseSpec:
    return few(data, totals=[{"columns": ["region"], "counts": COUNTS, "statement": STATEMENT}], **more)


def public_of(spec: ReleaseSpec) -> tuple[Any, ...]:
    """All that follows from the request alone: every step's key and inputs, and the totals in codes."""
    request = Request(spec, tuple(spec.released_columns))
    assert request.public.totals is not None
    steps = {s.name: (s.key_json(request), s.inputs) for s in build_steps(request)}
    return steps, {a: c.tolist() for a, c in request.public.totals.one_way.items()}, request.public.totals.rows


def seen(data: str, dataset: str) -> tuple[Any, ...]:
    """What a release shows without regard to its noisy counts: its steps, prices, regions, and how it ended."""
    try:
        made = run(stated(data, dataset=dataset))
    except Exception as error:
        return ("refused", str(error))
    prices = released(made, "marginals/one_way_receipts.parquet").to_pylist()
    regions = Counter(released(made, "synthetic.parquet")["region"].to_pylist())
    return made.drawn, prices, regions


def test_01_totals_and_settings_are_the_same_whatever_the_private_table(save: Save) -> None:
    """With no private table there at all they are those with one or another."""
    sources = ("absent.parquet", save(people(9)), save(people(300), "more.parquet"))
    found = [public_of(stated(data)) for data in sources]
    assert found[0] == found[1] == found[2]
    known = {name for name, (settings, _) in found[0][0].items() if "known" in settings or "totals" in settings}
    assert known == {
        "one_way_marginals", "compress_domain", "refine_codes", "make_consistent", "synthesize", "append_attributes"
    }  # fmt: skip


@pytest.mark.usefixtures("places")
def test_03_a_release_shows_nothing_of_whether_totals_are_true(save: Save) -> None:
    true, untrue = people(300), people(300).slice(0, 17)
    assert seen(save(true), "true") == seen(save(untrue, "untrue.parquet"), "untrue")


@pytest.mark.usefixtures("places")
def test_03_mutant_totals_that_are_checked_against_the_rows(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the one-ways refuse totals that the private counts do not have."""

    def checked(request: Request) -> Any:
        def exact(r: Request, inputs: Inputs, rows: Any, queries: Any) -> Any:
            if rows.rows != request.public.totals.rows:
                raise ValueError("the totals are not those of the table")
            return look.exact(r, inputs, rows, queries)

        steps = one_shot.build_steps(request)
        look = next(s for s in steps if s.name == "one_way_marginals")
        return tuple(replace(s, exact=exact) if s is look else s for s in steps)

    monkeypatch.setitem(registry.MECHANISMS, "privsyn", checked)
    true, untrue = people(300), people(300).slice(0, 17)
    assert seen(save(true), "true") != seen(save(untrue, "untrue.parquet"), "untrue")


@pytest.mark.usefixtures("places")
def test_01_mutant_totals_that_are_counted_in_the_private_table(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: in place of what the spec states, the table's own regions are counted."""

    def counted(totals: Any, plan: Any) -> KnownTotals:
        table = pq.read_table(place[0])
        counts = Counter(r if r in ("north", "south") else "other" for r in table["region"].to_pylist())
        rows = [{"region": region, "count": n} for region, n in counts.items()]
        return original((totals[0].model_copy(update={"counts": tuple(rows)}),), plan)

    original, place = KnownTotals.of, [""]
    monkeypatch.setattr(KnownTotals, "of", counted)
    found = []
    for data in (save(people(300)), save(people(90), "more.parquet")):
        place[0] = data
        found.append((public_of(stated(data)), seen(data, Path(data).stem)))
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]


def test_08_what_is_known_is_not_paid_for_and_the_rest_has_its_price() -> None:
    """The price of the first look is its whole share: what is not measured is not paid for, and nothing is free."""
    request = Request(stated("absent.parquet"), ("age", "region"))
    plain = Request(few("absent.parquet"), ("age", "region"))
    (look,) = fund([common_steps.ONE_WAYS], {"one_way_marginals": plain.spec.mechanism.split.exact()[0]})
    (alone,), both = look.plan(request, Inputs({}), look.rho(request)), look.plan(plain, Inputs({}), look.rho(plain))
    assert alone.attributes == ("age",) and {q.attributes for q in both} == {("age",), ("region",)}
    assert sum(q.rho for q in both) <= look.rho(plain) and alone.rho <= look.rho(request) == look.rho(plain)
    assert alone.rho > 0.999 * look.rho(request)
