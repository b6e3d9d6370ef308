"""The ledger where accountants meet: which one counts a cap, what it takes, and histories of earlier versions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.settings import Settings
from privsyn.cli.ledger_command import print_ledger
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Dataset, Entry, audit, hash_entry
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon

CAP = Guarantee(epsilon=2.0, delta=1e-9)
GAUSSIAN, TIGHT, PAPER = (convert_epsilon_to_rho(2.0, 1e-9, a) for a in ("gaussian", "tight", "paper"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.sqlite")
    made.register("new", CAP, "gaussian")
    made.register("old", CAP, "tight")
    return made


def line(key: str, rho: Fraction, accountant: str | None) -> ChargeLine:
    return ChargeLine("measure", key, rho, {} if accountant is None else {"accountant": accountant})


def test_a_cap_is_counted_by_the_accountant_it_was_set_with(ledger: Ledger) -> None:
    new, old = ledger.summary()
    assert (new.accountant, new.cap_rho, old.accountant, old.cap_rho) == ("gaussian", GAUSSIAN, "tight", TIGHT)
    ledger.reserve("new", "run", [line("a", GAUSSIAN, "gaussian")])  # exactly the cap
    (used, _) = ledger.summary()
    assert (
        used.epsilon
        == convert_rho_to_epsilon(GAUSSIAN, 1e-9, "gaussian")
        <= 2.0
        < convert_rho_to_epsilon(GAUSSIAN, 1e-9, "tight")
    )
    assert (used.remaining_rho, used.remaining_epsilon) == (0, 0.0)
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("new", "run", [line("b", Fraction(1, 10**9), "gaussian")])
    assert ledger.verify() == []


def test_a_known_data_set_keeps_its_accountant(ledger: Ledger) -> None:
    ledger.register("new", CAP, "tight")
    ledger.register("old", CAP, "gaussian")
    assert [s.accountant for s in ledger.summary()] == ["gaussian", "tight"]


@pytest.mark.parametrize("accountant", ["tight", "paper", None, "pld"])
def test_a_gaussian_cap_has_no_price_for_other_noise(ledger: Ledger, accountant: str | None) -> None:
    before = ledger.export()
    for ask in (ledger.check_room, lambda d, lines: ledger.reserve(d, "run", lines)):
        with pytest.raises(RequestError, match=r"accountant.*nothing was spent.*Write accountant: gaussian"):
            ask("new", [line("a", PAPER / 10, "gaussian"), line("b", PAPER / 10, accountant)])
    assert ledger.export() == before


def test_a_zcdp_cap_takes_every_price_and_promises_no_more_than_zcdp_does(ledger: Ledger) -> None:
    ledger.reserve("old", "run", [line("a", TIGHT / 4, "gaussian"), line("b", TIGHT / 4, "paper")])
    ledger.reserve("old", "run", [line("c", TIGHT / 4, "tight"), line("d", TIGHT / 4, None)])
    (old,) = ledger.summary("old")
    assert old.rho == TIGHT and old.epsilon == convert_rho_to_epsilon(TIGHT, 1e-9, "tight")
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("old", "run", [line("e", Fraction(1, 10**9), "gaussian")])
    assert ledger.verify() == []


@pytest.mark.parametrize("accountant", ["gaussian", "tight", "paper"])
def test_the_refusals_cure_is_an_epsilon_of_the_releases_own_accountant(ledger: Ledger, accountant: str) -> None:
    ledger.reserve("old", "run", [line("a", TIGHT / 2, "tight")])
    with pytest.raises(BudgetRefusedError) as refused:
        ledger.reserve("old", "run", [line("b", TIGHT, accountant)])
    fits = float(str(refused.value).split("at most epsilon ")[1].split()[0])
    assert (
        convert_epsilon_to_rho(fits, 1e-9, accountant)
        <= TIGHT / 2
        < convert_epsilon_to_rho(fits * 1.01, 1e-9, accountant)
    )  # type: ignore[arg-type]


def test_both_views_name_the_accountant(ledger: Ledger, tmp_path: Path) -> None:
    url = str(tmp_path / "ledger.sqlite")
    assert [d["accountant"] for d in LedgerView(Settings(ledger=url)).as_json()["datasets"]] == ["gaussian", "tight"]
    console = Console(record=True, width=120)
    assert print_ledger(LedgerView(Settings(ledger=url)), None, console)
    shown = console.export_text()
    assert "epsilon by accountant gaussian: new" in shown and "epsilon by accountant tight: old" in shown


def history(dataset: Dataset, *details: dict[str, str]) -> list[Entry]:
    """Reserved charges of a hundredth of the cap each, chained as the ledger chains them."""
    entries: list[Entry] = []
    for number, detail in enumerate(details, 1):
        previous = entries[-1].hash if entries else "0" * 64
        entry = Entry(
            number, dataset.name, "run", "s", str(number), "reserve", dataset.rho / 100, detail, "t", previous, ""
        )
        entries.append(Entry(**{**entry.__dict__, "hash": hash_entry(entry.row(), dataset)}))
    return entries


def problems(dataset: Dataset, *details: dict[str, str]) -> list[str]:
    entries = history(dataset, *details)
    return audit(entries, {dataset.name: dataset}, len(entries), entries[-1].hash)


def test_the_audit_finds_a_charge_without_a_price_and_a_cap_that_is_no_accountants() -> None:
    paid, other = {"accountant": "gaussian"}, {"accountant": "tight"}
    assert problems(Dataset("d", CAP, GAUSSIAN, "t"), paid, paid) == []
    assert problems(Dataset("d", CAP, TIGHT, "t"), paid, other) == []
    found = problems(Dataset("d", CAP, GAUSSIAN, "t"), paid, other)
    assert found == ["'d' holds a charge that its cap's accountant has no price for"]
    for wrong in (GAUSSIAN * 2, (GAUSSIAN + TIGHT) / 2, TIGHT / 2):
        assert (
            problems(Dataset("d", CAP, wrong, "t"), paid)[-1] == "the cap of 'd' is not what its epsilon and delta give"
        )


@pytest.mark.parametrize("epsilon", [1e-30, 1e-17, 1e-7, 1e-6, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 1e-3])
def test_every_cap_says_by_its_rho_which_accountant_it_is(epsilon: float, delta: float) -> None:
    """Where both give the same rho, it is tight: that takes every charge, so nothing is refused or passed by it."""
    cap = Guarantee(epsilon=epsilon, delta=delta)
    tight, gaussian = (convert_epsilon_to_rho(epsilon, delta, a) for a in ("tight", "gaussian"))
    assert Dataset("d", cap, tight, "t").accountant == "tight"
    found = Dataset("d", cap, gaussian, "t").accountant
    assert found == ("gaussian" if gaussian > tight * (1 + Fraction(1, 10**6)) else "tight")
    assert found == "gaussian" or gaussian <= tight * (1 + Fraction(1, 10**6))
