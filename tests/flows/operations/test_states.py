"""The states in which flow runs end: names, figures, and nothing of the rows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import State

from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.private_errors import FORM
from privsyn.flows.release import release
from privsyn.flows.schedule import scheduled_release
from privsyn.ledgers.ledger import ChargeLine, Ledger
from tests.support.releases import few
from tests.support.specs import people_with

pytestmark = pytest.mark.usefixtures("prefect_server", "places")


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    pq.write_table(people_with("zanzibar", 200), places / "people.parquet")
    return few(str(places / "people.parquet"))


def ended(spec: ReleaseSpec) -> tuple[State[Any], FlowRun]:
    """The state that the caller gets, and the run as the server knows it."""
    state = release(spec, return_state=True)
    flow_run = state.state_details.flow_run_id
    assert isinstance(flow_run, UUID)
    with get_client(sync_client=True) as client:
        return state, client.read_flow_run(flow_run)


def test_a_release_that_the_cap_refuses_is_refused_with_the_ledgers_figures(spec: ReleaseSpec) -> None:
    ledger = Ledger(Settings().ledger)
    ledger.register(spec.dataset, spec.budget)
    (before,) = ledger.summary()
    charge = ChargeLine("one_way_marginals", "a" * 64, before.cap_rho - Fraction(1, 10**6))
    ledger.reserve(spec.dataset, "another", [charge])
    Path(spec.data).unlink()  # nothing is read before the ledger agrees
    state, run = ended(spec)
    assert run.state is not None
    assert (run.state.name, run.state.type) == ("Refused", "FAILED")
    message = str(run.state.message)
    (after,) = ledger.summary()
    for figure in (after.epsilon, after.cap.epsilon, float(after.rho), float(after.cap_rho)):
        assert f"{figure:.4g}" in message
    for word in ("spent so far", "asked", "cap", "left"):
        assert word in message
    assert message.count("\n") == 0
    with pytest.raises(BudgetRefusedError) as refused:
        state.result()
    assert refused.value.paragraph(FORM) == message
    assert refused.value.exit_code == 3


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"period": "2026-13"}, "the field Period of the run form: '2026-13' is not a period"),
        (
            {"period": "2031-01"},
            "the field Period of the run form: 2031-01 has not begun: it begins at 2031-01-01 00:00",
        ),
        (
            {"period": "2031-01", "time_zone": "Europe/Berlin"},
            "the field Period of the run form: 2031-01 has not begun: it begins at 2031-01-01 00:00+01:00",
        ),
        ({"period": "2026-10", "early": " "}, "the field Early of the run form: is not a reason"),
        ({"time_zone": "Mars"}, "the field Time Zone of the run form: "),
    ],
)
def test_a_period_that_cannot_be_told_ends_in_one_line(
    spec: ReleaseSpec, caplog: pytest.LogCaptureFixture, asked: dict[str, str], words: str
) -> None:
    state = scheduled_release(spec, **asked, return_state=True)
    assert state.is_failed() and str(state.message).startswith(words)
    assert not any(record.exc_info for record in caplog.records)
    with pytest.raises(RequestError):
        scheduled_release.fn(spec, **asked)


def test_a_flow_releases_a_period_early_for_a_reason(spec: ReleaseSpec) -> None:
    made = scheduled_release(spec, period="2031-01", early="its file is complete")
    assert made.run.startswith("people-2031-01-")
    details = [e.detail for e in Ledger(Settings().ledger).entries() if e.event == "reserve"]
    assert {detail["early"] for detail in details} == {"its file is complete"}


def test_who_calls_the_flow_gets_the_error_itself(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    costly = few(spec.data, privacy={"epsilon": 20.0, "delta": 1e-9})
    for call in (release, release.fn):
        with pytest.raises(BudgetRefusedError, match="more than the whole lifetime cap"):
            call(costly)


def test_other_failures_keep_prefects_own_name(spec: ReleaseSpec) -> None:
    (Path(spec.data)).write_bytes(b"no table")
    _, run = ended(spec)
    assert run.state is not None
    assert (run.state.name, run.state.type) == ("Failed", "FAILED")
