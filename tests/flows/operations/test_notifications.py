"""The notifications' automations on a server: made once, brought up to date, never taken from the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prefect.automations import Automation, DoNothing
from prefect.client.orchestration import get_client

from privsyn.base.errors import RequestError
from privsyn.flows.states import BUDGET_LOW
from privsyn.server.notifications import BLOCK, HEARTBEAT, NOTICES, VARIABLE, set_up

HOOK = {VARIABLE: "https://chat.example/hooks/token"}
NAMES = [notice.name for notice in NOTICES]


@pytest.fixture(autouse=True)
def clean(prefect_server: str) -> Iterator[None]:
    yield
    with get_client(sync_client=True) as client:
        for automation in client.read_automations():
            client.delete_automation(automation.id)


def on_server() -> dict[str, Any]:
    with get_client(sync_client=True) as client:
        found = client.read_automations()
    assert len({a.name for a in found}) == len(found)  # no doubles
    return {a.name: a for a in found}


def kinds() -> set[str]:
    return {action.type for automation in on_server().values() for action in automation.actions}


def test_each_thing_that_an_operator_acts_on_has_its_automation() -> None:
    assert set_up({}) == dict.fromkeys(NAMES, "made")
    triggers = {name: automation.trigger for name, automation in on_server().items()}
    states = ("Refused", "ContractFailed", "LedgerFailed", "Failed", "Crashed")
    reactive = {event for t in triggers.values() if t.posture == "Reactive" for event in t.expect}
    other = {"prefect.work-pool.not-ready", BUDGET_LOW}
    assert reactive == {f"prefect.flow-run.{state}" for state in states} | other
    late, silent = triggers["privsyn: late"], triggers["privsyn: no heartbeat"]
    assert (late.within.total_seconds(), silent.within.total_seconds()) == (900, 90)
    assert (late.after, silent.after) == ({"prefect.flow-run.Late"}, {HEARTBEAT})
    assert {"prefect.flow-run.Refused", "prefect.flow-run.Cached", HEARTBEAT} <= silent.expect
    assert kinds() == {"do-nothing", "change-flow-run-state"}


def test_twice_is_once() -> None:
    set_up(HOOK)
    before = on_server()
    assert kinds() == {"send-notification", "change-flow-run-state"}
    assert set_up(HOOK) == dict.fromkeys(NAMES, "as it was")
    assert on_server() == before


def test_a_web_address_that_comes_later_is_taken_up_and_stays_without_the_variable() -> None:
    set_up({})
    assert set_up(HOOK) == dict.fromkeys(NAMES, "changed")
    assert set_up({}) == dict.fromkeys(NAMES, "as it was")
    assert kinds() == {"send-notification", "change-flow-run-state"}


def test_a_block_of_the_server_is_taken_by_its_name() -> None:
    set_up(HOOK)
    named = {VARIABLE: f"custom-webhook/{BLOCK}"}
    assert set_up(named) == dict.fromkeys(NAMES, "as it was")


def test_one_that_was_switched_off_stays_off_and_doubles_go() -> None:
    set_up({})
    known = on_server()[NAMES[0]]
    with get_client(sync_client=True) as client:
        client.pause_automation(known.id)
    assert set_up(HOOK)[NAMES[0]] == "changed"
    assert on_server()[NAMES[0]].enabled is False
    trigger = on_server()[NAMES[1]].trigger
    Automation(name=NAMES[1], trigger=trigger, actions=[DoNothing()]).create()
    set_up(HOOK)
    assert set(on_server()) == set(NAMES)


@pytest.mark.parametrize("wrong", ["chat.example", "custom-webhook/none", "/", "mailto:me@example.org"])
def test_what_cannot_be_told_is_refused_and_changes_nothing(wrong: str) -> None:
    with pytest.raises(RequestError, match="PRIVSYN_NOTIFY"):
        set_up({VARIABLE: wrong})
    assert on_server() == {}
