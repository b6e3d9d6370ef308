"""The run page's words and its bar: figures by hand."""

from __future__ import annotations

import logging
from base64 import b64decode
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from privsyn.base.errors import ContractError
from privsyn.data_contracts.certificate import Manifest, ManifestFile
from privsyn.data_contracts.promise import Guarantee
from privsyn.engine.request import Request
from privsyn.flows import run_page
from privsyn.flows.run_page import (
    LEFT,
    OTHERS,
    THIS,
    BudgetShares,
    draw_bar_uri,
    format_budget_page,
    format_certificate_page,
    format_files_page,
    read_budget,
)
from privsyn.ledgers.audit import DatasetSummary
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.pipelines.registry import build_steps
from privsyn.publish.release_note import list_looks
from tests.support.described import CERTIFICATE
from tests.support.specs import make_spec

CAP = Guarantee(epsilon=10.0, delta=1e-8)
SPENT = DatasetSummary("people", CAP, cap_rho=Fraction(4), rho=Fraction(3), entries=2, created="", accountant="tight")
QUARTERS = BudgetShares(SPENT, this=Fraction(2))


def test_the_parts_add_up_to_the_cap_and_the_bar_shows_them_in_order() -> None:
    assert QUARTERS.parts() == {OTHERS: 1, THIS: 2, LEFT: 1}
    head, data = draw_bar_uri(QUARTERS).split(",")
    assert head == "data:image/svg+xml;base64"
    picture = ElementTree.fromstring(b64decode(data))  # noqa: S314 - our own
    bars = [e for e in picture if e.tag.endswith("rect") and e.get("height") == "32"]
    drawn = [(float(e.get("x") or 0), float(e.get("width") or 0)) for e in bars if e.get("stroke") is None]
    assert drawn == [(0, 160), (160, 320), (480, 160)]


def test_a_cap_that_was_passed_by_nothing_is_left_empty_not_negative() -> None:
    full = BudgetShares(replace(SPENT, cap_rho=Fraction(1), rho=Fraction(1)), this=Fraction(0))
    assert full.parts()[LEFT] == 0
    assert "**100 % used** (epsilon " in format_budget_page(full, "ledger", "Now.")


def test_the_page_says_what_is_used_what_still_fits_and_each_part_s_share_and_price() -> None:
    page = format_budget_page(QUARTERS, "ledger.sqlite", "This run drew nothing.")
    assert "**75 % used** (epsilon " in page and "of 10 at delta 1e-08). This run drew nothing." in page
    assert "| other releases | 25 % | 1 |" in page
    assert "| this release | 50 % | 2 |" in page
    assert "| lifetime cap | 100 % | 4 |" in page
    after_one = BudgetShares(replace(SPENT, last_rho=Fraction(1, 4)), this=Fraction(2))
    assert "**75 % used; 4 more releases like the last one fit** (" in format_budget_page(after_one, "l", "Now.")


def test_this_release_is_what_its_charges_hold_whoever_paid_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert read_budget(ledger, "people") is None
    ledger.register("people", CAP)
    prices = {"a": Fraction(1, 100), "b": Fraction(2, 100), "c": Fraction(4, 100), "d": Fraction(8, 100)}
    for key, rho in prices.items():
        ledger.reserve("people", f"people-{key}", [ChargeLine("step", key, rho)])
    ledger.settle("people", "a")
    ledger.abandon("people", "c", data_was_read=True)  # it stays spent, but no release rests on it
    ledger.abandon("people", "d", data_was_read=False)
    budget = read_budget(ledger, "people", ("a", "c", "d", "never seen"))
    assert budget is not None
    assert (budget.this, budget.parts()[OTHERS]) == (Fraction(1, 100), Fraction(6, 100))


def test_every_round_is_told_apart_on_the_certificate_s_page() -> None:
    again = [
        CERTIFICATE.stages[-1].model_copy(update={"step": f"{step}_{n}"})
        for n in (2, 3)
        for step in ("residual_scores", "measure_again")
    ]
    looks = list_looks(build_steps(Request(make_spec(mechanism={"name": "adaptive", "rounds": 2}))))
    page = format_certificate_page(CERTIFICATE.model_copy(update={"stages": [*CERTIFICATE.stages, *again]}), looks)
    for n in (2, 3):
        for words in (
            "how far the rows made so far are from the private table",
            "joint counts where these rows were far from the table",
        ):
            assert f"\n| {words}, round {n} | " in page
            assert f"\n- {words.capitalize()}, round {n}: sensitivity " in page
    assert "_2" not in page


def test_a_broken_contract_whose_page_cannot_be_made_hides_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller raises the broken contract next; nothing may come in its place."""

    def fail(**named: object) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(run_page, "FlowRunContext", SimpleNamespace(get=lambda: True))
    monkeypatch.setattr(run_page, "get_run_logger", lambda: logging.getLogger("run"))
    monkeypatch.setattr(run_page, "create_table_artifact", fail)
    run_page.show_broken_contract("people", ContractError("it breaks its contract", failures=[{"column": "a"}]))
    assert "broken contract of the run is not shown (ConnectionError)" in caplog.text


def manifest(*, private: bool = True) -> Manifest:
    files = {"synthetic.parquet": ManifestFile(sha256="0123456789abcdef" * 4, bytes=1234)}
    return Manifest(
        run="people-1", differentially_private=private, rows=1, spec={}, column_order=[], seeds={}, versions={},
        steps=[], files=files,
    )  # fmt: skip


def test_files_link_to_the_web_address_of_the_released_root_or_name_the_file(tmp_path: Path) -> None:
    places = (tmp_path / "released" / "people-1", tmp_path / "private", tmp_path / "report.html")
    row = "synthetic.parquet) | 1,234 | `0123456789abcdef…` |"
    page = format_files_page(manifest(), *places, "https://data.example.org/released/")
    assert f"| [synthetic.parquet](https://data.example.org/released/people-1/{row}" in page
    assert "Browsers follow no link" not in page
    page = format_files_page(manifest(), *places, "")
    assert f"| [synthetic.parquet]({places[0].as_uri()}/{row}" in page
    assert "Browsers follow no link" in page
    assert "is not there yet: `privsyn evaluate people-1`" in page
    places[2].touch()
    assert "the private report, which is there." in format_files_page(manifest(), *places, "")


def test_files_made_with_test_noise_are_not_to_be_given_away(tmp_path: Path) -> None:
    page = format_files_page(manifest(private=False), tmp_path, tmp_path, tmp_path, "")
    assert "NOT PRIVATE: do not publish" in page
