"""What users of earlier versions hold is read as it was: ledger, private folder and released folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import snapshots

VERSIONS = ("0.2.0", "main-2026-11")
TODAY = "main-2026-11"


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def said(version: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return snapshots.said_of(version, tmp_path_factory.mktemp("earlier"))


@pytest.mark.parametrize("part", ("ledger", "rerun", "again", "changed", "ledger afterwards"))
def test_it_is_told_what_was_told_before(version: str, said: dict[str, Any], part: str) -> None:
    assert said[part] == snapshots.expected(version)[part], f"if that is meant: {snapshots.WRITE} expected"


def test_the_ledger_has_no_problem(said: dict[str, Any]) -> None:
    assert (said["ledger"]["verified"], said["ledger"]["problems"]) == (True, [])


def test_what_main_left_costs_nothing_more() -> None:
    """Steps have changed since, so it is not drawn anew without a word."""
    told = snapshots.expected(TODAY)
    assert all(answer.get("drawn", []) == [] for answer in told["again"].values())
    assert all("would draw it anew" in told["again"][name]["refused"] for name in ("default", "paper", "rounds"))
    assert told["changed"] == []
    assert told["ledger afterwards"] == told["ledger"]


def test_nothing_tells_where_it_was_made(version: str, tmp_path: Path) -> None:
    """The private records of a copy name the copy's own place."""
    home = snapshots.copied(version, tmp_path)
    texts = [path.read_text(encoding="utf-8") for path in (home / "out" / "private").rglob("*.json")]
    assert not any("@HOME@" in text for text in texts)
    assert any(str(home) in text for text in texts)
