"""What a user of 0.2.0 holds, its ledger, private folder and released folders, is paid for and drawn only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.api.ledger import LedgerView
from privsyn.api.rerun import rerun
from tests.support.examples import keep_first
from tests.support.snapshots import copied, settings_of

RUNS = ("people-93608a96", "people-paper-3f435b55")
"""The releases of tests/fixtures/0.2.0; that their requests are not drawn anew: test_redraw_of_earlier_versions.py."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("0.2.0", tmp_path)


def test_the_ledger_has_no_problem(home: Path) -> None:
    found = LedgerView(settings_of(home)).verify()
    assert (found.verified, found.problems, found.as_json()["certificates"]) == (True, (), 2)
    assert "2 of 2 certificates name no entry of the ledger, like certificates of earlier versions" in found.notes[0]


@pytest.mark.parametrize("run", keep_first(RUNS))
def test_its_noise_is_taken_as_given_when_it_is_made_again(home: Path, run: str) -> None:
    told = {file.name: file.words() for file in rerun(run, settings_of(home)).files}
    looks = [f"marginals/{name}.parquet" for name in ("one_way", "scores", "measured")]
    assert {told[name] for name in looks} == {"agrees (given: nobody can draw it again)"}
