"""A spec that names no accountant: `tight` for a new data set, else that of its cap; what was begun keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import privsyn
from privsyn.api.check import check
from privsyn.api.release import propose_release
from privsyn.base.errors import LedgerError, RequestError
from privsyn.base.settings import Settings
from privsyn.cli.release_command import look_ahead
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.choose_accountant import assume_accountant
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary
from privsyn.storage.records import Records
from privsyn.tasks.privacy.accountant import CapAccountant, convert_epsilon_to_rho
from tests.support.kills import run_killed
from tests.support.releases import few, run
from tests.support.specs import changed, people

OWN_PROOF = "rests on a proof of this project's own"
GAUSSIAN, TIGHT = (convert_epsilon_to_rho(1.0, 1e-9, accountant) for accountant in ("gaussian", "tight"))
each_cap = pytest.mark.parametrize("cap", ["gaussian", "tight"])


@pytest.fixture
def spec(places: Path, save: Callable[..., str]) -> ReleaseSpec:
    """A spec that names no accountant."""
    return few(save(people(200)))


def under(spec: ReleaseSpec, accountant: str) -> ReleaseSpec:
    """The same request, as version 0.3.0 wrote it into its notes and keys."""
    return changed(spec, accountant=accountant)


def ledger() -> Ledger:
    return Ledger(Settings().ledger)


def certified(released: str) -> Certificate:
    return Certificate.model_validate_json((Path(released) / "certificate.json").read_text(encoding="utf-8"))


def note_of(made: ReleaseSummary) -> str:
    return (Path(made.released) / "README.md").read_text(encoding="utf-8")


def charged_under() -> list[str]:
    return [entry.accountant for entry in ledger().entries("people") if entry.event == "reserve"]


def test_a_new_data_set_has_what_published_theorems_give(spec: ReleaseSpec) -> None:
    made = run(spec)
    (state,) = ledger().summary()
    assert (state.accountant, state.rho, set(charged_under())) == ("tight", TIGHT, {"tight"})
    assert certified(made.released).accountant == "tight"
    assert OWN_PROOF not in note_of(made) and "published theorems" not in note_of(made)
    assert privsyn.open_release(made.released).spec.accountant == "tight", "a manifest states it"


def test_gaussian_stays_an_option_whose_note_says_what_it_rests_on(spec: ReleaseSpec) -> None:
    made = run(under(spec, "gaussian"))
    (state,) = ledger().summary()
    assert (state.accountant, state.rho, set(charged_under())) == ("gaussian", GAUSSIAN, {"gaussian"})
    assert f"{OWN_PROOF}, which nobody outside it has reviewed" in " ".join(note_of(made).split())


@each_cap
def test_a_known_data_set_goes_on_under_the_accountant_of_its_cap(spec: ReleaseSpec, cap: CapAccountant) -> None:
    ledger().register("people", spec.budget, cap)
    made = run(spec)
    assert (certified(made.released).accountant, set(charged_under())) == (cap, {cap})
    assert (OWN_PROOF in note_of(made)) == (cap == "gaussian")
    if cap == "gaussian":
        with pytest.raises(RequestError, match="or leave it out"):
            run(under(spec, "tight"))


def test_periods_of_gaussian_noise_under_a_cap_of_zcdp_are_followed_by_periods_of_zcdp(spec: ReleaseSpec) -> None:
    """0.3.0 released so on ledgers of 0.2.0."""
    ledger().register("people", spec.budget)
    run(under(spec, "gaussian"), period="2026-10")
    made = run(spec, period="2026-11")
    assert (certified(made.released).accountant, ledger().summary()[0].rho) == ("tight", GAUSSIAN + TIGHT)
    assert ledger().verify() == []


@each_cap
@pytest.mark.parametrize("period", [None, "2026-10"])
def test_a_killed_run_is_finished_under_its_own_accountant_by_one_charge(
    children: Any, spec: ReleaseSpec, cap: CapAccountant, period: str | None
) -> None:
    ledger().register("people", spec.budget, cap)
    run_killed(children, partial(run, period=period), under(spec, "gaussian"), at=(Records, "keep_noise", "after"))
    assert ledger().summary()[0].rho == GAUSSIAN, "reserved"
    made = run(spec, period=period)
    assert (certified(made.released).accountant, ledger().summary()[0].rho) == ("gaussian", GAUSSIAN)
    if period is None:
        again = run(spec)
        assert (again.run, again.drawn, ledger().summary()[0].rho) == (made.run, (), GAUSSIAN)
    assert ledger().verify() == []


def test_a_finished_release_is_found_and_fresh_noise_is_of_the_cap(spec: ReleaseSpec) -> None:
    ledger().register("people", spec.budget)
    first = run(under(spec, "gaussian"))
    assert (run(spec).run, ledger().summary()[0].rho) == (first.run, GAUSSIAN)
    fresh = run(spec, fresh=True)
    assert (certified(fresh.released).accountant, ledger().summary()[0].rho) == ("tight", GAUSSIAN + TIGHT)
    assert run(spec).run == fresh.run, "the newer of two is found from now on"


@each_cap
def test_an_improvement_keeps_the_accountant_of_the_first_release(spec: ReleaseSpec, cap: CapAccountant) -> None:
    ledger().register("people", spec.budget, cap)
    first = run(under(spec, "gaussian"))
    better = privsyn.improve(first.run, 0.5)
    assert better.certificate.accountant == "gaussian"
    assert ledger().summary()[0].rho == GAUSSIAN + convert_epsilon_to_rho(0.5, 1e-9, "gaussian")
    assert OWN_PROOF in better.note and ledger().verify() == []


def test_a_check_and_a_price_say_which_accountant_it_is_and_why(spec: ReleaseSpec, places: Path) -> None:
    settings = Settings()
    assert check(spec).accountant == "tight: no ledger was asked"
    assert check(spec, None, settings).accountant == "tight: 'people' is new to the ledger"
    assert not Path(settings.ledger).exists(), "no ledger was made"
    assert check(under(spec, "paper"), None, settings).accountant == "paper: the spec says so"
    assert look_ahead(propose_release(spec, settings)).rho == TIGHT
    ledger().register("people", spec.budget, "gaussian")
    assert check(spec, None, settings).accountant == "gaussian: the ledger counts the cap of 'people' by it"
    assert look_ahead(propose_release(spec, settings)).rho == GAUSSIAN


def test_a_ledger_that_cannot_be_read_stops_a_release_and_no_check(spec: ReleaseSpec) -> None:
    Path(Settings().ledger).write_bytes(b"no database" * 1_000)
    assert assume_accountant(spec, Settings())[1] == "the ledger cannot be read"
    with pytest.raises(LedgerError):
        run(spec)


def test_what_is_unset_stays_unset_where_it_is_written(spec: ReleaseSpec) -> None:
    for written in (spec.model_dump(mode="json"), spec.model_dump(mode="json", exclude_defaults=True)):
        assert "accountant" not in written and ReleaseSpec.model_validate(written) == spec
    assert ReleaseSpec.model_validate({**written, "accountant": None, "preset": "paper"}).accountant == "paper"
    settled = propose_release(spec, Settings()).spec
    assert settled.accountant == "tight" and "accountant" not in settled.model_fields_set, "nobody asked for it"
