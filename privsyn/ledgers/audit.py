"""The meaning of the ledger's rows: states of charges, exact sums, what a data set has left, and the audit.

Chains of rows beside the entries: each row is numbered and has the hash of itself and its predecessor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.base.wording import describe_epsilon, describe_use
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.schema import CHAINED_TABLES, metadata
from privsyn.tasks.privacy.accountant import CapAccountant, convert_epsilon_to_rho, convert_rho_to_epsilon

GENESIS = "0" * 64
RHO_TOLERANCE = Fraction(1, 10**6)
"""Relative difference allowed between a stored cap's rho and this version's conversion."""

_COUNTS = {"reserve": 1, "cancel": -1, "spent": 0, "abandon": 0}

AT_CAP_DELTA = (
    "Percentages are shares of the cap's price (rho). Prices add up over releases; epsilons, which are at the cap's "
    "delta, do not."
)
"""Note on used and remaining shares, wherever they are printed."""


@dataclass(frozen=True)
class Dataset:
    """A data set's lifetime cap; ``rho`` is binding, (epsilon, delta) is the requested form.

    ``accountant`` converts its sums: it is the accountant that turns the cap's (epsilon, delta) into ``rho``.  Under
    "gaussian" only charges priced for it may be added; under "tight" all may, since every price is a zCDP price.
    """

    name: str
    cap: Guarantee
    rho: Fraction
    created: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Dataset:
        """Read a row of the table ``datasets``.  Raises ValueError if it is invalid."""
        cap = Guarantee(epsilon=float(row["epsilon"]), delta=float(row["delta"]))
        return cls(row["name"], cap, Fraction(row["rho"]), row["created"])

    @property
    def accountant(self) -> CapAccountant:
        """The cap's accountant: "tight" for caps of versions with no other, and where both give the same rho."""
        return "tight" if self.rho <= _sum_rho(self.cap, "tight") * (1 + RHO_TOLERANCE) else "gaussian"

    def takes(self, accountant: str) -> bool:
        """Return whether a charge of a release under ``accountant`` has a price in this data set's sum."""
        return self.accountant == "tight" or accountant == "gaussian"

    def epsilon(self, rho: Fraction) -> float:
        """Return the epsilon of a total price ``rho`` at the cap's delta, rounded up."""
        return convert_rho_to_epsilon(rho, self.cap.delta, self.accountant)


def _sum_rho(cap: Guarantee, accountant: CapAccountant) -> Fraction:
    return convert_epsilon_to_rho(cap.epsilon, cap.delta, accountant)


@dataclass(frozen=True)
class Entry:
    """One entry: the event of a charge, its exact price, and its place in the chain."""

    id: int
    dataset: str
    run: str
    step: str
    key: str
    event: str
    rho: Fraction
    detail: dict[str, Any]
    created: str
    prev_hash: str
    hash: str

    @property
    def accountant(self) -> str:
        """The accountant of the release; an entry without one is priced for zCDP."""
        return str(self.detail.get("accountant", "tight"))

    def row(self) -> dict[str, Any]:
        """Return the row without its own hash, as it was hashed."""
        return {
            "id": self.id,
            "dataset": self.dataset,
            "run": self.run,
            "step": self.step,
            "key": self.key,
            "event": self.event,
            "rho": format_exactly(self.rho),
            "detail": format_canonically(self.detail),
            "created": self.created,
            "prev_hash": self.prev_hash,
        }


@lru_cache(maxsize=2**15)  # a release reads the whole history some thirty times, and rows never change
def parse_entry(row: tuple[Any, ...]) -> Entry:
    """Read a row of the table ``entries``, its columns in Entry's order.  Raises ValueError if it is invalid."""
    number, dataset, run, step, key, event, rho, detail, created, prev_hash, hash_ = row
    if event not in _COUNTS:
        raise ValueError("unknown event")
    rho, detail = Fraction(rho), json.loads(detail)
    if not isinstance(detail, dict):
        raise ValueError("detail is not a mapping")
    return Entry(int(number), dataset, run, step, key, event, rho, detail, created, prev_hash, hash_)


StateName: TypeAlias = Literal["reserved", "spent", "abandoned", "cancelled"]
"""The state of a charge."""


@dataclass(frozen=True)
class ChargeState:
    """The state of the latest charge of a key."""

    NAMES: ClassVar[dict[str, StateName]] = {
        "reserve": "reserved",
        "spent": "spent",
        "abandon": "abandoned",
        "cancel": "cancelled",
    }
    event: str
    run: str
    step: str
    rho: Fraction

    @property
    def name(self) -> StateName:
        """The state as a word."""
        return self.NAMES[self.event]

    @property
    def holds(self) -> bool:
        """Whether the key is paid for: reserved or spent, so not to be charged again."""
        return self.event in ("reserve", "spent")


def charge_states(entries: Iterable[Entry]) -> dict[str, ChargeState]:
    """Return the latest state by key, from the entries of one data set in order."""
    return {e.key: ChargeState(e.event, e.run, e.step, e.rho) for e in entries}


def sum_spent_rho(entries: Iterable[Entry]) -> Fraction:
    """Return the exact sum of reserves minus cancels: reserved, spent and abandoned charges all count."""
    return sum((_COUNTS[e.event] * e.rho for e in entries), Fraction(0))


def format_exactly(rho: Fraction) -> str:
    """Return an exact rho in the ledger's form, "numerator/denominator"."""
    return f"{rho.numerator}/{rho.denominator}"


def format_canonically(value: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys and no spaces.  Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_entry(row: Mapping[str, Any], dataset: Dataset) -> str:
    """Return the SHA-256 of an entry's row and of its data set's cap, as canonical JSON."""
    cap = [dataset.cap.epsilon, dataset.cap.delta, format_exactly(dataset.rho), dataset.created]
    return hashlib.sha256(format_canonically({**row, "cap": cap}).encode()).hexdigest()


def audit(entries: Sequence[Entry], datasets: Mapping[str, Dataset], count: int, head: str) -> list[str]:
    """Return all problems of a history, as sentences; ``count`` and ``head`` are the ledger's own row."""
    problems = find_broken_link(
        entries,
        datasets,
        "entry {}",
        lambda entry: hash_entry(entry.row(), datasets[entry.dataset]),
        covers=" or its data set's cap",
    )
    if len(entries) != count or (entries[-1].hash if entries else GENESIS) != head:
        problems.append(f"the ledger has {len(entries)} entries, but its own count and last hash say {count}")
    for name, dataset in datasets.items():
        of_dataset = [e for e in entries if e.dataset == name]
        problems += _find_passed_caps(of_dataset, dataset)
        problems += _order(of_dataset)
        expected = _sum_rho(dataset.cap, dataset.accountant)
        if abs(dataset.rho - expected) > expected * RHO_TOLERANCE:
            problems.append(f"the cap of {name!r} is not what its epsilon and delta give")
        if not all(dataset.takes(e.accountant) for e in of_dataset if e.event == "reserve"):
            problems.append(f"{name!r} holds a charge that its cap's accountant has no price for")
    return problems


def _find_passed_caps(entries: Sequence[Entry], dataset: Dataset) -> list[str]:
    """Return the first entry at which the data set exceeded its cap, whatever was given back later."""
    total = Fraction(0)
    for entry in entries:
        total += _COUNTS[entry.event] * entry.rho
        if total > dataset.rho:
            return [f"{dataset.name!r} had spent more than its cap after entry {entry.id}"]
    return []


Link = TypeVar("Link", bound="Entry | ChainedRow")


def find_broken_link(
    links: Sequence[Link],
    datasets: Mapping[str, Dataset],
    name: str,
    hash_of: Callable[[Link], str],
    *,
    covers: str = "",
) -> list[str]:
    """Return the problems in a chain's numbers, data sets and hashes, as sentences.

    ``name``: of a link, with {} for its number; ``covers``: what else the hash covers, as text.
    """
    problems, previous = [], GENESIS
    for number, link in enumerate(links, 1):
        this = name.format(number)
        if link.id != number:
            problems.append(f"{this} is missing: the next one is numbered {link.id}")
            break
        if link.dataset not in datasets:
            problems.append(f"{this} is of a data set that is not registered")
        elif link.prev_hash != previous or link.hash != hash_of(link):
            problems.append(f"{this}{covers} was changed: the hash does not fit")
        previous = link.hash
    return problems


def _order(entries: Sequence[Entry]) -> list[str]:
    """Return violations of the order in one data set: each key is reserved, then ended once, at the same price."""
    problems: list[str] = []
    open_charges: dict[str, Entry] = {}
    spent: set[str] = set()
    for entry in entries:
        if entry.event == "reserve":
            wrong = entry.key in open_charges or entry.key in spent or entry.rho <= 0
            open_charges[entry.key] = entry
        else:
            charge = open_charges.pop(entry.key, None)
            wrong = charge is None or charge.rho != entry.rho
            spent |= {entry.key} if entry.event == "spent" else set()
        if wrong:
            problems.append(f"entry {entry.id} ({entry.event}) does not follow from those before it")
    return problems


@dataclass(frozen=True)
class ChainedRow:
    """A row of a chain, hashed with its predecessor's hash (GENESIS for the first); a kind of rows adds its columns."""

    id: int
    dataset: str
    created: str
    prev_hash: str
    hash: str


Row = TypeVar("Row", bound=ChainedRow)


def hash_row(row: ChainedRow) -> str:
    """Return the SHA-256 of a row without its own hash, as canonical JSON."""
    hashed: dict[str, Any] = {name: value for name, value in asdict(row).items() if name != "hash"}
    return hashlib.sha256(format_canonically(hashed).encode()).hexdigest()


def list_chain(connection: Connection, table: str, kind: type[Row], dataset: str | None = None) -> list[Row]:
    """Return the rows of a chain, or of one data set in it, oldest first; the table must exist."""
    columns = metadata.tables[table].c
    query = sa.select(*(columns[name] for name in kind.__dataclass_fields__)).order_by(columns.id)
    if dataset is not None:
        query = query.where(columns.dataset == dataset)
    return [kind(int(number), *values) for number, *values in connection.execute(query)]


def append_row(connection: Connection, table: str, row: ChainedRow) -> None:
    """Append a row to its chain, with its number and hashes; the transaction holds the ledger's lock."""
    chain = CHAINED_TABLES[table]
    count, head = connection.execute(sa.select(chain.c.rows, chain.c.head)).one()
    row = replace(row, id=int(count) + 1, prev_hash=str(head))
    values = {**asdict(row), "hash": hash_row(row)}
    connection.execute(metadata.tables[table].insert().values(**values))
    connection.execute(chain.update().values(rows=values["id"], head=values["hash"]))


def audit_chain(
    connection: Connection, table: str, rows: Sequence[ChainedRow], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return the problems in a chain's numbers, hashes and length, as sentences."""
    chain = CHAINED_TABLES[table]
    count, head = connection.execute(sa.select(chain.c.rows, chain.c.head)).one()
    problems = find_broken_link(rows, datasets, f"row {{}} of the {table}", hash_row)
    if len(rows) != count or (rows[-1].hash if rows else GENESIS) != head:
        problems.append(f"the ledger has {len(rows)} rows of {table}, but its own count and last hash say {count}")
    return problems


@dataclass(frozen=True)
class DatasetSummary:
    """The spending of one data set; epsilons are by its ``accountant``, at the cap's delta, rounded up.

    ``last_rho``: the price of the last charged run; None without one.
    """

    dataset: str
    cap: Guarantee
    cap_rho: Fraction
    rho: Fraction
    entries: int
    created: str
    accountant: CapAccountant
    last_rho: Fraction | None = None

    @property
    def use(self) -> str:
        """The used share of the cap, and how many more releases like the last one fit, as text."""
        return describe_use(self.rho, self.cap_rho, self.last_rho)

    @property
    def epsilon_words(self) -> str:
        """The spent part of the cap as an epsilon, beside the cap's own."""
        return describe_epsilon(self.epsilon, self.cap.epsilon, self.cap.delta)

    @property
    def epsilon(self) -> float:
        """The spent part of the cap, as an epsilon."""
        return convert_rho_to_epsilon(self.rho, self.cap.delta, self.accountant)

    @property
    def remaining_rho(self) -> Fraction:
        """The remaining part of the cap, in rho."""
        return max(self.cap_rho - self.rho, Fraction(0))

    @property
    def remaining_epsilon(self) -> float:
        """The remaining part of the cap, as an epsilon."""
        return convert_rho_to_epsilon(self.remaining_rho, self.cap.delta, self.accountant)


def summarize_dataset(dataset: Dataset, entries: Iterable[Entry]) -> DatasetSummary:
    """Return the summary of a data set from its entries."""
    history = list(entries)
    return DatasetSummary(
        dataset.name,
        dataset.cap,
        dataset.rho,
        sum_spent_rho(history),
        len(history),
        dataset.created,
        dataset.accountant,
        _price_last_run(history),
    )


def _price_last_run(history: Sequence[Entry]) -> Fraction | None:
    """Return the price (rho) of the last charged run; None without one."""
    for run in dict.fromkeys(entry.run for entry in reversed(history) if entry.event == "reserve"):
        paid = sum_spent_rho(entry for entry in history if entry.run == run)
        if paid > 0:
            return paid
    return None
