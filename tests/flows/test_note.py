"""The note and the certificate of a release say what was done, no more and no less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privsyn.api import release_in_process
from privsyn.settings import Settings
from tests.support.specs import make_spec, people

Save = Callable[..., str]


def released(save: Save, **changes: Any) -> Path:
    spec = make_spec(**{"data": save(people(200)), "synthesis": {"iterations": 2}, **changes})
    return Path(release_in_process(spec, Settings()).released)


def test_the_note_follows_the_request(places: Path, save: Save) -> None:
    usual = (released(save) / "README.md").read_text(encoding="utf-8")
    assert "The number of rows is an estimate too." in usual
    assert "rare values were merged" in usual
    assert "at the cap's delta of 1e-08" in usual
    assert usual.count(" of a count |") == 2
    assert usual.count(" of a score |") == 1
    folder = released(
        save,
        dataset="other",
        synthesis={"rows": 50, "iterations": 2},
        compression={"enabled": False},
        budget={"epsilon": 10.0, "delta": 1e-9},
    )
    other = (folder / "README.md").read_text(encoding="utf-8")
    assert "The number of rows was asked for" in other
    for absent in ("is an estimate", "rare values", "at the cap's delta"):
        assert absent not in other


def test_the_certificate_holds_the_argument(places: Path, save: Save) -> None:
    folder = released(save)
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    assert "against the noisy one-ways" in certificate["stages"][1]["reason"]
    assert "sensitivity^2 / (2 (sigma^2 - 3))" in certificate["price"]
    assert certificate["sensitivity"].startswith("L2 norm")
    assert [stage["reason"].partition(":")[0].partition(",")[0] for stage in certificate["stages"]] == ["k", "k", "k"]
    assert certificate["dataset_total"]["accountant"] == "gaussian"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["differentially_private"] is True
