"""The privacy ledger: what each data set has spent, its lifetime cap, and the refusal to pass it.

A charge is a lineage key of a release step.  Its life:

    reserve -> spent | abandon (the data was touched: it stays spent) | cancel (given back)

and after abandon or cancel the key may be reserved anew, as a new charge.  What a data set has spent
is the exact sum of its reserves less its cancels, whatever happens afterwards: prices add up over
releases (docs/privacy.md), and one accountant, set with the cap, converts the sum.  Entries are only
ever added; each carries the SHA-256 of itself and the one before, so an edited, removed or inserted
entry shows.  The chain finds accidents and careless edits; whoever can rewrite the
whole database can rewrite the chain.  Nothing here holds a private value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.base.errors import LedgerError
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import ChargeState, Dataset, Entry, StateName, audit, charge_states, parse_entry
from privsyn.ledgers.charges import (
    ChargeLine,
    Event,
    append_entry,
    as_text,
    fit_charges,
    format_now,
    list_unheld,
    make_another_cap_error,
)
from privsyn.ledgers.database import Database, wait_out_restarts
from privsyn.ledgers.dataset_summary import DatasetSummary, summarize_dataset
from privsyn.ledgers.known_tables import KnownTable, list_counting_marks, mark_table, refuse_second_name
from privsyn.ledgers.marks import Mark, audit_marks, claim_charge, mark_rows, read_draw
from privsyn.ledgers.paid_elsewhere import Payer, refuse_second_price
from privsyn.ledgers.refused_periods import RefusalRow, audit_refusals, list_refusals, note_refusal
from privsyn.ledgers.released_periods import (
    PeriodRow,
    audit_periods,
    find_latest,
    list_period_rows,
    refuse_second_release,
)
from privsyn.ledgers.released_periods import append as append_period
from privsyn.ledgers.released_periods import close as close_period
from privsyn.ledgers.schema import datasets_table, entries_table, ledger_table
from privsyn.tasks.privacy.accountant import CapAccountant, convert_epsilon_to_rho


def read_entries(connection: Connection, dataset: str | None = None, key: str | None = None) -> list[Entry]:
    """Return the entries of the ledger, or of one data set or charge, oldest first.

    Raises LedgerError for a row that cannot be read.
    """
    query = sa.select(*(entries_table.c[name] for name in Entry.__dataclass_fields__)).order_by(entries_table.c.id)
    for column, value in ((entries_table.c.dataset, dataset), (entries_table.c.key, key)):
        query = query if value is None else query.where(column == value)
    return [_read(parse_entry, tuple(row)) for row in connection.execute(query)]


def read_datasets(connection: Connection) -> dict[str, Dataset]:
    """Return every data set by its name.  Raises LedgerError for a row that cannot be read."""
    rows = connection.execute(sa.select(datasets_table).order_by(datasets_table.c.name)).mappings()
    return {row["name"]: _read(Dataset.from_row, row) for row in rows}


def _read(make: Any, row: Any) -> Any:
    try:
        return make(row)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise LedgerError("the ledger holds a row that cannot be read", "Restore it from a backup") from error


@dataclass(frozen=True)
class History:
    """All rows of a ledger as they were at one moment, oldest first."""

    datasets: Mapping[str, Dataset]
    entries: Sequence[Entry]
    periods: Sequence[PeriodRow]
    marks: Sequence[Mark]


class Ledger:
    """An append-only ledger in an SQLite file or a PostgreSQL database.

    Every method raises LedgerError if the ledger cannot be reached or trusted: without a ledger there is no release.
    Each may be called twice with the same arguments, so a database that is restarted meanwhile is waited for.
    """

    def __init__(self, url: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """Open the ledger.

        ``url``: postgresql://..., sqlite:///FILE or a path; ``timeout``: seconds to wait for other writers
        (None: the default of privsyn/ledgers/database.py).

        Without ``create`` a ledger that is not there is a LedgerMissingError.
        """
        self._database = Database(url, timeout, create=create)

    @property
    def name(self) -> str:
        """The ledger's address for people, without a password."""
        return self._database.name

    @wait_out_restarts
    def make_tables(self) -> None:
        """Make every table that a release may need: for an owner of the database who lets others only add rows."""
        self._database.make_all()

    @wait_out_restarts
    def register(self, dataset: str, cap: Guarantee, accountant: CapAccountant = "tight") -> None:
        """Set the lifetime cap of a data set the first time; check later that it is the same.

        The cap is kept as rho, by ``accountant``; a known data set keeps its own.  Raises RequestError for a
        different cap.
        """
        with self._database.write() as connection:
            registered = read_datasets(connection).get(dataset)
            if registered is None:
                connection.execute(
                    datasets_table.insert().values(
                        name=dataset,
                        epsilon=repr(cap.epsilon),
                        delta=repr(cap.delta),
                        rho=as_text(convert_epsilon_to_rho(cap.epsilon, cap.delta, accountant)),
                        created=format_now(),
                    )
                )
            elif registered.cap != cap:
                raise make_another_cap_error(registered, cap)

    @wait_out_restarts
    def reserve(
        self,
        dataset: str,
        run: str,
        lines: Sequence[ChargeLine],
        delta: float | None = None,
        period: str | None = None,
        table: KnownTable | None = None,
        payer: Payer | None = None,
    ) -> None:
        """Charge all lines of a run, or none, before the first look at the data.

        A key that is reserved or spent already is not charged again: that is for the same lineage to be continued, so
        whoever draws noise for a key must hold the lock of that key.  ``delta`` is the release's, for the message only.
        Raises BudgetRefusedError, having written nothing, when the cap would be passed.  Raises LedgerError if the
        history does not add up, or when a known key comes with another price.  Raises RequestError if the data set's
        accountant has no price for such a line.  Raises ValueError for a price that is not positive.

        With ``period`` the run begins that period of the data set in the same transaction, and its charges name it.
        Raises PeriodReleasedError, having written nothing, where the period is released.  Raises RequestError if
        another run has begun it and holds charges for it.

        With ``table`` new charges enter what the run's table is known by, in the same transaction.  Raises
        RequestError, having written nothing, if it is known under another name and nobody has stated a reason.

        With ``payer`` new charges are refused with RequestError if another private folder was the last to pay for the
        request.
        """
        with self._database.write() as connection:
            registered, entries = self._read_trusted(connection, dataset)
            if period is None:
                new = fit_charges(registered, entries, lines, delta)
            else:
                self._database.make(connection, "periods")
                new = self._begin(connection, registered, entries, run, lines, delta, period)
            if new and payer is not None:
                refuse_second_price(entries, payer)
            if new and table is not None:
                self._database.make(connection, "marks")
                mark_table(connection, read_entries(connection), dataset, run, table, format_now())
            for line in new:
                append_entry(connection, registered, run, line, "reserve")

    @wait_out_restarts
    def check_table(self, dataset: str, table: KnownTable) -> None:
        """Raise what :meth:`reserve` would raise for new charges on this table now; write nothing."""
        with self._database.read() as connection:
            rows = list_counting_marks(self._list_marks(connection), read_entries(connection))
        refuse_second_name(rows, dataset, table)

    @wait_out_restarts
    def check_payer(self, dataset: str, payer: Payer) -> None:
        """Raise what :meth:`reserve` would raise for new charges of this payer now; write nothing."""
        with self._database.read() as connection:
            refuse_second_price(read_entries(connection, dataset), payer)

    def _begin(
        self,
        connection: Connection,
        registered: Dataset,
        entries: Sequence[Entry],
        run: str,
        lines: Sequence[ChargeLine],
        delta: float | None,
        period: str,
    ) -> list[ChargeLine]:
        """Begin the period where the run has not; the lines that are new charges, naming the period."""
        charges = bool(list_unheld(entries, lines))
        rows = list_period_rows(connection, registered.name)
        begins = refuse_second_release(rows, entries, registered.name, period, run, charges=charges)
        new = fit_charges(registered, entries, lines, delta)
        if begins:
            append_period(connection, registered.name, period, run, "begin", format_now())
        return [replace(line, detail={**line.detail, "period": period}) for line in new]

    def period(self, dataset: str, period: str) -> PeriodRow | None:
        """Return where the period of the data set stands; None if it was never begun."""
        return find_latest(self.periods(dataset), dataset, period)

    @wait_out_restarts
    def periods(self, dataset: str | None = None) -> list[PeriodRow]:
        """Return the history of periods, oldest first."""
        with self._database.read() as connection:
            return self._list_periods(connection, dataset)

    def _list_periods(self, connection: Connection, dataset: str | None = None) -> list[PeriodRow]:
        return list_period_rows(connection, dataset) if self._database.has(connection, "periods") else []

    @wait_out_restarts
    def release_period(self, dataset: str, period: str, run: str) -> None:
        """Note that the release of this period is published: it is never released again.  Twice is once."""
        with self._database.write() as connection:
            self._database.make(connection, "periods")
            close_period(connection, list_period_rows(connection, dataset), dataset, period, run, format_now())

    @wait_out_restarts
    def refuse_period(self, dataset: str, period: str) -> None:
        """Note that the budget has refused this period; nothing of a data set that the ledger does not know."""
        with self._database.write() as connection:
            if dataset in read_datasets(connection):
                self._database.make(connection, "refusals")
                note_refusal(connection, dataset, period, format_now())

    @wait_out_restarts
    def refusals(self, dataset: str | None = None) -> list[RefusalRow]:
        """Return the periods that the budget has refused, oldest first."""
        with self._database.read() as connection:
            return list_refusals(connection, dataset) if self._database.has(connection, "refusals") else []

    @wait_out_restarts
    def check_room(self, dataset: str, lines: Sequence[ChargeLine], delta: float | None = None) -> None:
        """Raise what :meth:`reserve` would raise for these lines now; write nothing."""
        with self._database.read() as connection:
            registered, entries = self._read_trusted(connection, dataset)
            fit_charges(registered, entries, lines, delta)

    def settle(self, dataset: str, key: str) -> None:
        """Note that the noise of this charge was drawn and its table is kept: reserve -> spent.  Twice is once."""
        self._close(dataset, key, "spent")

    @wait_out_restarts
    def claim(self, dataset: str, key: str, draw: str) -> None:
        """Enter the one draw of noise of a reserved charge, before any row is read for it; the same draw again is fine.

        ``draw``: what that noise is known by, an HMAC of it.  Raises LedgerError for another draw than the one that
        was entered, and for a charge that is not reserved.  Two copies of a private folder have one charge between
        them, and so the one that is first looks and the other does not.
        """
        with self._database.write() as connection:
            self._database.make(connection, "marks")
            registered = self._read_known(connection, dataset)
            claim_charge(connection, registered, read_entries(connection, dataset), key, draw, format_now())

    @wait_out_restarts
    def claimed(self, dataset: str, key: str) -> str | None:
        """Return the draw that was entered for this key's latest charge, here or from a copy of the private folder."""
        with self._database.read() as connection:
            return read_draw(self._list_marks(connection, dataset), read_entries(connection, dataset), key)

    @wait_out_restarts
    def marks(self, dataset: str | None = None) -> list[Mark]:
        """Return what draws and tables are known by, oldest first."""
        with self._database.read() as connection:
            return self._list_marks(connection, dataset)

    def _list_marks(self, connection: Connection, dataset: str | None = None) -> list[Mark]:
        return mark_rows(connection, dataset) if self._database.has(connection, "marks") else []

    def abandon(self, dataset: str, key: str, touched: bool) -> None:
        """Note that the step failed.  ``touched``: the data was looked at, so the charge stays; else it is given back.

        Raises LedgerError where a charge is to be given back whose noise was drawn (:meth:`claim`).
        """
        self._close(dataset, key, "abandon" if touched else "cancel")

    @wait_out_restarts
    def state(self, dataset: str, key: str) -> StateName | None:
        """Return where the latest charge of this key stands; None if there never was one."""
        with self._database.read() as connection:
            state = charge_states(read_entries(connection, dataset, key)).get(key)
        return None if state is None else state.name

    @wait_out_restarts
    def states(self, dataset: str) -> dict[str, StateName]:
        """Return where the latest charge of every key of the data set stands."""
        with self._database.read() as connection:
            return {key: state.name for key, state in charge_states(read_entries(connection, dataset)).items()}

    @wait_out_restarts
    def list_datasets(self) -> list[str]:
        """Return the names of all data sets."""
        with self._database.read() as connection:
            return list(read_datasets(connection))

    @wait_out_restarts
    def summary(self, dataset: str | None = None) -> list[DatasetSummary]:
        """Return the summaries of all data sets by name, or of the named one; empty if the ledger does not know it."""
        with self._database.read() as connection:
            datasets = [d for d in read_datasets(connection).values() if dataset in (None, d.name)]
            return [summarize_dataset(d, read_entries(connection, d.name)) for d in datasets]

    @wait_out_restarts
    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Return the history, oldest first."""
        with self._database.read() as connection:
            return read_entries(connection, dataset)

    @wait_out_restarts
    def read_history(self) -> History:
        """Return all rows of the ledger."""
        with self._database.read() as connection:
            return History(
                read_datasets(connection),
                read_entries(connection),
                self._list_periods(connection),
                self._list_marks(connection),
            )

    def export(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """Return the history as JSON-ready dictionaries; rho stays exact text."""
        return [{**asdict(e), "rho": as_text(e.rho)} for e in self.entries(dataset)]

    @wait_out_restarts
    def check(self) -> None:
        """Raise LedgerError unless the whole history adds up and an entry could be written now."""
        self._database.check_writable()
        with self._database.read() as connection:
            self._check_sums(connection, read_entries(connection))

    @wait_out_restarts
    def verify(self) -> list[str]:
        """Recompute chain, states and sums; one sentence a problem, nothing when all is well."""
        with self._database.read() as connection:
            problems = self._audit(connection, read_entries(connection))
            return problems + self._database.list_shadows(connection)

    def _audit(self, connection: Connection, entries: Sequence[Entry]) -> list[str]:
        count, head = connection.execute(sa.select(ledger_table.c.entries, ledger_table.c.head)).one()
        datasets = read_datasets(connection)
        problems = audit(entries, datasets, int(count), str(head))
        if self._database.guards_missing(connection):
            problems.append("a trigger that keeps the tables append-only is missing or switched off")
        audits = {"periods": audit_periods, "marks": audit_marks, "refusals": audit_refusals}
        for table, audit_rows in audits.items():
            present = self._database.has(connection, table)
            problems += audit_rows(connection, present=present, entries=entries, datasets=datasets)
        return problems

    def _read_trusted(self, connection: Connection, dataset: str) -> tuple[Dataset, list[Entry]]:
        """Return the data set and its entries, once the whole ledger has passed its audit."""
        entries = read_entries(connection)
        self._check_sums(connection, entries)
        return self._read_known(connection, dataset), [e for e in entries if e.dataset == dataset]

    def _check_sums(self, connection: Connection, entries: Sequence[Entry]) -> None:
        problems = self._audit(connection, entries)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise LedgerError(
                f"the ledger {self.name} does not add up: {problems[0]}{more}",
                "Restore it from a backup; nothing was read from the data",
            )

    def _read_known(self, connection: Connection, dataset: str) -> Dataset:
        registered = read_datasets(connection).get(dataset)
        if registered is None:
            cure = "Register the data set with its cap first"
            raise LedgerError(f"the ledger {self.name} does not know {dataset!r}", cure)
        return registered

    @wait_out_restarts
    def _close(self, dataset: str, key: str, event: Event) -> None:
        with self._database.write() as connection:
            registered = self._read_known(connection, dataset)  # no audit: reserve had one, and this adds no charge
            entries = read_entries(connection, dataset)
            charge = charge_states(entries).get(key)
            if charge is not None and charge.event == event:
                return
            if charge is None or charge.event != "reserve":
                raise LedgerError(
                    f"the charge {key[:16]} of {dataset!r} is {charge.name if charge else 'unknown'}, and only a "
                    f"reserved one can become {ChargeState.NAMES[event]}",
                    "Report this: a step closed a charge it does not hold",
                )
            if event == "cancel" and read_draw(self._list_marks(connection, dataset), entries, key):
                raise LedgerError(
                    f"the noise of the charge {key[:16]} of {dataset!r} was drawn, so it is not given back",
                    "Run the release again: it goes on from that noise",
                )
            append_entry(connection, registered, charge.run, ChargeLine(charge.step, key, charge.rho), event)
