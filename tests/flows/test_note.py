"""The note and the certificate of a release say what was done, no more and no less."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.settings import Settings
from privsyn.publish.markdown import round_up
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people

Save = Callable[..., str]


def released(save: Save, **changes: Any) -> Path:
    reason = changes.pop("new_dataset", None)
    spec = make_spec(**{"data": save(people(200)), "synthesis": {"iterations": 2}, **changes})
    return Path(release_in_process(spec, Settings(), new_dataset=reason).released)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The released folder of the usual request, which tests only read."""
    home = tmp_path_factory.mktemp("note")
    pq.write_table(people(200), home / "people.parquet")
    spec = make_spec(data=str(home / "people.parquet"), synthesis={"iterations": 2})
    settings = Settings(out=home / "out", ledger=str(home / "ledger.sqlite"))
    return Path(release_in_process(spec, settings).released)


def read_note(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_the_note_follows_the_request(places: Path, save: Save, usual: Path) -> None:
    note = read_note(usual)
    assert "The number of rows is an estimate too." in note
    assert "rare values were merged" in note
    assert " % is used so far, other releases included (epsilon " in note and "of 10 at delta 1e-08)" in note
    assert note.count(" of a count |") == 2
    assert note.count(" of a score |") == 1
    folder = released(
        save,
        dataset="other",
        new_dataset="a test of the note",
        synthesis={"rows": 50, "iterations": 2},
        compression={"enabled": False},
        budget={"epsilon": 10.0, "delta": 1e-9},
    )
    other = read_note(folder)
    assert "The number of rows was asked for" in other
    for absent in ("is an estimate", "rare values"):
        assert absent not in other


def test_the_note_says_that_rows_of_one_person_are_not_linked(places: Path, save: Save, usual: Path) -> None:
    assert "not linked" not in read_note(usual), "nobody has two rows: there is nothing to link"
    for number, unit in enumerate(({"records_per_person": 3}, {"person_id": "caseid", "max_records": 3})):
        folder = released(save, unit=unit, dataset=f"visits{number}", new_dataset="a test of the note")
        note = read_note(folder)
        limits, capped = note.partition("## Limits")[2], "person_id" in unit
        many = "At most 3 records of a person were kept" if capped else "A person may have up to 3 records"
        assert f"Rows of one person are not linked. {many}" in limits
        assert ("**At most 3 rows of a person were kept.**" in note.partition("##")[0]) == capped
        answers = privsyn.open_release(folder).count()
        assert any("about the kept rows" in words for words in answers.attrs["words"]) == capped


def test_the_certificate_holds_the_argument(usual: Path) -> None:
    certificate = json.loads((usual / "certificate.json").read_text(encoding="utf-8"))
    assert "the noisy one-ways were released before" in certificate["stages"][1]["reason"]
    assert "sensitivity^2 / (2 sigma^2)" in certificate["price"]
    assert certificate["sensitivity"].startswith("L2 norm")
    assert [stage["reason"].partition(":")[0].partition(",")[0] for stage in certificate["stages"]] == ["k", "k", "k"]
    assert certificate["dataset_total"]["accountant"] == "tight"
    manifest = json.loads((usual / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["differentially_private"] is True


def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Corollary 13 of Canonne, Kamath and Steinke 2020 by a search over its alpha: an upper bound, near the least."""
    orders = 1 + np.exp(np.linspace(math.log(1e-3), math.log(1e5), 400_000))
    bounds = float(rho) * orders + np.log((orders - 1) / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    return float(bounds.min())


def test_certificate_and_note_have_the_figure_of_published_theorems(places: Path, save: Save, usual: Path) -> None:
    """At epsilon 1 and delta 1e-9 zCDP alone proves 1.054 for the noise of ``gaussian``, whose note says so."""
    folder = released(save, accountant="gaussian")
    content = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    figure = content["by_published_theorems"]
    expected = zcdp_epsilon(Fraction(content["rho_budget"]), 1e-9)
    assert figure["epsilon"] == pytest.approx(expected, rel=1e-6)
    assert figure["epsilon"] == convert_rho_to_epsilon(Fraction(content["rho_budget"]), 1e-9, "tight"), (
        "fixed beforehand"
    )
    assert (figure["delta"], round(figure["epsilon"], 3)) == (1e-9, 1.054)
    assert figure["reason"].startswith("rests on published theorems only")
    note = read_note(folder)
    assert "rests on a proof of this project's own, which nobody outside it has reviewed" in note
    assert "keeps (1.054, 1e-09)-differential privacy by published theorems alone" in note
    assert "is used so far, other releases included" in note
    tight = read_note(usual)
    assert "published theorems" not in tight and "proof" not in tight, "its promise rests on nothing else"


@pytest.mark.parametrize(("epsilon", "shown"), [(1.0520001, "1.053"), (1.0, "1"), (0.05, "0.05001"), (12.0, "12")])
def test_a_figure_is_never_shown_smaller_than_it_is(epsilon: float, shown: str) -> None:
    assert round_up(epsilon) == shown
    assert float(round_up(epsilon)) >= epsilon
