"""The operator's policy: what it does not allow is refused on every surface, before the data is opened."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.calendar_periods import name_period
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import admission, policy_checks, proposal
from privsyn.engine.policy_checks import load_policy
from privsyn.evaluation import coded_tables
from privsyn.evaluation.quality_release import publish_quality
from privsyn.publish.folder import add_formats
from tests.support.commands import privsyn as command
from tests.support.commands import use_no_server
from tests.support.places import ROOT
from tests.support.releases import few
from tests.support.specs import people

RULES = """\
datasets:
  people:
    paths: [tables]
    budget: {epsilon: 3, delta: 1.0e-8}
    epsilon: 1
    delta: 1.0e-9
    unit: {records_per_person: 1}
    outputs: [parquet]
"""


@pytest.fixture
def spec(places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    """A request that the policy allows."""
    (places / "tables").mkdir()
    pq.write_table(people(300), places / "tables" / "people.parquet")
    rule(places, RULES)
    monkeypatch.setenv("PRIVSYN_POLICY", str(places / "policy.yaml"))
    return few(
        str(places / "tables" / "people.parquet"),
        privacy={"epsilon": 1, "delta": 1e-9},
        budget={"epsilon": 3, "delta": 1e-8},
    )


def rule(places: Path, text: str) -> None:
    (places / "policy.yaml").write_text(text, encoding="utf-8")


def asked(spec: ReleaseSpec, **changes: Any) -> ReleaseSpec:
    return ReleaseSpec.model_validate({**spec.model_dump(exclude_unset=True), **changes})


BEYOND: dict[str, tuple[dict[str, Any], str, str]] = {
    "file": ({"data": "{places}/people.parquet"}, "data", r"datasets\.people\.paths"),
    "link": ({"data": "{places}/tables/link.parquet"}, "data", r"datasets\.people\.paths"),
    "way up": ({"data": "{places}/tables/../people.parquet"}, "data", r"datasets\.people\.paths"),
    "neighbour": ({"data": "{places}/tables2/people.parquet"}, "data", r"datasets\.people\.paths"),
    "link in a folder": ({"data": "{places}/tables/parts"}, "data", r"holds the link 'b.parquet', which leads outside"),
    "links to links": ({"data": "{places}/tables/chain"}, "data", r"datasets\.people\.paths"),
    "cap": ({"budget": {"epsilon": 30, "delta": 1e-8}}, "budget.epsilon", r"\.budget\.epsilon allows at most 3"),
    "cap's delta": ({"budget": {"epsilon": 3, "delta": 1e-6}}, "budget.delta", r"\.budget\.delta allows at most 1e-08"),
    "epsilon": ({"privacy": {"epsilon": 1.5, "delta": 1e-9}}, "privacy.epsilon", r"people\.epsilon allows at most 1\b"),
    "delta": ({"privacy": {"epsilon": 1, "delta": 2e-9}}, "privacy.delta", r"people\.delta allows at most 1e-09"),
    "name": ({"dataset": "people_b"}, "dataset", "'people_b' is not among the policy's datasets"),
    "unit": ({"unit": {"records_per_person": 2}}, "unit", r"datasets\.people\.unit"),
    "format": (
        {"formats": ["parquet", "csv"]},
        "formats",
        r"'csv' is not among .*people\.outputs",
    ),
}


@pytest.mark.parametrize(
    ("surface", "what"),
    [*(("python", what) for what in BEYOND), *(("command", w) for w in ("file", "epsilon", "name"))],
)
def test_what_the_policy_does_not_allow_is_refused_before_the_data_is_opened(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch, surface: str, what: str
) -> None:
    changes, field, words = BEYOND[what]
    pq.write_table(people(300), places / "people.parquet")
    tables = places / "tables"
    (tables / "link.parquet").symlink_to(places / "people.parquet")
    (tables / "parts").mkdir()
    pq.write_table(people(50), tables / "parts" / "a.parquet")
    (tables / "parts" / "b.parquet").symlink_to(places / "people.parquet")
    (tables / "chain").symlink_to(tables / "way")
    (tables / "way").symlink_to(places)
    monkeypatch.setattr(proposal, "open_source", lambda *a: pytest.fail("the data was opened"))
    there = {k: v.format(places=places) if isinstance(v, str) else v for k, v in changes.items()}
    wrong = asked(spec, **there)
    if surface == "python":
        with pytest.raises(privsyn.RequestError, match=words) as caught:
            privsyn.release(wrong.data, wrong)
        assert caught.value.field == field
        assert "PRIVSYN_POLICY" in str(caught.value)
    else:
        use_no_server(monkeypatch)
        (places / "spec.yaml").write_text(wrong.model_dump_json(exclude_unset=True), encoding="utf-8")
        done = command("release", places / "spec.yaml")
        assert done.exit_code == 2
        assert field.removeprefix("privacy.") in done.stderr and "PRIVSYN_POLICY" in done.stderr
    assert not Path(Settings().ledger).exists()


@pytest.mark.parametrize("what", BEYOND)
def test_mutant_without_the_check_it_is_opened(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The refusals above are the policy's: everything else about these requests is right."""
    others = tuple(check for check in admission.REQUEST_CHECKS if check is not policy_checks.check_policy)
    monkeypatch.setattr(admission, "REQUEST_CHECKS", others)
    monkeypatch.setattr(proposal, "open_source", lambda *a: pytest.fail("the data was opened"))
    changes = {k: v.format(places=places) if isinstance(v, str) else v for k, v in BEYOND[what][0].items()}
    with pytest.raises(pytest.fail.Exception, match="the data was opened"):
        privsyn.release(None, asked(spec, **changes))


def test_links_within_the_allowed_folders_are_followed(spec: ReleaseSpec, places: Path) -> None:
    """A folder of links to what lies in an allowed one, and an allowed path that is a link itself."""
    parts = places / "parts"
    parts.mkdir()
    (parts / "a.parquet").symlink_to(places / "tables" / "people.parquet")
    (parts / ".b.parquet").symlink_to(places / "ledger.sqlite")  # no part of the table
    (places / "door").symlink_to(parts)
    rule(places, RULES.replace("[tables]", "[tables, door]"))
    assert privsyn.release(parts, spec).table.num_rows > 0


def test_what_it_allows_is_released_and_its_later_looks_are_bound_too(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = privsyn.release(None, spec)
    elsewhere = places / "people.parquet"
    pq.write_table(people(300), elsewhere)
    opened, place = coded_tables.open_source, Settings().released_root
    monkeypatch.setattr(
        coded_tables,
        "open_source",
        lambda table, its, order=None: (
            opened(table, its) if str(place) in str(table) else pytest.fail("the data was opened")
        ),
    )
    refused: dict[str, tuple[Callable[[], object], str]] = {
        "add_formats.formats": (lambda: add_formats(made.folder.name, ["csv"], Settings()), "'csv'"),
        "evaluate.epsilon_report": (lambda: publish_quality(made.folder.name, 0.5, Settings()), "'figures'"),
        "evaluate.data": (lambda: privsyn.evaluate(made, elsewhere), "paths"),
        "evaluate.holdout": (lambda: privsyn.evaluate(made, holdout=elsewhere), "paths"),
        "evaluate.against": (lambda: privsyn.evaluate(made, against=[elsewhere]), "paths"),
        "comparison.holdout": (lambda: privsyn.compare(spec, holdout=elsewhere), "paths"),
        "data": (lambda: privsyn.compare(asked(spec, data=str(elsewhere))), "paths"),
    }
    for field, (call, words) in refused.items():
        with pytest.raises(privsyn.RequestError, match=words) as caught:
            call()
        assert caught.value.field == field


def test_a_table_in_memory_needs_a_word_of_the_policy(spec: ReleaseSpec, places: Path) -> None:
    table = pa.table(people(300))
    with pytest.raises(privsyn.RequestError, match=r"people\.in_memory"):
        privsyn.release(table, spec)
    rule(places, RULES + "    in_memory: true\n")
    assert privsyn.release(table, spec).table.num_rows > 0


def test_periods_no_shorter_than_the_policys_and_none_to_come(spec: ReleaseSpec, places: Path) -> None:
    rule(places, RULES + "    period: month\n")
    next_year = f"{dt.datetime.now(dt.UTC).year + 2}-01"
    for period, words in (
        (None, "is missing"),
        ("2026-11-21", "is one day"),
        ("2026-W47", "is one week"),
        ("2025-11-21T1315Z", "is one quarter-hour"),
        (next_year, "has not begun"),
    ):
        with pytest.raises(privsyn.RequestError, match=words) as caught:
            privsyn.release(None, spec, period=period)
        assert caught.value.field == "release.period"
    rule(places, RULES + "    period: hour\n")
    next_hour = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    for period, words in (
        (name_period(next_hour, "hour", "UTC"), "has not begun"),
        (name_period(next_hour, "quarter-hour", "UTC"), "is one quarter-hour"),
    ):
        with pytest.raises(privsyn.RequestError, match=words):
            privsyn.release(None, spec, period=period)
    assert not Path(Settings().ledger).exists()
    rule(places, RULES + "    period: month\n")
    assert privsyn.release(None, spec, period="2025-Q4").table.num_rows > 0


def test_a_period_before_it_begins_needs_a_word_of_the_policy(spec: ReleaseSpec, places: Path) -> None:
    """And a reason, also where the policy has one."""
    early: dict[str, str] = {"period": "2031-01", "early": "its file is complete"}
    rule(places, RULES + "    period: month\n")
    with pytest.raises(privsyn.RequestError, match=r"not allowed by the policy's datasets\.people\.early") as refused:
        privsyn.release(None, spec, **early)
    assert refused.value.field == "release.early"
    rule(places, RULES + "    period: month\n    early: true\n")
    with pytest.raises(privsyn.RequestError, match="has not begun"):
        privsyn.release(None, spec, period="2031-01")
    assert not Path(Settings().ledger).exists()
    assert privsyn.release(None, spec, **early).table.num_rows > 0


def test_others_may_do_what_the_policy_says_of_them(spec: ReleaseSpec, places: Path) -> None:
    rule(places, RULES.replace("datasets:\n  people:", "others:").replace("\n    ", "\n  "))
    with pytest.raises(privsyn.RequestError, match=r"policy's others\.epsilon allows at most 1"):
        privsyn.release(None, asked(spec, privacy={"epsilon": 2, "delta": 1e-9}))
    assert privsyn.release(None, spec).table.num_rows > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no file"),
        ("datasets: {people: {epsilon: 1}}", r"datasets\.people\.budget \(line 1\) of policy\.yaml is missing"),
        (RULES + "    epsilonn: 2\n", r"epsilonn \(line 9\) of policy\.yaml is not a rule. Did you mean `epsilon`"),
        (
            RULES.replace("1.0e-8}", "1.0e-8, unit: 1}"),
            r"budget\.unit \(line 4\) .* is not a rule. Known are epsilon, delta",
        ),
        (RULES.replace("epsilon: 1\n", "epsilon: much\n"), "is `much`"),
        (
            RULES.replace("[parquet]", "[xlsx]"),
            r"outputs\[0\] \(line 8\) .* is `xlsx`, but must be one of 'parquet', 'csv', 'figures', 'itemsets'",
        ),
        ("- a", "policy.yaml"),
        (RULES + "    period: minute\n", "minute"),
    ],
)
def test_a_policy_that_cannot_be_read_lets_nothing_through(
    spec: ReleaseSpec, places: Path, text: str | None, words: str
) -> None:
    if text is None:
        (places / "policy.yaml").unlink()
    else:
        rule(places, text)
    with pytest.raises(privsyn.RequestError, match=words) as caught:
        privsyn.release(None, spec)
    assert caught.value.field == "settings.policy"


def test_the_example_is_a_policy() -> None:
    policy = load_policy(ROOT / "deployments" / "policy.yaml")
    assert policy.of("people") is not None
    assert policy.of("another") is None
    assert policy_checks.LENGTHS[4] == policy.datasets["people"].period
