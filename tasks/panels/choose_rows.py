"""Which rows of a person are kept, and which one and its next one stand for them: by public rules, person by person.

A person's rows are put in order; a contiguous run of at most K of them is kept, and one of two neighbours in it is
drawn.  Both follow from a hash of the person's identifier and from the person's own rows, so that no other person
matters, nor the order in which rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.panels import Panel
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.kernels.streams import mix_bits
from privsyn.tasks.panels.gaps import open_order

RUN, PAIR = np.uint64(0x9E6C63D0876A9A47), np.uint64(0xD1342543DE82EF95)
LATER = np.uint64(0xA24BAED4963EE407)
"""Salts of the choices."""

Passes = Callable[[], Iterable[pa.RecordBatch]]
"""Starts a fresh pass over the private rows."""


@dataclass(frozen=True)
class KeptRuns:
    """The kept rows of some persons, person by person and in order; every array has shape (kept rows,).

    ``place``: of the row in the table; ``number``: where it stands in the order, in steps; ``first``: whether a person
    begins; ``rows`` and ``before``: the person's kept rows, and those before this one; ``drawn``: whether it is the one
    that stands for the person; ``pair``: whether it is the first one of the pair, where that is another (None: the
    drawn one is); ``later``: whether it is the member of a household that is drawn of those after the second one;
    ``without``: the places of a row each of the persons of whose rows none has a place in the order.
    """

    place: NDArray[np.int64]
    number: NDArray[np.int64]
    rows: NDArray[np.int64]
    before: NDArray[np.int64]
    drawn: NDArray[np.bool_]
    pair: NDArray[np.bool_] | None = None
    later: NDArray[np.bool_] | None = None
    without: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether a person begins with the row."""
        return self.before == 0

    def cast(self, to_type: Callable[[NDArray[np.int64]], Any]) -> KeptRuns:
        """Return the same with its whole numbers in the types that ``to_type`` gives them."""
        numbers = {name: to_type(getattr(self, name)) for name in ("place", "number", "rows", "before", "without")}
        return replace(self, **numbers)

    def find_pairs(self) -> NDArray[np.int64]:
        """Return the first kept row of each pair."""
        return np.flatnonzero((self.drawn if self.pair is None else self.pair) & (self.rows > 1))

    def find_later(self) -> NDArray[np.int64]:
        """Return the later member of each household of three and more; nothing of persons with rows."""
        none = np.zeros(len(self.rows), bool)
        return np.flatnonzero((none if self.later is None else self.later) & (self.rows > 2))

    def count_members(self, roles: int) -> NDArray[np.int64]:
        """Return how many members of each role each household has, shape (households, roles)."""
        household = np.cumsum(self.first) - 1
        counts = np.bincount(household * roles + self.number, minlength=int(self.first.sum()) * roles)
        return counts.reshape(-1, roles)

    def measure_gaps(self) -> NDArray[np.int64]:
        """Return how many steps after each drawn row the next one lies, -1 without one, shape (persons,)."""
        drawn = np.flatnonzero(self.drawn)
        after = np.minimum(drawn + 1, len(self.number) - 1)
        return np.where(self.rows[drawn] > 1, self.number[after] - self.number[drawn], -1)


def _narrow(values: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values in the smallest type of integers that holds them."""
    low, high = (np.min_scalar_type(int(value)) for value in (values.min(initial=0), values.max(initial=0)))
    return values.astype(np.result_type(low, high))


class RowsOfPersons:
    """Private rows of which several steps need the kept ones: these are chosen once, and remembered.

    About eleven bytes a row are held.  Called, it starts a fresh pass over all rows, as what it is made of does.
    """

    def __init__(self, batches: Callable[..., Iterable[pa.RecordBatch]]) -> None:
        """Take what starts a pass; nothing is read."""
        self._batches = batches
        self._chosen: tuple[EncodingPlan, list[KeptRuns]] | None = None

    def __call__(self, *repairs: Any) -> Iterable[pa.RecordBatch]:
        """Return the rows of a fresh pass."""
        return self._batches(*repairs)

    def iterate_runs(self, plan: EncodingPlan, group_rows: int, hash_rows: HashRows) -> Iterator[KeptRuns]:
        """Yield as :func:`iterate_runs` does, without a pass where the runs of this plan are remembered."""
        if self._chosen is None or self._chosen[0] is not plan:
            runs = iterate_runs(self._batches, plan, group_rows, hash_rows)
            self._chosen = plan, [group.cast(_narrow) for group in runs]
        for group in self._chosen[1]:
            yield group.cast(lambda values: values.astype(np.int64))


HashRows = Callable[[pa.RecordBatch], NDArray[np.uint64]]
"""A hash of each row: a function of the row alone."""


def iterate_runs(passes: Passes, plan: EncodingPlan, group_rows: int, hash_rows: HashRows) -> Iterator[KeptRuns]:
    """Yield the kept rows of every person, for groups of persons of about ``group_rows`` rows, which are held at once.

    ``hash_rows``: what decides between rows of a person at one place of the order.

    Rows without an identifier or without a place in the order are left out; persons who have no others are told where
    persons are a table of their own.  Which rows are kept does not depend on the groups.
    """
    groups = max(1, -(-sum(batch.num_rows for batch in passes()) // group_rows))
    panel = plan.get_order()[0]
    for group in range(groups):
        place, person, key, number, row_hash = _locate_rows(passes(), plan, group, groups, hash_rows)
        if not panel.above:
            yield _choose(place, person, key, number, row_hash, panel)
            continue
        placed = number >= 0
        runs = _choose(place[placed], person[placed], key[placed], number[placed], row_hash[placed], panel)
        yield replace(runs, without=_find_persons_without(place, person, row_hash, placed))


def _find_persons_without(
    place: NDArray[np.int64], person: NDArray[np.int32], row_hash: NDArray[np.uint64], placed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the place of one row of each person none of whose rows is ``placed``: that of the least hash."""
    lacking = np.flatnonzero(~placed)
    if not len(lacking):
        return lacking
    has_rows = np.zeros(int(person.max()) + 1, bool)
    has_rows[person[placed]] = True
    lacking = lacking[~has_rows[person[lacking]]]
    lacking = lacking[np.lexsort((row_hash[lacking], person[lacking]))]
    return place[lacking[np.flatnonzero(np.diff(person[lacking], prepend=-1))]]


def _locate_rows(
    batches: Iterable[pa.RecordBatch], plan: EncodingPlan, group: int, groups: int, hash_rows: HashRows
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
    """Return place, person's number and hash, place in the order and row hash of the rows of one group of persons.

    A row without a place in the order has -1, and is among them where persons are a table of their own.  Places count
    from the first one.
    """
    from privsyn.tasks.kernels.text_hash import hash_texts  # here: compiled code loads slowly

    (panel, _), order, start = plan.get_order(), open_order(plan), 0
    low = order.bounds[0]
    places, persons, keys = [np.empty(0, np.int64)], [pa.array([], pa.string())], [np.empty(0, np.uint64)]
    numbers, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for batch in batches:
        identifiers = to_keys(batch.column(panel.person), pa.string())
        has_step, steps = order.locate(batch.column(panel.order))
        steps = np.where(has_step, steps - low, -1)
        mine = np.asarray(identifiers.is_valid()) & (has_step | panel.above)
        key = hash_texts(identifiers)
        if groups > 1:
            mine = mine & (key % np.uint64(groups) == group)
        if mine.any():
            group_rows = batch.filter(pa.array(mine))
            persons.append(identifiers.filter(pa.array(mine)))
            keys.append(key[mine])
            numbers.append(steps[mine])
            hashes.append(hash_rows(group_rows))
            places.append(start + np.flatnonzero(mine))
        start += batch.num_rows
    person = pa.chunked_array(persons).dictionary_encode().combine_chunks().indices
    return tuple(map(np.concatenate, (places, [np.asarray(person)], keys, numbers, hashes)))  # type: ignore[return-value]


def draw_one_row_each(person: NDArray[np.int64], *, household: bool) -> NDArray[np.int64]:
    """Return the place of one row of each person, of rows person by person, by the rule of :func:`iterate_runs`.

    The last row of a person with several is never drawn, of a household's every one.
    """
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    rows = np.diff(np.append(begins, len(person))) - (not household)
    key = mix_bits(person[begins].astype(np.uint64) ^ (RUN if household else PAIR))
    return begins + (key % np.maximum(rows, 1).astype(np.uint64)).astype(np.int64)


def _sort(person: NDArray[np.int32], number: NDArray[np.int64], row_hash: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the rows person by person, in order, and by their hash at one place of it."""
    low, high = (int(number.min()), int(number.max())) if len(number) else (0, 0)
    if (int(person.max(initial=0)) + 1) * (high - low + 1) >= 1 << 62:
        return np.lexsort((row_hash, number, person))
    place = person.astype(np.int64) * (high - low + 1) + (number - low)
    order = np.argsort(place, kind="stable")
    tied = bool((np.diff(place[order]) == 0).any())
    return np.lexsort((row_hash, place)) if tied else order


def _choose(
    place: NDArray[np.int64],
    person: NDArray[np.int32],
    key: NDArray[np.uint64],
    number: NDArray[np.int64],
    row_hash: NDArray[np.uint64],
    panel: Panel,
) -> KeptRuns:
    """Return the kept rows of the persons whose rows these are; rows at one place of the order go by their hash.

    Of a household the first members are kept, in the order of their roles, and one of each role that has one at most.
    """
    order = _sort(person, number, row_hash)
    if panel.once:
        again = (np.diff(person[order], prepend=-1) == 0) & (np.diff(number[order], prepend=-1) == 0)
        order = order[~(again & np.isin(number[order], panel.once))]
    place, person, key, number = place[order], person[order], key[order], number[order]
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    person_sizes = np.diff(np.append(begins, len(person)))
    key = key[begins] if len(begins) else np.empty(0, np.uint64)
    kept_sizes = np.minimum(person_sizes, panel.most)
    start = (mix_bits(key ^ RUN) % (person_sizes - kept_sizes + 1).astype(np.uint64)).astype(np.int64) * (
        not panel.household
    )
    pair = (mix_bits(key ^ PAIR) % np.maximum(kept_sizes - 1, 1).astype(np.uint64)).astype(np.int64)
    rank = np.arange(len(person)) - np.repeat(begins, person_sizes)
    before = rank - np.repeat(start, person_sizes)
    rows = np.repeat(kept_sizes, person_sizes)
    inside = (before >= 0) & (before < rows)
    in_pair = before == np.repeat(pair, person_sizes)
    if not panel.household:
        return KeptRuns(place[inside], number[inside], rows[inside], before[inside], in_pair[inside])
    chosen_run = (mix_bits(key ^ RUN) % np.maximum(kept_sizes, 1).astype(np.uint64)).astype(np.int64)
    later = (mix_bits(key ^ LATER) % np.maximum(kept_sizes - 2, 1).astype(np.uint64)).astype(np.int64) + 2
    drawn, after = (before == np.repeat(which, person_sizes) for which in (chosen_run, later))
    kept_rows = place[inside], number[inside], rows[inside], before[inside]
    return KeptRuns(*kept_rows, drawn[inside], in_pair[inside], after[inside])
