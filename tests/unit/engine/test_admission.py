"""The desk: what is opened before each list of checks, and nothing that comes after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.api.release import propose_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.engine import admission, checks
from privsyn.engine import open_run as opening_run
from privsyn.engine.open_run import open_run
from privsyn.engine.proposal import Proposal
from privsyn.ledgers.ledger import Ledger
from tests.support.releases import few
from tests.support.specs import people

OPENED = {"open_store": admission, "open_books": admission, "open_table": admission, "prepare_runs": opening_run}
"""What a desk and a run open, in their order, and the module that opens it."""

LISTS = {
    "REQUEST_CHECKS": 0,
    "LEDGER_CHECKS": 2,
    "TABLE_CHECKS": 3,
    "DATA_CHECKS": 3,
    "RUN_CHECKS": 4,
    "CHARGE_CHECKS": 4,
}
"""The lists in their order, each with how much is open by its end."""


@pytest.fixture
def proposal(places: Path, save: Callable[..., str]) -> Proposal:
    return propose_release(few(save(people(60))), Settings())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened, in its order."""
    names: list[str] = []
    for name, module in OPENED.items():

        def note(*arguments: Any, name: str = name, real: Any = getattr(module, name)) -> Any:  # noqa: B008
            names.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, note)
    return names


@pytest.mark.parametrize("listed", LISTS)
def test_a_refusal_opens_nothing_that_comes_after_and_enters_nothing(
    proposal: Proposal, opened: list[str], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    def refuse(*handed: object) -> None:
        raise RequestError("no", "no")

    monkeypatch.setattr(admission, listed, (*getattr(admission, listed), refuse))
    with pytest.raises(RequestError), open_run(proposal):
        pytest.fail("it was opened")
    assert opened == list(OPENED)[: LISTS[listed]]
    assert proposal.settings.private_root.exists() == bool(opened)
    assert Path(proposal.settings.ledger).exists() == ("open_books" in opened)
    assert not opened or Ledger(proposal.settings.ledger).summary("people") == []


def test_a_request_is_checked_without_a_run(proposal: Proposal, opened: list[str]) -> None:
    admission.check_request(proposal)
    assert opened == list(OPENED)[:3]
    assert Ledger(proposal.settings.ledger).summary("people") == []


def test_the_lists_are_every_check_there_is_in_one_order() -> None:
    listed = [check.__name__ for name in LISTS for check in getattr(admission, name)]
    there = [
        name
        for name, value in vars(checks).items()
        if getattr(value, "__module__", "") == checks.__name__
        and name.startswith("check_")
        and {"Proposal", "Draw"} & set(value.__annotations__.values())
    ]
    assert [name for name in listed if name != "check_policy"] == there


def test_a_table_in_memory_is_the_candidates_and_not_the_specs(places: Path) -> None:
    table = pa.table(people(20))
    asked = propose_release(few("elsewhere.parquet"), Settings(), data=table)
    assert (asked.spec.data, asked.data) == ("", table)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("rows/people.csv", "rows/people.csv"),
        ("sqlite:////rows/people.db?table=people", "/rows/people.db"),
        ("DELTA:////rows/people?version=3", "/rows/people"),
        ("delta+s3://bucket/people", None),
        ("s3://bucket/people.parquet", None),
        ("postgresql+psycopg://host/ledger", None),
    ],
)
def test_a_table_s_or_a_ledger_s_file_is_found_by_its_name(name: str, file: str | None) -> None:
    assert checks._locate_file(name) == (None if file is None else Path(file))
