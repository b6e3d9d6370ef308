"""What a user of 0.2.0 holds, its ledger, private folder and released folders, is paid for and drawn only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.api.ledger import LedgerView
from privsyn.api.rerun import rerun
from privsyn.base.errors import RequestError
from privsyn.specs.spec_file import load_spec
from tests.support.releases import release_in_process
from tests.support.snapshots import bytes_of, copied, settings_of

RUNS = {"default": "people-93608a96", "paper": "people-paper-3f435b55"}
"""The specs of tests/fixtures/0.2.0, and the release of each."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("0.2.0", tmp_path)


def test_the_ledger_has_no_problem(home: Path) -> None:
    found = LedgerView(settings_of(home)).verify()
    assert (found.verified, found.problems, found.as_json()["certificates"]) == (True, (), 2)
    assert "2 of 2 certificates name no entry of the ledger, like certificates of earlier versions" in found.notes[0]


@pytest.mark.parametrize("name", RUNS)
def test_who_asks_again_is_refused_and_nothing_changes(home: Path, name: str) -> None:
    settings = settings_of(home)
    before = LedgerView(settings).as_json(), bytes_of(settings.released_root)
    with pytest.raises(RequestError, match=f"the run {RUNS[name]} of version 0.2.0 was paid for this request"):
        release_in_process(load_spec(home / f"{name}.yaml"), settings)
    assert (LedgerView(settings).as_json(), bytes_of(settings.released_root)) == before


@pytest.mark.parametrize("run", RUNS.values())
def test_its_noise_is_taken_as_given_when_it_is_made_again(home: Path, run: str) -> None:
    told = {file.name: file.words() for file in rerun(run, settings_of(home)).files}
    looks = [f"marginals/{name}.parquet" for name in ("one_way", "scores", "measured")]
    assert {told[name] for name in looks} == {"agrees (given: nobody can draw it again)"}
