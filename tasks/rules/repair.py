"""Repair of all rows that break a rule: redraw them inside their codes, then change few codes.

Post-processing of released codes and public rules costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.rules.compiled_rules import CompiledRules

REDRAWS = 48
"""How often a row is redrawn inside its codes: a partly forbidden code also has allowed values.

A draw that is not needed costs nothing, and a row repaired by a draw takes no value from another row."""

ATTEMPTS = 12
"""Attempts for each number of attributes taken from other rows."""

BATCH_DRAWS = 2_048
"""Rows drawn together if fewer are left: each is drawn several times, and its first valid draw is taken.

Drawing a few rows takes as long as drawing a thousand.
"""

MAX_CHANGED = 3
"""Largest number of attributes taken from another row at once; after that, all attributes in rules are replaced."""

Codes = dict[str, NDArray[Any]]
Columns = dict[str, pa.Array]


@dataclass
class _Rows:
    """The rows of one batch during repair.

    ``wrong``: mask of the conditions that each row breaks, shape (conditions, rows); ``replacements``: places and new
    rows, which :meth:`settle` puts into ``columns`` all at once.
    """

    codes: Codes
    columns: Columns
    wrong: NDArray[np.bool_]
    replacements: list[tuple[NDArray[np.int64], Columns]] = field(default_factory=list)

    @property
    def broken(self) -> NDArray[np.int64]:
        """The rows that break a condition."""
        return np.flatnonzero(self.wrong.any(axis=0))

    def take(self, rows: NDArray[np.int64], codes: Codes, columns: Columns, wrong: NDArray[np.bool_]) -> None:
        """Put the valid ones of some new rows in the places ``rows``; the first of several for one place wins."""
        valid_rows = np.flatnonzero(~wrong.any(axis=0))
        places, first = np.unique(rows[valid_rows], return_index=True)
        valid_rows = valid_rows[first]
        if not places.size:
            return
        self.wrong[:, places] = False
        for a, new in codes.items():
            self.codes[a][places] = new[valid_rows]
        self.replacements.append((places, {name: array.take(pa.array(valid_rows)) for name, array in columns.items()}))

    def settle(self) -> Columns:
        """Return the columns with all new rows."""
        if self.replacements:
            source = np.arange(self.wrong.shape[1])
            end = source.size
            for places, _ in self.replacements:
                source[places] = np.arange(end, end + places.size)
                end += places.size
            chosen = pa.array(source)
            for name, array in self.columns.items():
                parts = [array, *(columns[name] for _, columns in self.replacements)]
                self.columns[name] = pa.concat_arrays(parts).take(chosen)
            self.replacements = []
        return self.columns


def repair_rows(
    codes: Codes,
    columns: Columns,
    make: Callable[[Codes], Columns],
    rules: CompiledRules,
    codecs: Sequence[Codec],
    make_valid_row: Callable[[Mapping[str, int]], Columns],
    rng: np.random.Generator,
    exact: Sequence[str] = (),
) -> Columns:
    """Return the rows of ``columns`` with few values changed in the rows that break a rule.

    codes: codes of every attribute, shape (rows,), from which ``make`` draws rows; changed in place.  make_valid_row:
    returns one row that keeps all rules and has the given codes of the attributes ``exact``, for a batch without such
    a row.  ``exact``: attributes with one value per code that do not change.
    """
    if not rules.conditions:
        return columns
    rows = _Rows(codes, columns, rules.find_broken_rows(columns))
    for places in _iterate_rounds(rows, REDRAWS):
        _redraw(rows, places, {a: c[places] for a, c in codes.items()}, make, rules)
    attributes = {name: codec.attribute for codec in codecs for name in codec.ranges()}
    needs = [tuple(dict.fromkeys(attributes[n] for n in c.needs)) for c in rules.conditions]
    needs = [tuple(a for a in names if a not in exact) for names in needs]
    for width in range(1, MAX_CHANGED + 1):
        for places in _iterate_rounds(rows, ATTEMPTS):
            _change(rows, places, width, needs, make, rules, rng)
    rows.settle()
    if rows.broken.size:
        _replace(rows, rules, make_valid_row, rng, exact)
    return rows.columns


def _iterate_rounds(rows: _Rows, draws: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of broken rows until each was yielded ``draws`` times, possibly several times in a round."""
    while draws and rows.broken.size:
        times = max(1, min(draws, BATCH_DRAWS // rows.broken.size))
        draws -= times
        yield np.tile(rows.broken, times)


def _redraw(
    rows: _Rows, places: NDArray[np.int64], codes: Codes, make: Callable[[Codes], Columns], rules: CompiledRules
) -> None:
    """Draw the rows at ``places`` from ``codes`` and keep the valid ones."""
    columns = make(codes)
    rows.take(places, codes, columns, rules.find_broken_rows(columns))


def _change(
    rows: _Rows,
    places: NDArray[np.int64],
    width: int,
    needs: Sequence[tuple[str, ...]],
    make: Callable[[Codes], Columns],
    rules: CompiledRules,
    rng: np.random.Generator,
) -> None:
    """Give each row at ``places`` a valid row's codes in ``width`` attributes of a condition that it breaks."""
    donors = np.flatnonzero(~rows.wrong.any(axis=0))
    if not donors.size:
        return
    codes = {a: c[places] for a, c in rows.codes.items()}
    first = rows.wrong[:, places].argmax(axis=0)
    for condition in np.unique(first):
        breaking_rows = np.flatnonzero(first == condition)
        donor_rows = donors[rng.integers(donors.size, size=breaking_rows.size)]
        names = needs[condition]
        for a in rng.permutation(len(names))[:width]:
            codes[names[a]][breaking_rows] = rows.codes[names[a]][donor_rows]
    _redraw(rows, places, codes, make, rules)


def _replace(
    rows: _Rows,
    rules: CompiledRules,
    make_valid_row: Callable[[Mapping[str, int]], Columns],
    rng: np.random.Generator,
    exact: Sequence[str],
) -> None:
    """Give every remaining row the ruled values of a valid row with the same ``exact`` codes."""
    wrong_rows, valid_rows = rows.broken, np.flatnonzero(~rows.wrong.any(axis=0))
    if not exact:
        _replace_by(rows, wrong_rows, valid_rows, rules, lambda: make_valid_row({}), rng)
        return
    codes = np.stack([rows.codes[a].astype(np.int64) for a in exact])
    for held_codes in np.unique(codes[:, wrong_rows], axis=1).T:
        same = (codes == held_codes[:, None]).all(axis=0)
        fixed_codes = {a: int(code) for a, code in zip(exact, held_codes, strict=True)}
        _replace_by(
            rows,
            wrong_rows[same[wrong_rows]],
            valid_rows[same[valid_rows]],
            rules,
            partial(make_valid_row, fixed_codes),
            rng,
        )


def _replace_by(
    rows: _Rows,
    wrong_rows: NDArray[np.int64],
    donors: NDArray[np.int64],
    rules: CompiledRules,
    make_valid_row: Callable[[], Columns],
    rng: np.random.Generator,
) -> None:
    """Give the rows ``wrong_rows`` the ruled values of random ``donors``, or of one valid row without donors."""
    names = rules.ruled_columns
    names |= {n for group in rules.groups if names & set(group) for n in group}
    places = np.arange(rows.wrong.shape[1])
    places[wrong_rows] = places.size + np.arange(wrong_rows.size)
    chosen = pa.array(places)
    source: Mapping[str, pa.Array] = rows.columns if donors.size else make_valid_row()
    donor_rows = pa.array(
        donors[rng.integers(donors.size, size=wrong_rows.size)] if donors.size else np.zeros(wrong_rows.size, int)
    )
    for name in names:
        rows.columns[name] = pa.concat_arrays([rows.columns[name], source[name].take(donor_rows)]).take(chosen)
