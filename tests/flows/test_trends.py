"""Releases with trends: what is spent on them, what is published, and what answers and improvements make of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.answers.released_counts import ReleasedCounts
from privsyn.answers.simulated import make_replicate, remake_rows
from privsyn.api.release import improve
from privsyn.base.settings import Settings
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import check_shares, get_step, release_steps, say
from privsyn.pipelines.added_looks import TRENDS, list_trend_pairs
from privsyn.pipelines.budget import share_trends
from privsyn.pipelines.registry import build_steps
from privsyn.publish.certificate_of_run import list_measured_relations
from privsyn.storage.released_files import read_certificate
from privsyn.tasks.estimation.noisy import count_marginals, read_answers, read_receipts
from tests.support.releases import release_in_process
from tests.support.repeated_noise import share_noise
from tests.support.specs import STATED_PRIOR

NUMBERS = {name: {"kind": "integer", "min": 0, "max": 200} for name in ("a", "b", "c")}
GROUP = {"kind": "categorical", "values": ["x", "y"]}


def content(epsilon: float = 1.0, **changes: object) -> dict[str, object]:
    """Return a spec's fields; at 0.2 the noise of a trend is .07 of 3,000 rows."""
    return {
        "dataset": "numbers",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": epsilon, "delta": 1e-9},
        "budget": {"epsilon": 20.0, "delta": 1e-7},
        "columns": {**NUMBERS, "group": GROUP},
        **changes,
    }


def make_table(rows: int = 3_000) -> pa.Table:
    rng = np.random.default_rng(0)
    a = rng.normal(100, 30, rows)
    frame = {"a": a, "b": 0.7 * a + rng.normal(30, 20, rows), "c": rng.normal(100, 30, rows)}
    columns = {name: np.clip(np.rint(v), 0, 200).astype(np.int64) for name, v in frame.items()}
    return pa.table({**columns, "group": rng.choice(["x", "y"], rows)})


def request(**changes: object) -> Request:
    return Request(ReleaseSpec.model_validate({**content(), "data": "numbers.parquet", **changes}))


def test_trends_have_a_part_of_the_third_share_by_the_columns_with_an_order() -> None:
    asked = request()
    assert share_trends(asked) == Fraction("0.15") * Fraction(6, 7)
    steps = build_steps(asked)
    check_shares(steps)
    shares = {step.name: step.share for step in release_steps(steps)}
    assert shares[TRENDS] == Fraction("0.73") * share_trends(asked)
    assert shares[TRENDS] + shares["measure_marginals"] + shares["value_counts"] == Fraction("0.73")


def test_a_label_of_two_values_in_focus_has_a_trend_with_every_number() -> None:
    asked, plain = request(focus={"columns": ["group", "a"]}), request()
    assert share_trends(asked) == Fraction("0.15") > share_trends(plain)
    keys = [r.public.key(get_step(build_steps(r), TRENDS).reads) for r in (asked, plain)]
    assert keys == [{"two_valued": ["group"]}, {}]
    step = get_step(release_steps(build_steps(asked)), TRENDS)
    assert ["either of its two values" in say(step.look.reason, r) for r in (asked, plain)] == [True, False]
    rows = make_table().drop_columns(["group"])
    rows = rows.append_column("group", pa.array(np.where(np.asarray(rows["a"]) > 100, "x", "y")))
    access = PrivateAccess(lambda repairs=None: rows.to_batches())
    asked = Request(asked.spec, tuple(rows.column_names), 1)
    made = MemoryRun(asked, build_steps(asked), draw_from_seed(0), access).run()
    names = [q.attributes for q in read_receipts(made[TRENDS]["receipts"])]
    assert {("group",), ("a", "group"), ("b", "group"), ("c", "group")} <= {*names}
    synthetic = made["decode"]["synthetic"].to_pandas().groupby("group").a.mean()
    assert synthetic["x"] > synthetic["y"] + 10


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "0.3"},
        {"preset": "paper"},
        {"columns": {"a": NUMBERS["a"], "group": GROUP}},
        {"columns": {name: {**c, "bins": 10} for name, c in NUMBERS.items()}},
        {"prior": STATED_PRIOR},
        {"mechanism": {"name": "mst"}},
    ],
    ids=["0.3", "paper", "one number", "bins", "prior", "mst"],
)
def test_no_trends_are_asked_where_there_are_none_or_nobody_wants_them(changes: dict[str, object]) -> None:
    spec = ReleaseSpec.model_validate({**content(), "data": "numbers.parquet", **changes})
    if spec.prior is None:
        assert not share_trends(Request(spec)) and TRENDS not in {s.name for s in build_steps(Request(spec))}
    else:
        public = spec.model_copy(update={"prior": spec.prior.model_copy(update={"table": None})})
        assert not share_trends(replace(request(), spec=public))


def test_two_numbers_far_apart_in_a_wide_table_have_a_trend_all_the_same() -> None:
    columns = {"a": NUMBERS["a"], **{f"group {i}": GROUP for i in range(300)}, "z": NUMBERS["b"]}
    asked = request(columns=columns)
    assert share_trends(asked)
    assert list_trend_pairs(asked, asked.encoding.domain.attributes, ["a", "z"], 44_850) == [("a", "z")]
    near = request(columns={**columns, "b": NUMBERS["b"]})
    assert list_trend_pairs(near, near.encoding.domain.attributes, ["a", "z", "b"], 44_850) == [("z", "b")]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("trends")
    settings = Settings(out=home / "out", ledger=str(home / "ledger.sqlite"))
    spec = ReleaseSpec.model_validate({**content(), "data": "nowhere.parquet"})
    return Path(release_in_process(spec, settings, data=make_table()).released)


def test_trends_are_published_priced_and_told(released: Path) -> None:
    folder = released
    receipts = pq.read_table(folder / "marginals" / "trends_receipts.parquet").to_pandas()
    assert [tuple(names) for names in receipts["attributes"]][:4] == [("a",), ("b",), ("c",), ("a", "b")]
    assert len(receipts) == len(pq.read_table(folder / "marginals" / "trends.parquet")) == 6
    (stage,) = (s for s in read_certificate(folder).stages if s.step == TRENDS)
    assert 0.99 < sum(Fraction(r) for r in receipts["rho"]) / Fraction(stage.rho_budget) <= 1
    assert "trend" in (folder / "README.md").read_text(encoding="utf-8")
    # Rows follow the trend of a pair.
    rows = pd.read_parquet(folder / "synthetic.parquet")
    found = rows[["a", "b", "c"]].corr("spearman").to_numpy()
    real = make_table().to_pandas()[["a", "b", "c"]].corr("spearman").to_numpy()
    assert found[0, 1] > 0.5 * real[0, 1] > 0.3
    assert np.abs(found - real).mean() < 0.15
    # Answers make the releases rows of its own trends and others of new ones.
    counts = ReleasedCounts.of(released)
    own = remake_rows(counts, counts.measured)
    assert own.select(["a", "b", "c"]).equals(counts.table.select(["a", "b", "c"]))
    again = [make_replicate(counts, seed).to_pandas()[["a", "b"]].corr("spearman").iloc[0, 1] for seed in range(3)]
    assert len({round(r, 6) for r in again}) == 3
    assert min(again) > 0.2


@pytest.fixture(scope="module")
def unclear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("unclear")
    settings = Settings(out=home / "out", ledger=str(home / "ledger.sqlite"))
    spec = ReleaseSpec.model_validate({**content(0.2), "data": "nowhere.parquet"})
    with share_noise("unclear trends 1"):
        return Path(release_in_process(spec, settings, data=make_table()).released)


def test_unclear_trends_are_asked_again_after_the_marginals_and_clear_ones_are_not(
    unclear: Path, released: Path
) -> None:
    asked = [pq.read_table(f / "marginals" / "measured_receipts.parquet").to_pandas() for f in (unclear, released)]
    marginals = [count_marginals([tuple(names) for names in receipts["attributes"]]) for receipts in asked]
    assert len(asked[1]) == marginals[1]
    again = asked[0][marginals[0] :]
    assert 1 <= len(again) <= 3
    assert (again["cells"] == 1).all()
    assert (again["sensitivity"] == 1).all()
    (stage,) = (s for s in read_certificate(unclear).stages if s.step == "measure_marginals")
    assert 0.99 < sum(Fraction(r) for r in asked[0]["rho"]) / Fraction(stage.rho_budget) <= 1
    assert "sum of signs" in stage.reason
    # A trend asked again is no joint count.
    counts = ReleasedCounts.of(unclear)
    assert counts.sums_beside["measure_marginals"]
    spec = ReleaseSpec.model_validate({**content(0.2), "data": "nowhere.parquet"})
    relations = list_measured_relations(Plan(Request(spec), counts.steps), read_certificate(unclear).stages)
    assert relations is not None
    assert {r.columns for r in relations} == {c.attributes for c in counts.joint}
    # Answers make the rows of trends asked again and others of new ones.
    own = remake_rows(counts, counts.measured)
    assert own.select(["a", "b", "c"]).equals(counts.table.select(["a", "b", "c"]))
    other = {name: [np.zeros_like(c.counts, dtype=np.int64) for c in sums] for name, sums in counts.sums_beside.items()}
    first = read_answers(pq.read_table(unclear / "marginals" / "trends.parquet"), _read_trend_queries(unclear))
    without = remake_rows(counts, counts.measured, sums={**other, TRENDS: first})
    found = [table.to_pandas()[["a", "b"]].corr("spearman").iloc[0, 1] for table in (own, without)]
    assert found[0] > found[1] + 0.05, "the second look says how they rise together, too"
    assert len({make_replicate(counts, seed)["a"].to_pylist()[0] for seed in range(4)}) > 1


def _read_trend_queries(folder: Path) -> list[Query]:
    return read_receipts(pq.read_table(folder / "marginals" / "trends_receipts.parquet"))


@pytest.mark.slow
def test_an_improvement_pools_trends_asked_again_and_measures_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVSYN_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    pq.write_table(make_table(), tmp_path / "numbers.parquet")
    spec = ReleaseSpec.model_validate({**content(0.2), "data": str(tmp_path / "numbers.parquet")})
    first = release_in_process(spec, Settings())
    counts = ReleasedCounts.of(Path(improve(first.run, 0.8).folder))
    assert [bool(counts.sums_beside[name]) for name in ("measure_marginals", "measure_more_2")] == [True, False]
    own = remake_rows(counts, counts.measured)
    assert own.select(["a", "b", "c"]).equals(counts.table.select(["a", "b", "c"]))
