"""One request under two private folders: the second price is refused unless it is asked for, and never in silence.

It does not see charges of versions that named no folder and no request.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

import privsyn as privsyn_api
from privsyn.api.ledger import LedgerView
from privsyn.api.release import propose_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import checks, open_run
from privsyn.engine.proposal import Books, Proposal, find_payer
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.known_tables import Payer
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary
from tests.support.commands import privsyn
from tests.support.opened import watched
from tests.support.releases import few, release_in_process, spent
from tests.support.specs import people

LOOKS = tuple(step.name for step in STEPS if isinstance(step, ReleaseStep))


@pytest.fixture
def spec(save: Callable[..., str], places: Path) -> ReleaseSpec:
    return few(save(people(200)), budget={"epsilon": 30.0, "delta": 1e-9})


def at(name: str) -> Settings:
    return Settings(out=Path(Settings().ledger).parent / name)


def ask(spec: ReleaseSpec, name: str, *, fresh: bool = False) -> ReleaseSummary:
    return release_in_process(spec, at(name), fresh=fresh)


def test_a_second_price_is_refused_and_is_paid_only_when_it_is_asked_for(spec: ReleaseSpec) -> None:
    first, price = ask(spec, "first"), spent()
    for _ in range(2):
        with watched(Path(spec.data)) as opened:
            with pytest.raises(RequestError, match="this would pay again") as refused:
                ask(spec, "second")
            assert opened() == 0
        assert first.run in str(refused.value) and "fresh=True" in str(refused.value)
        assert refused.value.field == "settings.out"
    assert spent() == price
    again = ask(spec, "second", fresh=True)
    assert (again.drawn, spent()) == (LOOKS, 2 * price)
    assert ask(spec, "second").run == again.run  # what is paid for is found, in either folder
    assert ask(spec, "first").run == first.run
    assert spent() == 2 * price
    assert LedgerView(at("first")).verify().problems == ()
    # Every charge names its folder by a random identity.
    details = [e.detail for e in Ledger(Settings().ledger).entries() if e.event == "reserve"]
    stores = [detail["store"] for detail in details]
    assert len(stores) == 2 * len(LOOKS) and len(set(stores)) == 2
    assert all(len(store) == 32 and int(store, 16) for store in stores)
    assert len({detail["request"] for detail in details}) == 1
    # The folder that paid last goes on.
    pq.write_table(people(210), spec.data)
    with pytest.raises(RequestError, match="this would pay again"):
        ask(spec, "first")  # it has seen the request, and not the table
    assert ask(spec, "second").drawn == LOOKS


def test_the_command_says_so(spec: ReleaseSpec, places: Path) -> None:
    (places / "people.yaml").write_text(spec.model_dump_json(), encoding="utf-8")
    assert privsyn("release", places / "people.yaml").exit_code == 0
    paid = len(Ledger(Settings().ledger).entries())
    refused = privsyn("release", places / "people.yaml", "--out", places / "elsewhere")
    assert refused.exit_code == 2
    for words in ("--out or PRIVSYN_OUT: the run people-", str(places / "out" / "private"), "or run with --fresh"):
        assert words in refused.stderr
    assert len(Ledger(Settings().ledger).entries()) == paid


def test_other_rows_are_a_new_draw_in_one_folder_and_are_asked_about_in_another(spec: ReleaseSpec) -> None:
    """Nobody can tell from another folder whether the table is the same: its fingerprints have another key."""
    ask(spec, "first")
    price = spent()
    pq.write_table(people(210), spec.data)
    with pytest.raises(RequestError, match="this would pay again"):
        ask(spec, "second")
    assert ask(spec, "first").drawn == LOOKS
    assert spent() == 2 * price


def test_a_period_that_another_folder_released_is_named_with_its_run(spec: ReleaseSpec) -> None:
    first = release_in_process(spec, at("first"), period="2026-10")
    with pytest.raises(RequestError, match=f"released already, by the run {first.run}.*is not in .*second/released"):
        privsyn_api.release(None, spec, period="2026-10", out=at("second").out)


def test_another_request_is_another_price(spec: ReleaseSpec) -> None:
    ask(spec, "first")
    other = spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"epsilon": 0.5})})
    assert ask(other, "second").drawn == LOOKS


def test_what_was_given_back_was_not_paid_for(spec: ReleaseSpec) -> None:
    with pytest.raises(ZeroDivisionError), open_run.open_run(propose_release(spec, at("first"))):
        raise ZeroDivisionError
    assert ask(spec, "second").drawn == LOOKS


def test_a_copy_keeps_its_identity_and_pays_nothing(spec: ReleaseSpec) -> None:
    first, price = ask(spec, "first"), spent()
    shutil.copytree(at("first").out, at("copy").out)
    assert (ask(spec, "copy").run, spent()) == (first.run, price)
    shutil.rmtree(at("first").out)
    pq.write_table(people(210), spec.data)
    assert ask(spec, "copy").drawn == LOOKS


@pytest.mark.parametrize("where", [checks, open_run], ids=["at its checks", "at its reservation"])
def test_two_folders_at_once_pay_once(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch, where: ModuleType) -> None:
    """The other folder pays while this one is admitted: a check refuses, or the ledger's own transaction."""
    done: list[ReleaseSummary] = []

    def find_late(proposal: Proposal, books: Books) -> Payer | None:
        monkeypatch.setattr(where, "find_payer", find_payer)
        done.append(ask(spec, "first"))
        return find_payer(proposal, books)

    second = propose_release(spec, at("second"))
    monkeypatch.setattr(where, "find_payer", find_late)
    with pytest.raises(RequestError, match="this would pay again"), open_run.open_run(second):
        pytest.fail("it was opened")
    assert {e.run for e in Ledger(Settings().ledger).entries()} == {done[0].run}


def test_charges_of_earlier_versions_name_no_request(spec: ReleaseSpec) -> None:
    ledger = Ledger(Settings().ledger)
    ledger.register("people", spec.budget)
    ledger.reserve("people", "people-of-before", [ChargeLine("one_way_marginals", "a" * 64, Fraction(1, 10**6))])
    assert ask(spec, "first").drawn == LOOKS
