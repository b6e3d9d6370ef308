"""The suggested thresholds name gauges that exist, and labels that these have."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from ruamel.yaml import YAML

from privsyn.server.alert_service import AlertMemory, Budget
from tests.support.places import ROOT

FILE = ROOT / "deployments" / "prometheus_rules.yaml"
RULES = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]
PAGE = (ROOT / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8")


def served() -> dict[str, set[str]]:
    """The samples of the server's metrics, and their labels."""
    memory = AlertMemory(told_until=datetime.now(UTC))
    memory.note_failure("people", "release", "Failed", 1.0)
    memory.note_run("people", "evaluate", 2.0)
    memory.note_success("people", 2.0, Budget(0.5, 1.0, 3))
    return {sample.name: set(sample.labels) for family in memory.collect() for sample in family.samples}


def test_every_gauge_of_the_server_has_its_row_in_the_page() -> None:
    assert [name for name in served() if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_about_gauges_that_exist(rule: dict[str, str]) -> None:
    files = {n: set() for n in re.findall(r"`(privsyn_(?:last_)?verification\w+)`", PAGE)}
    known = served() | files
    named = set(re.findall(r"privsyn_\w+", rule["expr"]))
    assert named and named <= set(known)
    labels = set.intersection(*(known[name] for name in named))
    used = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]) + re.findall(r"\{(\w+)!?=", rule["expr"])
    assert set(used) <= labels


def test_there_is_a_threshold_for_failures_silence_and_the_budget() -> None:
    text = " ".join(rule["expr"] for rule in RULES)
    for name in ("run_failures_total", "last_success_timestamp_seconds", "budget_left_releases", "alerts_untold"):
        assert f"privsyn_{name}" in text
