"""``spec draft`` of two or more tables: their keys and order, guessed from names, types and a dictionary.

No rows are read.  Each guess is marked CONFIRM: only the steward can say whether a column identifies a person.  If
names are ambiguous, the draft is refused with a question for the key, or for the table above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl, is_url
from privsyn.base.wording import mention
from privsyn.data_contracts.linked_tables import TABLE_NAME
from privsyn.sources.private_table import SupportsArrowStream
from privsyn.specs.dictionaries import Dictionary
from privsyn.specs.draft import (
    TODO,
    DraftedTable,
    describe_table,
    draft,
    format_comment,
    format_scalar,
    merge_facts,
    read_csv_options,
    read_public_dictionary,
    write_column,
    write_head,
    write_rules,
)

CONFIRM = "CONFIRM"

MOST_ROWS, MOST_MEMBERS = 10, 8
"""Largest number of rows per person, and of members per household, in a draft; chosen without reading rows."""

_IDENTIFIER = re.compile(r"(?i:(.*[_ -])?(id|key|uuid|guid|nr|no|number)|(p|h|hh|u)id)|.+I[dD]", re.DOTALL)
"""Names of columns that identify something."""

_HOUSEHOLD = re.compile(r"hid|.*(hhid|hh_|house|home|famil|dwelling).*", re.IGNORECASE | re.DOTALL)
_ROLE = re.compile(r".*(role|relat).*", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(r"(.*[_ -])?(date|day|week|month|quarter|year|time|t|wave|round|period|sequence|seq)", re.IGNORECASE)
_KEY_KINDS = ("integer", "categorical", "drop", None)


@dataclass(frozen=True)
class Drafted:
    """The YAML text of a draft, and its guessed fields, such as ``tables.visits.order``."""

    text: str
    guesses: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Named:
    """One of the tables, with its name in the spec and the dictionary's facts."""

    name: str
    table: DraftedTable
    codebook: Dictionary | None

    def kind(self, column: str) -> str | None:
        """Return the kind of a column by its type and the dictionary; None if unknown."""
        return merge_facts(column, self.table, self.codebook).kind

    def is_unique(self, column: str) -> bool:
        """Return whether the dictionary says that the column identifies a row of this table."""
        return self.codebook is not None and column in self.codebook.columns and self.codebook.columns[column].unique

    @property
    def singular(self) -> str:
        """The English singular of the name: ``visit`` of ``visits``."""
        lower = self.name.lower()
        return f"{lower[:-3]}y" if lower.endswith("ies") else lower.removesuffix("s")

    def identifies(self, column: str) -> bool:
        """Return whether a column is named like this table's key: ``visit``, ``visit_id`` or ``visitID``."""
        match = re.fullmatch(r"(.+?)[_ -]?(id|key|nr|no|number|uuid|guid)?", column.lower(), re.DOTALL)
        return match is not None and match[1] in (self.singular, self.name.lower())


def draft_any(
    data: str | Path | SupportsArrowStream | Mapping[str, Any],
    dictionary: Path | None = None,
    dataset: str | None = None,
    folder: Path | None = None,
    csv: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    of: str | None = None,
    header: bool = False,
    look: bool = False,
) -> Drafted:
    """Return a draft of one table, or of several, given by their names in the spec.

    ``key``: the column of the first two tables that says whose each row is.
    ``of``: the name of the table above, with one row per person or household (default: the first table).
    :func:`privsyn.specs.draft.draft` describes the other arguments.
    Each further table belongs to the last table before it whose key it has as a column.

    Raises RequestError as ``draft`` does, and if names do not determine the key or the table above.
    """
    if not isinstance(data, Mapping):
        if key is not None:
            raise RequestError("is of two tables, and one was named", "Leave it out", "draft_spec.key")
        if of is not None:
            raise RequestError("is of two tables, and one was named", "Leave it out", "draft_spec.of")
        return Drafted(draft(data, dictionary, dataset, folder, csv, header=header, look=look))
    _check_names(data)
    options = read_csv_options(csv or {})
    tables = []
    for name, place in data.items():
        table = describe_table(place, folder, options, header=header, look=look)
        table = table if table.stem else replace(table, title=f"{name} in memory")
        called = replace(table, stem=table.stem or name)
        codebook = None if dictionary is None else read_public_dictionary(Path(dictionary), data.values(), called)
        tables.append(_Named(name, table, codebook))
    first, second, *further = tables
    shared = find_key([first, second], key)
    above, below = _arrange([first, second], shared, of)
    codebook = _merge_dictionaries([table.codebook for table in (above, below, *further)])
    guesses: list[str] = []
    body = list(_write_tables(above, below, further, shared, codebook, guesses, key_is_given=key is not None))
    one, other = ("household", "person") if _is_of_households(above, shared) else ("person", "household")
    guesses.insert(0, "unit")
    lines = write_head(
        (above.table, below.table, *(table.table for table in further)),
        dataset,
        codebook,
        options,
        [
            f"# {CONFIRM} stands beside guesses from names and types: whether a column identifies a person is for",
            "# you to say. The promise is about a person, or a household with everybody in it, with all rows.",
            f"unit: {{{one}_id: {format_scalar(shared)}}}  # {CONFIRM}: or {other}_id, where a row of the table above "
            f"is a {other}",
        ],
        look=look,
    )
    return Drafted("\n".join([*lines, *body]) + "\n", tuple(guesses))


def make_table_name(place: str) -> str:
    """Return a valid name in the spec for a table at a path or URL, from its last part."""
    url = DataUrl.parse(place) if is_url(place) else None
    last = (url.table if url is not None else None) or re.split(r"[/\\]", place.partition("?")[0].rstrip("/"))[-1]
    name = re.sub(r"[^A-Za-z0-9]+", "_", last.split(".")[0]).strip("_")
    return (name if name[:1].isalpha() else f"t_{name}")[:48]


def _check_names(data: Mapping[str, Any]) -> None:
    if len(data) < 2:
        cure = "Name two tables or more, or draft the spec of one"
        raise RequestError(f"is {len(data)} tables", cure, "draft_spec.data")
    for name in data:
        if not isinstance(name, str) or TABLE_NAME.fullmatch(name) is None:
            problem = f"calls a table {str(name)[:60]!r}"
            cure = "Begin its name with a letter, with at most 48 letters, digits and _"
            raise RequestError(problem, cure, "draft_spec.data")


def find_key(tables: list[_Named], named_key: str | None) -> str:
    """Return the column of both tables that says whose each row is.

    Raises RequestError if ``named_key`` is not in both tables, names do not determine the key, or the tables share
    further names, which a spec does not allow.
    """
    first, second = tables
    both = f"{first.name} and {second.name}"
    shared = [column for column in first.table.types if column in second.table.types]
    listed = _list_names(shared)
    if not shared:
        raise RequestError(
            f"{both} have no column of the same name, so they have no key",
            "Give the key one name in both",
            "draft_spec.data",
        )
    if named_key is not None and named_key not in shared:
        raise RequestError(
            f"is not a column of both tables, which share {listed}", "Name one of them", "draft_spec.key"
        )
    possible = [c for c in shared if all(table.kind(c) in _KEY_KINDS for table in tables)]
    called = [c for c in possible if _IDENTIFIER.fullmatch(c) or any(t.identifies(c) or t.is_unique(c) for t in tables)]
    key = named_key if named_key is not None else called[0] if len(called) == 1 else None
    if key is None:
        raise RequestError(
            f"{both} share {listed}, and their names do not tell which is the key",
            "Name it with " + mention("draft_spec.key"),
            "draft_spec.data",
        )
    others = [column for column in shared if column != key]
    if others:
        raise RequestError(
            f"{both} share {_list_names(others)} beside the key {_list_names([key])}, and a release has one column of "
            "each name",
            "Rename it in one of them, or leave it out where it is the same",
            "draft_spec.data",
        )
    return key


def _list_names(columns: list[str]) -> str:
    return ", ".join(format_comment(column)[:60] for column in columns[:20])


def _arrange(tables: list[_Named], key: str, above: str | None) -> tuple[_Named, _Named]:
    """Return the table above and the table below.  Raises RequestError if names contradict their order."""
    first, second = tables
    if above is not None:
        if above not in (first.name, second.name):
            problem = f"is {above[:60]!r}, and the tables are {first.name} and {second.name}"
            raise RequestError(problem, "Name one of them", "draft_spec.of")
        return (first, second) if above == first.name else (second, first)
    evidence = [table for table in tables if table.is_unique(key)] or [t for t in tables if t.identifies(key)]
    evidence = evidence or [t for t in tables if _find_own_key(t, key, household=_is_of_households(t, key)) is None]
    if evidence == [second]:
        raise RequestError(
            f"{_list_names([key])} seems to identify a row of {second.name}, and {first.name} is named first, as "
            "the table with one row a person",
            "Say which one that is with " + mention("draft_spec.of"),
            "draft_spec.data",
        )
    return first, second


def _merge_dictionaries(codebooks: list[Dictionary | None]) -> Dictionary | None:
    """Return the dictionary's facts about all tables, from its facts about each table."""
    dictionaries = [each for each in codebooks if each is not None]
    if not dictionaries:
        return None
    rules = [rule for each in dictionaries for rule in each.rules]
    once = [rule for place, rule in enumerate(rules) if rule not in rules[:place]]
    nulls = next((each.null_values for each in dictionaries if each.null_values is not None), None)
    return Dictionary(
        dictionaries[0].name, {c: f for each in dictionaries for c, f in each.columns.items()}, nulls, once
    )


def _is_of_households(above: _Named, key: str) -> bool:
    return any(_HOUSEHOLD.fullmatch(name) is not None for name in (key, above.name))


def _write_tables(
    above: _Named,
    below: _Named,
    further: list[_Named],
    key: str,
    codebook: Dictionary | None,
    guesses: list[str],
    *,
    key_is_given: bool,
) -> Iterator[str]:
    """Yield the lines of ``tables`` and ``rules``; append the guessed fields to ``guesses``."""
    household = _is_of_households(above, key)
    person, rows = ("household", "members") if household else ("person", "rows")
    yield "tables:"
    yield f"  {above.name}:"
    yield f"    {above.table.line}"
    named = f"key: {format_scalar(key)}"
    why = f"it identifies a {person} and its {rows} below"
    yield f"    {named}" if key_is_given else _guess(guesses, f"{above.name}.key", named, why)
    yield from _write_columns(above, (key,))
    row_key = _find_own_key(below, key, further, household=household)
    yield from _write_rows(below, above, key, row_key, person, guesses, household=household)
    keys = {above.name: key, below.name: row_key}
    for table in further:
        upper = _find_above(table, [t for t in (above, below, *further) if t.name in keys], keys)
        upper_key = str(keys[upper.name])
        others = [each for each in (below, *further) if each is not table]
        keys[table.name] = _find_own_key(table, upper_key, others, household=False)
        words = person if upper is above else f"row of {upper.name}"
        row_key = keys[table.name]
        yield from _write_rows(table, upper, upper_key, row_key, words, guesses, household=False, person=key)
    if codebook is not None:
        types = {column for table in (above, below, *further) for column in table.table.types}
        for name in sorted({*codebook.columns} - types):
            yield f"# the dictionary also describes {format_comment(name)}, which no table has"
        yield from write_rules(codebook, {*above.table.types, *below.table.types} - {key, row_key})


def _guess(guesses: list[str], place: str, line: str, why: str) -> str:
    """Return a line marked as a guess, and note its place."""
    guesses.append(f"tables.{place}")
    return f"    {line}  # {CONFIRM}: {why}"


def _write_rows(
    below: _Named,
    above: _Named,
    key: str,
    row_key: str | None,
    one: str,
    guesses: list[str],
    *,
    household: bool,
    person: str | None = None,
) -> Iterator[str]:
    """Yield the lines of a table; ``one``: the noun for a row above; ``person``: of a further one, the persons' key."""
    rows = "members" if household else "rows"
    yield f"  {below.name}:"
    yield f"    {below.table.line}"
    yield _guess(guesses, f"{below.name}.of", f"of: {above.name}", f"{above.name} has one row a {one}")
    if row_key is not None:
        why = "it identifies a row; it is not released, and rows are numbered anew"
        yield _guess(guesses, f"{below.name}.key", f"key: {format_scalar(row_key)}", why)
    elif texts := sorted(_list_named_texts(below)):
        yield f"    # key: {format_scalar(texts[0])}, if each row has its own; it is not released then"
    order = _list_orders(below, {key, row_key}, household=household)
    if len(order) == 1:
        why = "the column of roles" if household else f"in this order rows of a {one} follow each other"
        yield _guess(guesses, f"{below.name}.order", f"order: {format_scalar(order[0])}", why)
    elif not order and person is not None:  # a further table may have no order
        yield f"    # order: COLUMN, optional: the order of rows within a {one}"
    else:
        wanted = "the column of members' roles" if household else f"the order of rows within a {one}"
        several = f": {_list_names(order)}?" if order else ""
        yield f"    order: {TODO}  # {wanted}{several}"
    most = MOST_MEMBERS if household else MOST_ROWS
    kept_rows = f"the first {most} by role are kept" if household else f"a run of {most} neighbours is kept"
    why = f"your public choice; of a {one} with more {rows}, {kept_rows}"
    yield _guess(guesses, f"{below.name}.max", f"max: {most}", why)
    yield from _write_columns(below, (key, row_key, person))


def _find_above(table: _Named, earlier: list[_Named], keys: Mapping[str, str | None]) -> _Named:
    """Return the last earlier table whose key the table has.  Raises RequestError if there is none."""
    tables_above = [each for each in earlier if keys[each.name] in table.table.types]
    if not tables_above:
        key_names = _list_names([key for key in keys.values() if key is not None])
        raise RequestError(
            f"{table.name} has no key of a table before it ({key_names}), so its rows belong to no table",
            "Give the key one name in both, or name the table above before it",
            "draft_spec.data",
        )
    return tables_above[-1]


def _write_columns(table: _Named, keys: tuple[str | None, ...]) -> Iterator[str]:
    yield "    columns:"
    for column in table.table.types:
        if column not in keys:
            for line in write_column(column, table.table, table.codebook):
                yield from (f"    {part}" for part in line.split("\n"))


def _find_own_key(below: _Named, key: str, others: Sequence[_Named] = (), *, household: bool) -> str | None:
    """Return the only column that is named like the table's own key, or that the dictionary calls unique; else None.

    A member of a household is a person, so any identifier may be the key.  Text named like the table alone (``drug`` of
    ``drugs``) may describe a row, so it is a key only if one of the ``others`` has it too.  No row is read.
    """
    possible = [column for column in below.table.types if column != key and below.kind(column) in _KEY_KINDS]
    unique = [column for column in possible if below.is_unique(column)]
    texts = _list_named_texts(below) - {column for other in others for column in other.table.types}
    named = [c for c in possible if c.lower() == "id" or (below.identifies(c) and c not in texts)]
    if household and not named:
        named = [column for column in possible if _IDENTIFIER.fullmatch(column) is not None]
    candidates = unique or named
    return candidates[0] if len(candidates) == 1 else None


def _list_named_texts(table: _Named) -> set[str]:
    """Return the text columns named like the table, without an identifier's ending."""
    return {
        column
        for column in table.table.types
        if column.lower() in (table.singular, table.name.lower()) and table.kind(column) in ("categorical", None)
    }


def _list_orders(below: _Named, keys: set[str | None], *, household: bool) -> list[str]:
    """Return the columns that may be the order: roles for members, else dates and moments, else names of times."""
    kinds = {column: below.kind(column) for column in below.table.types if column not in keys}
    if household:
        return [column for column, kind in kinds.items() if kind in ("categorical", None) and _ROLE.fullmatch(column)]
    dated = [column for column, kind in kinds.items() if kind in ("date", "datetime")]
    called = [column for column, kind in kinds.items() if kind in ("integer", None) and _TIME.fullmatch(column)]
    return dated or called
