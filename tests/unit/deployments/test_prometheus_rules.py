"""The suggested thresholds name gauges that exist, and labels that these have, and see what they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from privsyn.server.alert_service import AlertMemory, RemainingBudget
from tests.support.places import ROOT
from tests.support.promql import Labels, Points, Series, evaluate, increase, read_duration

FILE = ROOT / "deployments" / "prometheus_rules.yaml"
RULES = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]
CASES = Path(__file__).with_name("prometheus_rules_test.yaml")
PROMTOOL = shutil.which("promtool")
MINUTE = 60.0
PAGE = (ROOT / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8")


def served() -> dict[str, set[str]]:
    """The samples of the server's metrics, and their labels."""
    memory = AlertMemory(told_until=datetime.now(UTC))
    memory.note_failure("people", "release", "Failed", 1.0)
    memory.note_run("people", "evaluate", 2.0)
    memory.note_success("people", 2.0, RemainingBudget(0.5, 1.0, 3))
    memory.refusals["people"] = "the cap is 4"
    return {sample.name: set(sample.labels) for family in memory.collect() for sample in family.samples}


def test_every_gauge_of_the_server_has_its_row_in_the_page() -> None:
    assert [name for name in served() if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_about_gauges_that_exist(rule: dict[str, str]) -> None:
    files = {n: set() for n in re.findall(r"`(privsyn_(?:last_)?verification\w+)`", PAGE)}
    known = served() | files
    named = set(re.findall(r"privsyn_\w+", rule["expr"]))
    assert named and named <= set(known)
    labels = known[re.findall(r"privsyn_\w+", rule["expr"])[0]]  # the left side's labels are the alert's
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
    assert all(label in known[name] for name, label in re.findall(r"(privsyn_\w+)\{(\w+)!?=", rule["expr"]))


def write_out(values: str, interval: float) -> Points:
    """The points of promtool's notation: VALUExCOUNT, one more than COUNT, and _xCOUNT for none."""
    points, step = list[tuple[float, float]](), 0
    for part in values.split():
        value, _, count = part.partition("x")
        length = int(count) if value == "_" else int(count) + 1
        if value != "_":
            points += [(i * interval, float(value)) for i in range(step, step + length)]
        step += length
    return points


def read_series(text: str) -> tuple[str, Labels]:
    return text.partition("{")[0], frozenset(re.findall(r'(\w+)="([^"]*)"', text))


def find_firing(alert: str, series: Series, moment: float, step: float = MINUTE) -> set[Labels]:
    """What an alert is told of: its expression held at every step of its ``for``, which began after the start."""
    (rule,) = [one for one in RULES if one["alert"] == alert]
    wait = read_duration(rule["for"]) if "for" in rule else 0.0
    if wait > moment:
        return set()
    moments = [moment - i * step for i in range(int(wait / step) + 1)]
    return set.intersection(*({*evaluate(rule["expr"], series, at)} for at in moments))


def cases() -> Iterator[Any]:
    for number, case in enumerate(YAML(typ="safe").load(CASES.read_text(encoding="utf-8"))["tests"]):
        for asked in case["alert_rule_test"]:
            yield pytest.param(case, asked, id=f"{number}-{asked['alertname']}-{asked['eval_time']}")


@pytest.mark.parametrize(("case", "asked"), [*cases()])
def test_the_rules_fire_when_they_should(case: dict[str, Any], asked: dict[str, Any]) -> None:
    interval = read_duration(case["interval"])
    series = {read_series(one["series"]): write_out(one["values"], interval) for one in case["input_series"]}
    wanted = {frozenset(one.get("exp_labels", {}).items()) for one in asked.get("exp_alerts", [])}
    assert find_firing(asked["alertname"], series, read_duration(asked["eval_time"]), 5 * MINUTE) == wanted


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_says_the_same() -> None:
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, "test", "rules", str(CASES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def scrape(memory: AlertMemory, moment: float, into: dict[tuple[str, Labels], list[tuple[float, float]]]) -> None:
    for family in memory.collect():
        for sample in family.samples:
            into.setdefault((sample.name, frozenset(sample.labels.items())), []).append((moment, sample.value))


def record(known: set[str], rounds: int = 20, failing: int = 10) -> Series:
    """What Prometheus has of a server after scrapes each minute, in which a release fails once."""
    memory, series = AlertMemory(told_until=datetime.now(UTC), known=known), dict[Any, Any]()
    for i in range(rounds):
        if i == failing:
            memory.note_failure("people", "release", "Failed", i * MINUTE)
        scrape(memory, i * MINUTE, series)
    return series


FIRST = frozenset({("dataset", "people"), ("flow", "release"), ("state", "Failed")})
PLAIN = "increase(privsyn_run_failures_total[15m]) > 0"


def test_the_first_failure_of_a_known_data_set_is_an_increase() -> None:
    series = record({"people"})
    assert {*evaluate(PLAIN, series, 12 * MINUTE)} == {FIRST}
    assert find_firing("PrivSynRunFailed", series, 12 * MINUTE) == {FIRST}
    assert find_firing("PrivSynRunFailed", series, 9 * MINUTE) == set()


def test_the_first_failure_of_a_data_set_that_nobody_knew_is_told_for_a_quarter_of_an_hour() -> None:
    series = record(set(), rounds=60, failing=20)
    assert evaluate(PLAIN, series, 22 * MINUTE) == {}
    assert find_firing("PrivSynRunFailed", series, 22 * MINUTE) == {FIRST}
    assert find_firing("PrivSynRunFailed", series, 50 * MINUTE) == set()


def test_a_data_set_without_a_release_has_0_until_its_first() -> None:
    memory = AlertMemory(told_until=datetime.now(UTC), known={"people"}, to_release={"people"})
    series = dict[Any, Any]()
    scrape(memory, 0.0, series)
    people = frozenset({("dataset", "people")})
    assert evaluate("privsyn_last_success_timestamp_seconds == 0", series, 1.0) == {people: 0.0}
    memory.note_success("people", 5.0, RemainingBudget(0.5, 1.0, 3))
    scrape(memory, 6.0, series)
    assert evaluate("privsyn_last_success_timestamp_seconds == 0", series, 7.0) == {}


@pytest.mark.parametrize(
    ("points", "grown"),
    [
        ([(0, 0), (60, 0), (120, 1)], 1.0),
        ([(60, 1), (120, 1)], 0.0),
        ([(120, 1)], None),
        ([(0, 2), (60, 3), (120, 1)], 2.0),  # the server began anew at 0
        ([(20, 1), (60, 2), (100, 3)], 3.0),  # to both ends, which are as near as a sample could be
    ],
)
def test_an_increase_is_what_prometheus_documents(points: Points, grown: float | None) -> None:
    assert increase(points, 0, 120) == grown
