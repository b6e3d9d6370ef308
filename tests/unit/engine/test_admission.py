"""The desk: each list of checks opens what its name says and nothing that comes after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.engine import admission, checks
from privsyn.engine.candidate import Candidate
from privsyn.engine.open_run import open_run
from privsyn.pipelines.release_plan import build_candidate
from tests.support.releases import few
from tests.support.specs import people

OPENED = ("ledger", "source", "given", "_draw", "known_table")
"""What a candidate opens, in the order of the lists."""


@pytest.fixture
def candidate(places: Path, save: Callable[..., str]) -> Candidate:
    return build_candidate(few(save(people(60))), Settings())


def opened(candidate: Candidate) -> list[str]:
    return [name for name in OPENED if name in vars(candidate)]


def test_a_check_opens_what_its_list_says_and_no_more(candidate: Candidate, places: Path) -> None:
    admission.admit(candidate, admission.REQUEST_CHECKS)
    assert opened(candidate) == []
    assert not Path(candidate.settings.ledger).exists()
    with candidate.store.lock("release-people"):
        for number, listed in enumerate((admission.LEDGER_CHECKS, admission.TABLE_CHECKS, admission.RUN_CHECKS)):
            admission.admit(candidate, listed)
            assert opened(candidate) == list(OPENED[: (1, 2, 4)[number]])
        admission.admit(candidate, admission.CHARGE_CHECKS)
        assert opened(candidate) == list(OPENED)
        assert candidate.ledger.summary("people") == []  # nothing is entered before the run reserves


def test_a_refusal_opens_nothing_that_comes_after(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(candidate: Candidate) -> None:
        raise RequestError("no", "no")

    monkeypatch.setattr(admission, "LEDGER_CHECKS", (checks.check_ledger, refuse))
    with pytest.raises(RequestError), open_run(candidate):
        pytest.fail("it was opened")
    assert opened(candidate) == ["ledger"]


def test_the_lists_are_every_check_there_is_in_one_order() -> None:
    listed = [
        check.__name__
        for checks_of in (
            admission.REQUEST_CHECKS,
            admission.LEDGER_CHECKS,
            admission.TABLE_CHECKS,
            admission.RUN_CHECKS,
            admission.CHARGE_CHECKS,
        )
        for check in checks_of
    ]
    there = [name for name in vars(checks) if name.startswith("check_") and name in listed]
    assert [name for name in listed if name != "check_policy"] == there
    takes_candidate = [
        name for name, value in vars(checks).items() if getattr(value, "__annotations__", {}).get("candidate")
    ]
    assert takes_candidate == there


def test_a_table_in_memory_is_the_candidates_and_not_the_specs(places: Path) -> None:
    table = pa.table(people(20))
    asked = build_candidate(few("elsewhere.parquet"), Settings(), data=table)
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
