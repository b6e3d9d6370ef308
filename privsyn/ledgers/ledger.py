"""The privacy ledger: the spent budget of each data set, its lifetime cap, and the refusal to exceed it.

A charge is a lineage key of a release step.  Its life:

    reserve -> spent | abandon (the data was touched: it stays spent) | cancel (given back)

After abandon or cancel the key may be reserved again, as a new charge.  A data set's spent budget is the exact sum of
its reserves minus its cancels, whatever happens afterwards.  Prices add up over releases (docs/privacy.md), and one
accountant, set with the cap, converts the sum.  Entries are only ever added.  Each carries the SHA-256 of itself and
its predecessor, so an edited, removed or inserted entry is detected.  The chain finds accidents and careless edits;
anyone who can rewrite the whole database can rewrite the chain.  The ledger holds no private value.

A ledger restored from an old backup is consistent, but lacks later charges.  So each release notes privately the number
of entries and the last one's hash.  It does so after its charges are reserved and before any noise is drawn; the hash
chain fixes all earlier entries.  A later ledger has the same entry at the same place, whoever else has added more.  A
note may be behind the ledger (if a run was killed between the two): it then requires less, and nothing was drawn in
between.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.wording import format_share, mention, refer_to_action
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import (
    ChainedRow,
    ChargeState,
    Dataset,
    DatasetSummary,
    Entry,
    StateName,
    audit,
    charge_states,
    format_canonically,
    format_exactly,
    hash_entry,
    parse_entry,
    sum_spent_rho,
    summarize_dataset,
)
from privsyn.ledgers.database import Database, wait_out_restarts
from privsyn.ledgers.known_tables import (
    KnownTable,
    Mark,
    Payer,
    audit_marks,
    claim_charge,
    list_counting_marks,
    mark_rows,
    mark_table,
    read_draw,
    refuse_second_name,
    refuse_second_price,
)
from privsyn.ledgers.released_periods import (
    PeriodRow,
    RefusalRow,
    audit_periods,
    audit_refusals,
    find_latest,
    list_period_rows,
    list_refusals,
    note_refusal,
    refuse_second_release,
)
from privsyn.ledgers.released_periods import append as append_period
from privsyn.ledgers.released_periods import close as close_period
from privsyn.ledgers.schema import datasets_table, entries_table, ledger_table
from privsyn.storage.records import LedgerRecord, Records
from privsyn.tasks.privacy.accountant import Accountant, CapAccountant, convert_epsilon_to_rho, convert_rho_to_epsilon

Event = Literal["reserve", "spent", "abandon", "cancel"]

RECORD = "ledger"
"""The private record's name."""


@dataclass(frozen=True)
class ChargeLine:
    """One charge that a run asks for: a release step, its lineage key, its exact price.

    ``detail["accountant"]``: the accountant that the price is proved for; without it, zCDP.
    """

    step: str
    key: str
    rho: Fraction
    detail: dict[str, Any] = field(default_factory=dict)


def fit_charges(
    dataset: Dataset, entries: Sequence[Entry], lines: Sequence[ChargeLine], delta: float | None
) -> list[ChargeLine]:
    """Return the lines that are new charges, once each.  Raises BudgetRefusedError if they exceed the cap."""
    if any(line.rho <= 0 for line in lines):
        raise ValueError("every line of a reservation has a positive rho")
    for line in lines:
        if not dataset.takes(_name_accountant(line)):
            raise make_no_price_error(dataset, _name_accountant(line))
    charged = {key: state.rho for key, state in charge_states(entries).items() if state.holds}
    new: dict[str, ChargeLine] = {}
    for line in lines:
        if line.key not in charged:
            new[line.key], charged[line.key] = line, line.rho
        elif charged[line.key] != line.rho:
            raise LedgerError(
                f"the charge {line.key[:16]} of {dataset.name!r} is in the ledger at another price",
                "The lineage key must cover the step's budget; report this",
            )
    price, spent = sum((line.rho for line in new.values()), Fraction(0)), sum_spent_rho(entries)
    if spent + price > dataset.rho:
        raise make_over_budget_error(dataset, spent, price, delta or dataset.cap.delta, _name_accountant(lines[0]))
    return list(new.values())


def _name_accountant(line: ChargeLine) -> str:
    return str(line.detail.get("accountant", "tight"))


def append_entry(connection: Connection, dataset: Dataset, run: str, line: ChargeLine, event: Event) -> None:
    """Append one entry to the chain; the caller's transaction holds the ledger's lock."""
    count, head = connection.execute(sa.select(ledger_table.c.entries, ledger_table.c.head)).one()
    values: dict[str, Any] = {
        "id": int(count) + 1,
        "dataset": dataset.name,
        "run": run,
        "step": line.step,
        "key": line.key,
        "event": event,
        "rho": format_exactly(line.rho),
        "detail": format_canonically(line.detail),
        "created": format_now(),
        "prev_hash": str(head),
    }
    values["hash"] = hash_entry(values, dataset)
    connection.execute(entries_table.insert().values(**values))
    connection.execute(ledger_table.update().values(entries=values["id"], head=values["hash"]))


def format_now() -> str:
    """Return the current moment in UTC, in the ledger's form."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def make_another_cap_error(registered: Dataset, cap: Guarantee) -> RequestError:
    """Return the error for a spec whose lifetime cap is not the ledger's."""
    return RequestError(
        f"the ledger holds epsilon {registered.cap.epsilon:g}, delta {registered.cap.delta:g} as the lifetime cap of "
        f"{registered.name!r} since {registered.created}, but the spec asks for epsilon {cap.epsilon:g}, delta "
        f"{cap.delta:g}",
        "A cap is set once: write the ledger's cap, or give truly different people's data another name",
        "budget",
    )


def make_no_price_error(dataset: Dataset, accountant: str) -> RequestError:
    """Return the error for a charge whose accountant has no price in the data set's cap."""
    return RequestError(
        f"the cap of {dataset.name!r} is counted in Gaussian differential privacy, for which noise under accountant "
        f"{accountant!r} has no price; nothing was spent",
        "Write accountant: gaussian, which also fits the preset `paper`, or leave it out without that preset",
        "accountant",
    )


def make_over_budget_error(
    dataset: Dataset, spent: Fraction, price: Fraction, delta: float, accountant: str
) -> BudgetRefusedError:
    """Return the error for a run that would exceed the cap, with what still fits at ``delta`` under ``accountant``."""
    cap, remaining = dataset.cap, max(dataset.rho - spent, Fraction(0))

    def both(rho: Fraction) -> str:
        return f"{format_share(rho, dataset.rho)} (rho {float(rho):.4g}, epsilon {dataset.epsilon(rho):.4g})"

    fits = float(f"{convert_rho_to_epsilon(remaining, delta, cast(Accountant, accountant)) * 0.9995:.3e}")
    cure = (
        f"At delta {delta:g} at most epsilon {fits:.4g} still fits: lower " + mention("privacy.epsilon") + " to that"
        if fits > 0
        else "Nothing is left; the data set cannot be looked at again"
    )
    return BudgetRefusedError(
        f"the budget of {dataset.name!r} does not allow this: spent so far {both(spent)}, asked {both(price)}, "
        f"left {both(remaining)}, of the cap of rho {float(dataset.rho):.4g}, epsilon {cap.epsilon:g} at delta "
        f"{cap.delta:g}; "
        "nothing was spent",
        cure,
        "budget",
    )


def read_entries(connection: Connection, dataset: str | None = None, key: str | None = None) -> list[Entry]:
    """Return the entries of all, a data set or a charge, oldest first.  Raises LedgerError for an unreadable row."""
    query = sa.select(*(entries_table.c[name] for name in Entry.__dataclass_fields__)).order_by(entries_table.c.id)
    for column, value in ((entries_table.c.dataset, dataset), (entries_table.c.key, key)):
        query = query if value is None else query.where(column == value)
    return [_read(parse_entry, tuple(row)) for row in connection.execute(query)]


def read_datasets(connection: Connection) -> dict[str, Dataset]:
    """Return every data set by name.  Raises LedgerError for an unreadable row."""
    rows = connection.execute(sa.select(datasets_table).order_by(datasets_table.c.name)).mappings()
    return {row["name"]: _read(Dataset.from_row, row) for row in rows}


def _read(make: Any, row: Any) -> Any:
    try:
        return make(row)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise LedgerError("the ledger holds a row that cannot be read", "Restore it from a backup") from error


@dataclass(frozen=True)
class History:
    """All rows of a ledger at one moment, oldest first."""

    datasets: Mapping[str, Dataset]
    entries: Sequence[Entry]
    periods: Sequence[PeriodRow]
    marks: Sequence[Mark]


class Ledger:
    """An append-only ledger in an SQLite file or a PostgreSQL database.

    Every method raises LedgerError if the ledger cannot be reached or trusted: without a ledger there is no release.
    Every method may run twice with the same arguments, so it is retried while the database restarts.
    """

    def __init__(self, url: str | Path, timeout: float | None = None, *, create: bool = True) -> None:
        """Open the ledger.

        ``url``: postgresql://..., sqlite:///FILE or a path; ``timeout``: seconds to wait for other writers (None: the
        default of privsyn/ledgers/database.py).

        Without ``create``, raises LedgerMissingError for a missing ledger.
        """
        self._database = Database(url, timeout, create=create)

    @property
    def name(self) -> str:
        """The ledger's address for people, without a password."""
        return self._database.name

    @wait_out_restarts
    def make_tables(self) -> None:
        """Create every table that a release may need, so that a database owner can grant only the right to add rows."""
        self._database.make_all()

    @wait_out_restarts
    def register(self, dataset: str, cap: Guarantee, accountant: CapAccountant = "tight") -> None:
        """Set the lifetime cap of a new data set; for a known one, check that the cap is the same.

        The cap is stored as rho, converted by ``accountant``; a known data set keeps its own.  Raises RequestError for
        a different cap.
        """
        with self._database.write() as connection:
            registered = read_datasets(connection).get(dataset)
            if registered is None:
                connection.execute(
                    datasets_table.insert().values(
                        name=dataset,
                        epsilon=repr(cap.epsilon),
                        delta=repr(cap.delta),
                        rho=format_exactly(convert_epsilon_to_rho(cap.epsilon, cap.delta, accountant)),
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

        A key that is already reserved or spent is not charged again: the same lineage continues, so a caller that draws
        noise for a key must hold the key's lock.  ``delta``: the release's, for the message only.  Raises
        BudgetRefusedError if the cap would be exceeded.  Raises LedgerError if the history does not add up, or a known
        key comes with another price.  Raises RequestError if the data set's accountant has no price for a line,
        ValueError for a price that is not positive.  After a refusal, nothing has been written.

        ``period``: the run begins this period of the data set in the same transaction, and its charges name it.  Raises
        PeriodReleasedError if the period is released, RequestError if another run has begun it and holds charges for
        it.

        ``table``: new charges record the table's marks in the same transaction.  Raises RequestError if the table is
        known under another name and no reason is stated.

        ``payer``: raises RequestError for new charges if another private folder was the last to pay for the request.
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
        """Raise the errors that :meth:`reserve` would raise for new charges on this table; write nothing."""
        with self._database.read() as connection:
            rows = list_counting_marks(self._list_marks(connection), read_entries(connection))
        refuse_second_name(rows, dataset, table)

    @wait_out_restarts
    def check_payer(self, dataset: str, payer: Payer) -> None:
        """Raise the errors that :meth:`reserve` would raise for this payer's new charges; write nothing."""
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
        """Begin the period unless the run has, and return the lines that are new charges, with the period's name."""
        held = {key for key, state in charge_states(entries).items() if state.holds}
        charges = any(line.key not in held for line in lines)
        rows = list_period_rows(connection, registered.name)
        begins = refuse_second_release(rows, entries, registered.name, period, run, charges=charges)
        new = fit_charges(registered, entries, lines, delta)
        if begins:
            append_period(connection, registered.name, period, run, "begin", format_now())
        return [replace(line, detail={**line.detail, "period": period}) for line in new]

    def period(self, dataset: str, period: str) -> PeriodRow | None:
        """Return the state of the data set's period; None if it was never begun."""
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
        """Record that this period's release is published, so it is never released again.  Idempotent."""
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
        """Raise the errors that :meth:`reserve` would raise for these lines; write nothing."""
        with self._database.read() as connection:
            registered, entries = self._read_trusted(connection, dataset)
            fit_charges(registered, entries, lines, delta)

    def settle(self, dataset: str, key: str) -> None:
        """Record that this charge's noise was drawn and its table is kept: reserve -> spent.  Idempotent."""
        self._close(dataset, key, "spent")

    @wait_out_restarts
    def claim(self, dataset: str, key: str, draw: str) -> None:
        """Record the one draw of noise of a reserved charge, before any row is read for it.  Idempotent.

        ``draw``: an HMAC of the noise.  Raises LedgerError if another draw is recorded, or the charge is not reserved.
        Two copies of a private folder share one charge, so only the first one looks at the data.
        """
        with self._database.write() as connection:
            self._database.make(connection, "marks")
            registered = self._read_known(connection, dataset)
            claim_charge(connection, registered, read_entries(connection, dataset), key, draw, format_now())

    @wait_out_restarts
    def claimed(self, dataset: str, key: str) -> str | None:
        """Return the draw recorded for this key's latest charge, by this private folder or a copy of it."""
        with self._database.read() as connection:
            return read_draw(self._list_marks(connection, dataset), read_entries(connection, dataset), key)

    @wait_out_restarts
    def marks(self) -> list[Mark]:
        """Return the marks of draws and tables, oldest first."""
        with self._database.read() as connection:
            return self._list_marks(connection)

    def _list_marks(self, connection: Connection, dataset: str | None = None) -> list[Mark]:
        return mark_rows(connection, dataset) if self._database.has(connection, "marks") else []

    def abandon(self, dataset: str, key: str, data_was_read: bool) -> None:
        """Record that the step failed.  ``data_was_read``: the charge stays; else it is cancelled.

        Raises LedgerError if a charge to be cancelled has a recorded draw (:meth:`claim`).
        """
        self._close(dataset, key, "abandon" if data_was_read else "cancel")

    @wait_out_restarts
    def state(self, dataset: str, key: str) -> StateName | None:
        """Return the state of this key's latest charge; None if there never was one."""
        with self._database.read() as connection:
            state = charge_states(read_entries(connection, dataset, key)).get(key)
        return None if state is None else state.name

    @wait_out_restarts
    def states(self, dataset: str) -> dict[str, StateName]:
        """Return the state of the latest charge of every key of the data set."""
        with self._database.read() as connection:
            return {key: state.name for key, state in charge_states(read_entries(connection, dataset)).items()}

    @wait_out_restarts
    def list_datasets(self) -> list[str]:
        """Return the names of all data sets."""
        with self._database.read() as connection:
            return list(read_datasets(connection))

    @wait_out_restarts
    def summary(self, dataset: str | None = None) -> list[DatasetSummary]:
        """Return the summaries of all data sets by name, or of the named one; empty for an unknown one."""
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
        return [{**asdict(e), "rho": format_exactly(e.rho)} for e in self.entries(dataset)]

    @wait_out_restarts
    def check(self) -> None:
        """Raise LedgerError unless the whole history adds up and an entry could be written now."""
        self._database.check_writable()
        with self._database.read() as connection:
            self._check_sums(connection, read_entries(connection))

    @wait_out_restarts
    def verify(self) -> list[str]:
        """Recompute chain, states and sums, and return one sentence for each problem."""
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
        """Return the data set and its entries, after an audit of the whole ledger."""
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
            registered = self._read_known(connection, dataset)  # reserve made an audit, and this adds no charge
            entries = read_entries(connection, dataset)
            charge = charge_states(entries).get(key)
            if charge is not None and charge.event == event:
                return
            if charge is None or charge.event != "reserve":
                raise LedgerError(
                    f"the charge {key[:16]} of {dataset!r} is {charge.name if charge else 'unknown'}, but only a "
                    f"reserved one can become {ChargeState.NAMES[event]}",
                    "Report this: a step closed a charge it does not hold",
                )
            if event == "cancel" and read_draw(self._list_marks(connection, dataset), entries, key):
                raise LedgerError(
                    f"the noise of the charge {key[:16]} of {dataset!r} was drawn, so it is not given back",
                    "Run the release again: it continues from that noise",
                )
            append_entry(connection, registered, charge.run, ChargeLine(charge.step, key, charge.rho), event)


def open_noted_ledger(records: Records) -> LedgerRecord | None:
    """Return the note; None if this private folder has charged nothing to the data set yet.

    Raises PrivsynError if the note is missing but records of steps exist, which are made after it.
    """
    noted = records.load_as(RECORD, LedgerRecord)
    if noted is None and records.has_any("step-", "generation-", "certificate-"):
        raise records.damaged(RECORD)
    return noted


def note_ledger(ledger: Ledger, records: Records, dataset: str) -> None:
    """Note in the private zone which ledger the data set is charged to, and the length of its history."""
    history = ledger.read_history()
    content: dict[str, Any] = {
        "created": history.datasets[dataset].created,
        "entries": len(history.entries),
        "periods": len(history.periods),
        "marks": len(history.marks),
        "head": _find_head(history.entries),
        "periods_head": _find_head(history.periods),
        "marks_head": _find_head(history.marks),
    }
    records.save(RECORD, content)


def refuse_older(ledger: Ledger, noted: LedgerRecord, dataset: str) -> None:
    """Raise LedgerError for a ledger that lacks noted entries: an older copy, or another history.

    ``noted``: the record; a record of early versions, with only ``created``, refuses nothing.
    """
    history = ledger.read_history()
    holds_all = _has_row(history.entries, noted.entries, noted.head)
    holds_all = holds_all and _has_row(history.periods, noted.periods, noted.periods_head)
    if holds_all and _has_row(history.marks, noted.marks, noted.marks_head):
        return
    raise LedgerError(
        f"the ledger {ledger.name} is an older copy, or another history: releases of {dataset!r} in this private "
        f"folder have seen its entry {noted.entries}, which is missing or changed",
        "Restore the newest copy and look at it with " + refer_to_action("verify_ledger") + "; nothing was read",
    )


def _has_row(rows: Sequence[Entry] | Sequence[ChainedRow], number: int, head: str | None) -> bool:
    """Return whether the row with this number (from 1; 0 for none) has this hash."""
    return number == 0 or (len(rows) >= number and rows[number - 1].hash == head)


def _find_head(rows: Sequence[Entry] | Sequence[ChainedRow]) -> str:
    return rows[-1].hash if rows else ""
