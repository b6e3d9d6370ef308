"""The privacy ledger: what each data set has spent, its lifetime cap, and the refusal to pass it.

Belongs here: the meaning of entries, exact sums, the state of each charge and the audit.  Does not
belong here: database particulars (flows/ledger/database.py), what a release costs
(data_contracts/receipts.py), the conversion to (epsilon, delta) (tasks/privacy/accountant.py).

A charge is a lineage key of a release step.  Its life:

    reserve -> spent | abandon (the data was touched: it stays spent) | cancel (given back)

and after abandon or cancel the key may be reserved anew, as a new charge.  What a data set has spent
is the exact sum of its reserves less its cancels, whatever happens afterwards: prices add up over
releases (docs/privacy.md), and one accountant, set with the cap, converts the sum.  Entries are only
ever added; each carries the SHA-256 of itself and the one before, so an edited, removed or inserted
entry shows.  The chain finds accidents and careless edits; who can rewrite the whole database can
rewrite the chain.  Nothing here holds a private value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from data_contracts.spec import Guarantee
from flows.errors import BudgetRefusedError, LedgerError, RequestError
from flows.ledger.audit import ChargeState, Dataset, Entry, audit, canonical, charge_states, entry_hash, spent_rho
from flows.ledger.database import Database, datasets_table, entries_table, ledger_table
from flows.ledger.periods import PeriodRow, audit_periods, latest, period_rows, refuse_second_release
from flows.ledger.periods import append as append_period
from flows.ledger.periods import close as close_period
from tasks.privacy.accountant import Accountant, CapAccountant, epsilon_for, rho_for

Event = Literal["reserve", "spent", "abandon", "cancel"]


@dataclass(frozen=True)
class Line:
    """One charge that a run asks for: a release step, its lineage key, its exact price.

    ``detail["accountant"]`` says what the price is proved for; without it, zCDP.
    """

    step: str
    key: str
    rho: Fraction
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetSummary:
    """What one data set has spent; epsilons are by its ``accountant``, at the cap's delta, rounded up."""

    dataset: str
    cap: Guarantee
    cap_rho: Fraction
    rho: Fraction
    epsilon: float
    remaining_rho: Fraction
    remaining_epsilon: float
    entries: int
    created: str
    accountant: CapAccountant


class Ledger:
    """An append-only ledger in an SQLite file or a PostgreSQL database.

    Every method raises LedgerError when the ledger cannot be reached or trusted: no ledger, no release.
    """

    def __init__(self, url: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """``url``: postgresql://..., sqlite:///FILE or a path; ``timeout``: seconds to wait for other writers
        (None: ledger_database.TIMEOUT).

        Without ``create`` a ledger that is not there is a LedgerMissingError.
        """
        self._database = Database(url, timeout, create=create)

    @property
    def name(self) -> str:
        """The ledger's address for people, without a password."""
        return self._database.name

    def register(self, dataset: str, cap: Guarantee, accountant: CapAccountant = "tight") -> None:
        """Set the lifetime cap of a data set, the first time; later, check that it is the same.

        The cap is kept as rho, by ``accountant``; a known data set keeps its own.  Raises RequestError for a
        different cap.
        """
        with self._database.write() as connection:
            known = _datasets(connection).get(dataset)
            if known is None:
                connection.execute(
                    datasets_table.insert().values(
                        name=dataset,
                        epsilon=repr(cap.epsilon),
                        delta=repr(cap.delta),
                        rho=_text(rho_for(cap.epsilon, cap.delta, accountant)),
                        created=_now(),
                    )
                )
            elif known.cap != cap:
                raise _cap_changed(known, cap)

    def reserve(
        self, dataset: str, run: str, lines: Sequence[Line], delta: float | None = None, period: str | None = None
    ) -> None:
        """Charge all lines of a run, or none, before the first look at the data.

        A key that is reserved or spent already is not charged again: that is for the same lineage to
        be continued, so whoever draws noise for a key must hold the lock of that key.  ``delta`` is
        the release's, for the message only.  Raises BudgetRefusedError, having written nothing, when
        the cap would be passed; LedgerError when the history does not add up, or when a known key
        comes with another price; RequestError when the data set's accountant has no price for such a
        line; ValueError for a price that is not positive.

        With ``period`` the run begins that period of the data set in the same transaction, and its charges name it.
        Raises PeriodReleasedError, having written nothing, where the period is released; RequestError where
        another run has begun it and holds charges for it.
        """
        with self._database.write() as connection:
            known, entries = self._trusted(connection, dataset)
            if period is None:
                new = _fitting(known, entries, lines, delta)
            else:
                self._database.make_periods(connection)
                new = self._begin(connection, known, entries, run, lines, delta, period)
            for line in new:
                _append(connection, known, run, line, "reserve")

    def _begin(
        self,
        connection: Connection,
        known: Dataset,
        entries: Sequence[Entry],
        run: str,
        lines: Sequence[Line],
        delta: float | None,
        period: str,
    ) -> list[Line]:
        """Begin the period where the run has not; the lines that are new charges, naming the period."""
        charges = bool(_unheld(entries, lines))
        rows = period_rows(connection, known.name)
        begins = refuse_second_release(rows, entries, known.name, period, run, charges=charges)
        new = _fitting(known, entries, lines, delta)
        if begins:
            append_period(connection, known.name, period, run, "begin", _now())
        return [replace(line, detail={**line.detail, "period": period}) for line in new]

    def period(self, dataset: str, period: str) -> PeriodRow | None:
        """Where the period of the data set stands; None when it was never begun."""
        return latest(self.periods(dataset), dataset, period)

    def periods(self, dataset: str | None = None) -> list[PeriodRow]:
        """The history of periods, oldest first."""
        with self._database.read() as connection:
            return period_rows(connection, dataset) if self._database.has_periods(connection) else []

    def release_period(self, dataset: str, period: str, run: str) -> None:
        """The release of this period is published: it is never released again.  Twice is once."""
        with self._database.write() as connection:
            self._database.make_periods(connection)
            close_period(connection, period_rows(connection, dataset), dataset, period, run, _now())

    def check_room(self, dataset: str, lines: Sequence[Line], delta: float | None = None) -> None:
        """Raise what :meth:`reserve` would raise for these lines now; write nothing."""
        with self._database.read() as connection:
            known, entries = self._trusted(connection, dataset)
            _fitting(known, entries, lines, delta)

    def settle(self, dataset: str, key: str) -> None:
        """The noise of this charge was drawn and its table is kept: reserve -> spent.  Twice is once."""
        self._close(dataset, key, "spent")

    def abandon(self, dataset: str, key: str, touched: bool) -> None:
        """The step failed.  ``touched``: the data was looked at, so the charge stays; else it is given back."""
        self._close(dataset, key, "abandon" if touched else "cancel")

    def state(self, dataset: str, key: str) -> Literal["reserved", "spent", "abandoned", "cancelled"] | None:
        """Where the latest charge of this key stands; None when there never was one."""
        with self._database.read() as connection:
            found = charge_states(_entries(connection, dataset)).get(key)
        return found.name if found else None

    def summary(self, dataset: str | None = None) -> list[DatasetSummary]:
        """One summary a data set, by name; all of them, or the one asked for (none when unknown)."""
        with self._database.read() as connection:
            known = [d for d in _datasets(connection).values() if dataset in (None, d.name)]
            return [_summary(d, _entries(connection, d.name)) for d in known]

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """The history, oldest first."""
        with self._database.read() as connection:
            return _entries(connection, dataset)

    def export(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """The history as JSON-ready dictionaries; rho stays exact text."""
        return [{**asdict(e), "rho": _text(e.rho)} for e in self.entries(dataset)]

    def check(self) -> None:
        """Raise LedgerError unless the whole history adds up and an entry could be written now."""
        self._database.check_writable()
        with self._database.read() as connection:
            self._must_add_up(connection, _entries(connection))

    def verify(self) -> list[str]:
        """Recompute chain, states and sums; one sentence a problem, nothing when all is well."""
        with self._database.read() as connection:
            return self._audit(connection, _entries(connection))

    def _audit(self, connection: Connection, entries: Sequence[Entry]) -> list[str]:
        count, head = connection.execute(sa.select(ledger_table.c.entries, ledger_table.c.head)).one()
        problems = audit(entries, _datasets(connection), int(count), str(head))
        if self._database.guards_missing(connection):
            problems.append("a trigger that keeps the tables append-only is missing or switched off")
        present = self._database.has_periods(connection)
        return problems + audit_periods(connection, present=present, entries=entries, datasets=_datasets(connection))

    def _trusted(self, connection: Connection, dataset: str) -> tuple[Dataset, list[Entry]]:
        """The data set and its entries, once the whole ledger has passed its audit."""
        entries = _entries(connection)
        self._must_add_up(connection, entries)
        return self._known(connection, dataset), [e for e in entries if e.dataset == dataset]

    def _must_add_up(self, connection: Connection, entries: Sequence[Entry]) -> None:
        problems = self._audit(connection, entries)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise LedgerError(
                f"the ledger {self.name} does not add up: {problems[0]}{more}",
                "Restore it from a backup; nothing was read from the data",
            )

    def _known(self, connection: Connection, dataset: str) -> Dataset:
        known = _datasets(connection).get(dataset)
        if known is None:
            cure = "Register the data set with its cap first"
            raise LedgerError(f"the ledger {self.name} does not know {dataset!r}", cure)
        return known

    def _close(self, dataset: str, key: str, event: Event) -> None:
        with self._database.write() as connection:
            known = self._known(connection, dataset)  # no audit: reserve had one, and this adds no charge
            charge = charge_states(_entries(connection, dataset)).get(key)
            if charge is not None and charge.event == event:
                return
            if charge is None or charge.event != "reserve":
                raise LedgerError(
                    f"the charge {key[:16]} of {dataset!r} is {charge.name if charge else 'unknown'}, and only a "
                    f"reserved one can become {ChargeState.NAMES[event]}",
                    "Report this: a step closed a charge it does not hold",
                )
            _append(connection, known, charge.run, Line(charge.step, key, charge.rho), event)


def _fitting(dataset: Dataset, entries: Sequence[Entry], lines: Sequence[Line], delta: float | None) -> list[Line]:
    """The lines that are new charges, once each; refuses when they would pass the cap."""
    if any(line.rho <= 0 for line in lines):
        raise ValueError("every line of a reservation has a positive rho")
    for line in lines:
        if not dataset.takes(_accountant(line)):
            raise _no_price(dataset, _accountant(line))
    held = {key: state.rho for key, state in charge_states(entries).items() if state.holds}
    new: dict[str, Line] = {}
    for line in lines:
        if line.key not in held:
            new[line.key], held[line.key] = line, line.rho
        elif held[line.key] != line.rho:
            raise LedgerError(
                f"the charge {line.key[:16]} of {dataset.name!r} is in the ledger at another price",
                "The lineage key must cover the step's budget; report this",
            )
    asked, spent = sum((line.rho for line in new.values()), Fraction(0)), spent_rho(entries)
    if spent + asked > dataset.rho:
        raise _refusal(dataset, spent, asked, delta or dataset.cap.delta, _accountant(lines[0]))
    return list(new.values())


def _unheld(entries: Sequence[Entry], lines: Sequence[Line]) -> list[Line]:
    """The lines whose keys are not paid for."""
    held = {key for key, state in charge_states(entries).items() if state.holds}
    return [line for line in lines if line.key not in held]


def _accountant(line: Line) -> str:
    return str(line.detail.get("accountant", "tight"))


def _append(connection: Connection, dataset: Dataset, run: str, line: Line, event: Event) -> None:
    """Add one entry to the end of the chain; the caller's transaction holds the ledger's lock."""
    count, head = connection.execute(sa.select(ledger_table.c.entries, ledger_table.c.head)).one()
    values: dict[str, Any] = {
        "id": int(count) + 1,
        "dataset": dataset.name,
        "run": run,
        "step": line.step,
        "key": line.key,
        "event": event,
        "rho": _text(line.rho),
        "detail": canonical(line.detail),
        "created": _now(),
        "prev_hash": str(head),
    }
    values["hash"] = entry_hash(values, dataset)
    connection.execute(entries_table.insert().values(**values))
    connection.execute(ledger_table.update().values(entries=values["id"], head=values["hash"]))


def _entries(connection: Connection, dataset: str | None = None) -> list[Entry]:
    query = sa.select(entries_table).order_by(entries_table.c.id)
    if dataset is not None:
        query = query.where(entries_table.c.dataset == dataset)
    return [_read(Entry.from_row, row) for row in connection.execute(query).mappings()]


def _datasets(connection: Connection) -> dict[str, Dataset]:
    rows = connection.execute(sa.select(datasets_table).order_by(datasets_table.c.name)).mappings()
    return {row["name"]: _read(Dataset.from_row, row) for row in rows}


def _read(make: Any, row: Any) -> Any:
    try:
        return make(row)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise LedgerError("the ledger holds a row that cannot be read", "Restore it from a backup") from error


def _summary(dataset: Dataset, entries: Iterable[Entry]) -> DatasetSummary:
    history = list(entries)
    spent = spent_rho(history)
    left = max(dataset.rho - spent, Fraction(0))
    return DatasetSummary(
        dataset.name,
        dataset.cap,
        dataset.rho,
        spent,
        dataset.epsilon(spent),
        left,
        dataset.epsilon(left),
        len(history),
        dataset.created,
        dataset.accountant,
    )


def _cap_changed(known: Dataset, cap: Guarantee) -> RequestError:
    return RequestError(
        f"the ledger holds epsilon {known.cap.epsilon:g}, delta {known.cap.delta:g} as the lifetime cap of "
        f"{known.name!r} since {known.created}, and the spec asks for epsilon {cap.epsilon:g}, delta {cap.delta:g}",
        "A cap is set once: write the ledger's cap, or give truly different people's data another name",
        "budget",
    )


def _no_price(dataset: Dataset, accountant: str) -> RequestError:
    return RequestError(
        f"the cap of {dataset.name!r} is counted in Gaussian differential privacy, for which noise under accountant "
        f"{accountant!r} has no price; nothing was spent",
        "Write accountant: gaussian, which the preset `paper` takes too",
        "accountant",
    )


def _refusal(dataset: Dataset, spent: Fraction, asked: Fraction, delta: float, accountant: str) -> BudgetRefusedError:
    cap, left = dataset.cap, max(dataset.rho - spent, Fraction(0))

    def both(rho: Fraction) -> str:
        return f"rho {float(rho):.4g} (epsilon {dataset.epsilon(rho):.4g})"

    fits = float(f"{epsilon_for(left, delta, cast(Accountant, accountant)) * 0.9995:.3e}")
    cure = (
        f"At delta {delta:g} at most epsilon {fits:.4g} still fits: lower privacy.epsilon to that"
        if fits > 0
        else "Nothing is left; the data set cannot be looked at again"
    )
    return BudgetRefusedError(
        f"the budget of {dataset.name!r} does not allow this: spent so far {both(spent)}, asked {both(asked)}, "
        f"cap {both(dataset.rho)}, left {both(left)}, epsilons at the cap's delta {cap.delta:g}; nothing was spent",
        cure,
        "budget",
    )


def _text(rho: Fraction) -> str:
    return f"{rho.numerator}/{rho.denominator}"


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
