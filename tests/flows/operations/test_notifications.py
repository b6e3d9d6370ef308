"""Who gets the alerts, on a server: named once, never taken from the operator, and earlier automations go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prefect.automations import Automation, DoNothing, EventTrigger
from prefect.client.orchestration import get_client
from prefect.events.actions import SendNotification
from prefect.exceptions import ObjectNotFound

from privsyn.base.errors import RequestError
from privsyn.server.alert_service import send_by_block
from privsyn.server.alerts import (
    BLOCK,
    EARLIER,
    KINDS,
    ON_SERVER,
    VARIABLE,
    Addressee,
    Alert,
    describe,
    read_addressee,
    set_up,
)
from tests.support.examples import keep_first
from tests.support.webhook import webhook

HOOK = {VARIABLE: "https://chat.example/hooks/token"}


@pytest.fixture(autouse=True)
def clean(prefect_server: str) -> Iterator[None]:
    yield
    with get_client(sync_client=True) as client:
        for automation in client.read_automations():
            client.delete_automation(automation.id)
        if client.read_variable_by_name(ON_SERVER) is not None:
            client.delete_variable_by_name(ON_SERVER)


def on_server() -> Addressee:
    with get_client(sync_client=True) as client:
        return read_addressee(client)


def names() -> set[str]:
    with get_client(sync_client=True) as client:
        return {automation.name for automation in client.read_automations()}


def write(value: Any) -> None:
    """As an operator does on the page."""
    from prefect.variables import Variable

    Variable.set(ON_SERVER, value, overwrite=True)


def test_nobody_is_told_without_a_variable_and_what_was_named_or_switched_off_stays() -> None:
    assert set_up({}) == on_server() == Addressee()
    assert "Nobody is notified of failures yet: set PRIVSYN_NOTIFY" in describe(Addressee())[0]
    # A web address is taken up and stays without the variable.
    set_up({})
    assert set_up(HOOK) == on_server() == Addressee(BLOCK)
    assert set_up({}) == on_server() == Addressee(BLOCK)
    (line,) = describe(on_server())
    assert BLOCK in line and all(kind in line for kind in KINDS)
    # A block of the server is taken by its name.
    set_up(HOOK)
    assert set_up({VARIABLE: BLOCK}) == Addressee(BLOCK)
    # What was switched off stays off.
    set_up(HOOK)
    write({"to": BLOCK, "off": ["late", "crashed"]})
    assert set_up(HOOK) == on_server() == Addressee(BLOCK, ("crashed", "late"))
    assert "crashed, late" in describe(on_server())[1]


@pytest.mark.parametrize("value", keep_first([{"to": None, "off": 7}, "x", [], 3, {}], 2))
def test_another_value_of_the_variable_tells_nobody(value: Any) -> None:
    write(value)
    assert on_server() == Addressee()
    assert set_up(HOOK) == on_server() == Addressee(BLOCK)


def test_automations_of_an_earlier_version_hand_over_and_go() -> None:
    set_up(HOOK)
    with get_client(sync_client=True) as client:
        block = client.read_block_document_by_name(BLOCK.partition("/")[2], "custom-webhook").id
        client.delete_variable_by_name(ON_SERVER)
    trigger = EventTrigger(expect={"prefect.flow-run.Failed"}, threshold=1)
    for name in (*EARLIER, "my own"):
        tell = SendNotification(block_document_id=block, subject="s", body="b")
        Automation(name=name, trigger=trigger, actions=[tell], enabled=name != "privsyn: late").create()
    Automation(name="privsyn: failed", trigger=trigger, actions=[DoNothing()]).create()
    assert set_up({}) == on_server() == Addressee(BLOCK, ("late",))
    assert names() == {"my own"}


@pytest.mark.parametrize("wrong", ["chat.example", "custom-webhook/none", "/", "mailto:me@example.org"])
def test_what_cannot_be_told_is_refused_and_changes_nothing(wrong: str) -> None:
    with pytest.raises(RequestError, match="PRIVSYN_NOTIFY"):
        set_up({VARIABLE: wrong})
    assert on_server() == Addressee()


def test_an_alert_is_posted_by_the_block_and_a_refusal_is_an_error() -> None:
    alert = Alert("failed", "PrivSyn: people failed", "why\n\nwhere", "prefect.flow-run.1")
    with webhook() as told:
        to = set_up({VARIABLE: told.url})
        send_by_block(to, alert)
        assert [text for _, text in told.heard] == ["PrivSyn: people failed\n\nwhy\n\nwhere"]
        told.broken = True
        with pytest.raises(Exception, match="500"):
            send_by_block(to, alert)
    with pytest.raises((ObjectNotFound, ValueError)):
        send_by_block(Addressee("slack-webhook/none"), alert)
