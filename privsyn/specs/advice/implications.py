"""Search for what follows from a value: values that never occur with it, or the one value of another column.

Values that never occur together are implications, columns that are null together, and dummies.  Columns determined by
one other column are parts of a number or date, bands, and lookup tables.

PRIVATE: a pure function of private rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, IntegerColumn, is_dummy
from privsyn.specs.advice.columns import (
    AdviceColumn,
    Finding,
    Floats,
    Mask,
    format_value,
    make_rule,
    name_in_rule,
    name_in_sentence,
    pair_columns,
)
from privsyn.specs.draft import TODO

LEAST_ROWS = 20
"""Smallest number of rows with a condition."""

LEAST_EXPECTED = 30.0
"""Smallest number of rows expected to meet both conditions if unrelated: none does with probability e^-30."""

WEAK = 0.5
"""An exclusion is weak if each condition holds in less than this share of the rows."""

LEAST_EXPECTED_OF_WEAK = 100.0
"""LEAST_EXPECTED for a weak exclusion, which slightly related columns often keep by chance."""

LEAST_SHARE = 0.001
"""Smallest share of rows with a condition."""

MOST_VALUES = 20
"""Largest number of values of a column whose values become conditions."""

LEAST_ZEROS = 0.01
"""Smallest share of zeros for a column's zero to become a condition."""

MOST_CELLS = 200_000_000
"""Largest product of rows and conditions; later columns are left out."""

_CHUNK = 4_096
"""Rows counted at a time."""

_SINGLE = "is"

CHANCE = -30.0
"""Logarithm of the largest probability that unrelated columns show a dependency, over all pairs together."""

MOST_BANDS = 8
"""Largest number of bands that an expression is written for."""

ODD_NULLS = 0.01
"""Largest share of rows in which only one of a column and its determinant is null."""

SCREENED = 1_000
"""Rows on which most pairs are rejected."""

_PARTS = (100, 10, 1_000, 10_000, 60, 3_600, 24, 7, 12, 4)
"""Divisors by which a whole number may be split into parts."""


@dataclass(frozen=True, eq=False)
class ColumnCondition:
    """PRIVATE: a condition on one column: is a value or not, is null or known, is 0 or not.

    ``rows``: mask of the rows with the condition; ``opposite``: index of the opposite condition (-1: none).
    """

    column: AdviceColumn
    form: str
    code: int
    rows: Mask
    opposite: int = -1

    @property
    def joins(self) -> bool:
        """Whether the condition names one of several values, which are then listed together."""
        return self.form == _SINGLE and self.column.size > 2


def list_conditions(columns: Iterable[AdviceColumn]) -> list[ColumnCondition]:
    """Return conditions on columns that enough rows meet and enough do not meet."""
    conditions: list[ColumnCondition] = []
    for column in columns:
        known = ~column.null
        if len(conditions) * len(known) > MOST_CELLS:
            break
        least = max(LEAST_ROWS, LEAST_SHARE * len(known))
        pairs: list[tuple[str, int, Mask, str, Mask]] = [("null", -1, column.null, "known", known)]
        if column.is_amount and column.size > 2 and column.is_ordered:
            zero = column.numbers == 0
            if zero.mean() >= LEAST_ZEROS:
                pairs.append(("zero", -1, zero, "not zero", known & ~zero))
        if column.is_discrete and column.size == 2:
            pairs.append(("is", 0, column.codes == 0, "is", column.codes == 1))
        elif column.is_discrete and column.size <= MOST_VALUES:
            pairs += [("is", v, column.codes == v, "is not", known & (column.codes != v)) for v in range(column.size)]
        for form, code, rows, other, rest in pairs:
            if min(rows.sum(), rest.sum()) >= least:
                at = len(conditions)
                conditions.append(ColumnCondition(column, form, code, rows, at + 1))
                conditions.append(ColumnCondition(column, other, 1 - code if other == "is" else code, rest, at))
    return conditions


class _Known:
    """Known implications and exclusions between conditions, closed under chains."""

    def __init__(self, conditions: Sequence[ColumnCondition], contained: Mask) -> None:
        """``contained``: whether all rows of one condition meet the other, shape (conditions, conditions)."""
        self._opposite, self._contained = [c.opposite for c in conditions], contained
        self._follows = np.eye(len(conditions), dtype=bool)
        self.excludes = np.zeros((len(conditions), len(conditions)), dtype=bool)

    def add(self, one: int, other: int) -> None:
        """Note that two conditions exclude each other, with all consequences."""
        self._exclude(self._follows[:, one], self._follows[:, other])
        for start, end in ((one, self._opposite[other]), (other, self._opposite[one])):
            if self._contained[start, end] and not self._follows[start, end]:
                before, after = self._follows[:, start].copy(), self._follows[end].copy()
                self._follows[np.ix_(before, after)] = True
                self._exclude(before, self.excludes[after].any(axis=0))

    def _exclude(self, some: Mask, others: Mask) -> None:
        self.excludes[np.ix_(some, others)] = True
        self.excludes[np.ix_(others, some)] = True


def find_exclusions(
    conditions: Sequence[ColumnCondition], known_pairs: Collection[frozenset[str]]
) -> list[tuple[ColumnCondition, ColumnCondition]]:
    """Return pairs of conditions that no row meets together, unlikely by chance, without consequences of other pairs.

    ``known_pairs``: pairs of columns whose relation is already stated; its consequences are left out.
    """
    if not conditions:
        return []
    both = _count_both(conditions)
    many = np.diag(both)
    opposite = np.array([c.opposite for c in conditions])
    known = many + many[opposite]
    one_way = both[:, opposite] * (many / known)[None, :]  # among rows with one condition and the other column known
    expected = np.minimum(one_way, one_way.T)
    shares = many / known
    weak = np.maximum(shares[:, None], shares[None, :]) < WEAK
    least = np.where(weak, LEAST_EXPECTED_OF_WEAK, LEAST_EXPECTED)
    known_relations = _Known(conditions, both == many[:, None])
    candidates = []
    for i, j in np.argwhere(np.triu(both == 0, 1)):
        one, other = conditions[i], conditions[j]
        if one.column is other.column or frozenset((one.column.name, other.column.name)) in known_pairs:
            known_relations.add(i, j)
        elif expected[i, j] >= least[i, j] and _is_telling(one, other):
            gap = abs(many[i] - many[conditions[j].opposite])
            candidates.append((gap, int(i), int(j)))
    kept = []
    for _, i, j in sorted(candidates):
        if not known_relations.excludes[i, j]:
            known_relations.add(i, j)
            kept.append((i, j))
    kept.sort(key=lambda pair: -expected[pair])
    return [(conditions[i], conditions[j]) for i, j in kept]


def _count_both(conditions: Sequence[ColumnCondition]) -> Floats:
    """Return the number of rows that meet each two conditions, shape (conditions, conditions)."""
    both = np.zeros((len(conditions), len(conditions)))
    for start in range(0, len(conditions[0].rows), _CHUNK):
        matrix = np.array([c.rows[start : start + _CHUNK] for c in conditions], np.float32)
        both += matrix @ matrix.T
    return both


def _is_telling(one: ColumnCondition, other: ColumnCondition) -> bool:
    """Return whether an exclusion is informative: two of many values often never meet, two "is not" say little."""
    if one.joins or other.joins:
        return not {_SINGLE, "zero"} >= {one.form, other.form}
    return {one.form, other.form} != {"is not"}


def describe_exclusions(exclusions: Iterable[tuple[ColumnCondition, ColumnCondition]], rows: int) -> Iterator[Finding]:
    """Yield one finding per pair of columns with exclusions."""
    by_pair: dict[tuple[str, str], list[tuple[ColumnCondition, ColumnCondition]]] = defaultdict(list)
    for one, other in exclusions:
        first, second = (other, one) if _rank(other) < _rank(one) else (one, other)
        by_pair[min((first.column.name, second.column.name), (second.column.name, first.column.name))].append(
            (first, second)
        )
    for pairs in by_pair.values():
        yield _describe_pair(pairs, rows)


def _rank(condition: ColumnCondition) -> int:
    """Return the rank of a condition for the first place in a sentence; lower comes first."""
    if condition.joins:
        return 0
    true = condition.form == _SINGLE and condition.column.values[condition.code] in (True, 1)
    return {"is": 1 if true else 3, "known": 2, "not zero": 2, "null": 4, "zero": 4, "is not": 5}[condition.form]


def _describe_pair(pairs: Sequence[tuple[ColumnCondition, ColumnCondition]], rows: int) -> Finding:
    """Return the finding of two columns; values that exclude the same condition are listed together."""
    grouped: dict[tuple[AdviceColumn, str, AdviceColumn, str, int], list[ColumnCondition]] = {}
    ends: dict[tuple[AdviceColumn, str, AdviceColumn, str, int], ColumnCondition] = {}
    for first, second in pairs:
        place = -1 if first.joins else first.code
        key = (first.column, f"{first.form} {place}", second.column, second.form, second.code)
        grouped.setdefault(key, []).append(first)
        ends[key] = second
    sentences, conditions = [], []
    for key, firsts in grouped.items():
        first, second = firsts[0], ends[key]
        support = sum(int(c.rows.sum()) for c in firsts)
        opposite = _describe_opposite(second)
        if (
            isinstance(first.column.described, BooleanColumn)
            and first.form == _SINGLE
            and first.column.values[first.code] is True
            and opposite == f"is {format_value(True)}"
            and isinstance(second.column.described, BooleanColumn)
        ):
            sentence = f"{name_in_sentence(first.column)} implies {name_in_sentence(second.column)}"
        else:
            sentence = f"where {_describe(firsts)}, {name_in_sentence(second.column)} {opposite}"
        sentences.append(f"{sentence} ({support:,} rows)")
        conditions.append(f"{_write(firsts)} and {_write([second])}")
    first = pairs[0][0]
    if len(pairs) == 2 and all({c.form for c in pair} == {"known", "null"} for pair in pairs):
        both = " and ".join(sorted(name_in_sentence(c.column) for c in pairs[0]))
        sentences = [f"{both} are null together ({np.count_nonzero(first.column.null):,} rows)"]
    text = conditions[0] if len(conditions) == 1 else " or ".join(f"({c})" for c in conditions)
    names = dict.fromkeys(c.column.name for pair in pairs for c in pair)
    sentence = "; ".join(sentences)
    return make_rule(
        "implication", tuple(names), f"{sentence[0].upper()}{sentence[1:]}, in all {rows:,} rows: a rule?", never=text
    )


def _describe(conditions: Sequence[ColumnCondition]) -> str:
    """Return conditions of one form on one column in words."""
    first = conditions[0]
    name = name_in_sentence(first.column)
    words = [format_value(first.column.values[c.code]) for c in conditions if c.code >= 0]
    match first.form:
        case "is" if len(words) > 1:
            return f"{name} is one of {', '.join(words)}"
        case "is" | "is not":
            return f"{name} {first.form} {words[0]}"
        case "zero" | "not zero":
            return f"{name} is {'' if first.form == 'zero' else 'not '}0"
    return f"{name} is {first.form}"


def _describe_opposite(condition: ColumnCondition) -> str:
    """Return in words that the column is known and the condition does not hold."""
    column = condition.column
    if condition.form == "is" and column.size == 2:
        return f"is {format_value(column.values[1 - condition.code])}"
    if condition.code >= 0:
        return f"{'is not' if condition.form == 'is' else 'is'} {format_value(column.values[condition.code])}"
    return {"null": "is known", "known": "is null", "zero": "is not 0", "not zero": "is 0"}[condition.form]


def _write(conditions: Sequence[ColumnCondition]) -> str:
    """Return conditions of one form on one column as an expression."""
    first = conditions[0]
    column = first.column
    name = name_in_rule(column)
    values = [format_value(column.values[c.code]) for c in conditions if c.code >= 0]
    match first.form:
        case "null":
            return f"{name} is null"
        case "known":
            return f"{name} is not null"
        case "zero":
            return f"{name} == 0"
        case "not zero":
            return f"{name} != 0"
    if isinstance(column.described, BooleanColumn):
        return name if (column.values[first.code] is True) == (first.form == "is") else f"not {name}"
    if len(values) > 1:
        return f"{name} in [{', '.join(values)}]"
    return f"{name} {'==' if first.form == 'is' else '!='} {values[0]}"


def find_dummies(columns: Sequence[AdviceColumn]) -> Iterator[Finding]:
    """Yield groups of three or more columns of 0 and 1, with exactly one or at most one 1 in every row."""
    dummies = [c for c in columns if is_dummy(c.described) and c.size == 2 and not c.null.any()]
    ones = {c.name: c.codes == next(i for i, value in enumerate(c.values) if value in (True, 1)) for c in dummies}
    left = sorted(dummies, key=lambda c: int(ones[c.name].sum()))  # a column that summarizes others comes last
    while left:
        group = _find_group(left, ones)
        left = [c for c in left[1:] if c not in group]
        if len(group) < 3:
            continue
        some = np.any([ones[c.name] for c in group], axis=0)
        names = [c.name for c in dummies if c in group]
        number = "exactly one" if some.all() else "at most one"
        listed = ", ".join(map(name_in_sentence, names))
        yield make_rule(
            "one_of",
            tuple(names),
            f"{number.capitalize()} of {listed} is 1 in all {len(some):,} rows: `one_of`?",
            one_of=names,
            **({} if some.all() else {"or_none": True}),
        )


def _find_group(columns: Sequence[AdviceColumn], ones: Mapping[str, Mask]) -> list[AdviceColumn]:
    """Return the first column with others that never overlap, all rows covered, or would if they were unrelated."""
    every, sure = [columns[0]], [columns[0]]
    for column in columns[1:]:
        if not any((ones[column.name] & ones[c.name]).any() for c in every):
            every.append(column)
        if all(_exclude(ones[column.name], ones[c.name]) for c in sure):
            sure.append(column)
    return every if np.any([ones[c.name] for c in every], axis=0).all() else sure


def _exclude(one: Mask, other: Mask) -> bool:
    return bool(one.sum() * other.sum() / len(one) >= LEAST_EXPECTED and not (one & other).any())


def find_parts(columns: Collection[AdviceColumn]) -> Iterator[Finding]:
    """Yield whole numbers that are a part of another number or of a date: its hundreds, its remainder, its year."""
    whole = [c for c in columns if isinstance(c.described, IntegerColumn) and c.size > 2]
    wholes, found = {id(c) for c in whole}, list[tuple[AdviceColumn, AdviceColumn, str]]()
    for source, part in pair_columns(columns):
        if id(part) not in wholes or not source.is_ordered or not _varies(part):
            continue
        if not source.is_moment and (id(source) not in wholes or source.size <= part.size):
            continue
        if source.size < part.size or not _are_null_together(source, part):
            continue
        known = ~(source.null | part.null)
        expression = _find_part(source, source.numbers[known], part.numbers[known]) if known.any() else None
        if expression is not None:
            found.append((source, part, expression))
    wholes_of = {(source.name, text): part for source, part, text in found}
    for source, part, expression in found:
        size = expression.rpartition(" ")[2]
        rest = wholes_of.get((source.name, f"{name_in_rule(source)} % {size}"))
        target, text = part, expression
        columns_of: tuple[AdviceColumn, ...] = (source, part)
        if "//" in expression and rest is not None:  # bins of the parts are finer, so compute the whole
            target, columns_of = source, (source, part, rest)
            text = f"{name_in_rule(part)} * {size} + {name_in_rule(rest)}"
        yield make_rule(
            "arithmetic",
            tuple(c.name for c in columns_of),
            f"{name_in_sentence(target)} is `{text}` {count_known(*columns_of)}: `derive`?",
            derive={target.name: text},
        )


def _find_part(source: AdviceColumn, whole: Floats, part: Floats) -> str | None:
    """Return the expression that computes ``part`` from ``whole``; None if there is none."""
    name = name_in_rule(source)
    if len(whole) > SCREENED and _find_part(source, whole[:SCREENED], part[:SCREENED]) is None:
        return None
    if source.is_moment:
        days = np.floor(whole).astype("datetime64[D]")
        month = days.astype("datetime64[M]")
        parts: dict[str, Callable[[], NDArray[Any]]] = {
            f"year({name})": lambda: days.astype("datetime64[Y]").astype(np.float64) + 1970,
            f"month({name})": lambda: month.astype(np.int64) % 12 + 1.0,
            f"day({name})": lambda: (days - month.astype("datetime64[D]")).astype(np.float64) + 1,
        }
    else:
        parts = {f"{name} // {k}": (lambda k=k: np.floor(whole / k)) for k in _PARTS}  # type: ignore[misc]
        parts |= {f"{name} % {k}": (lambda k=k: whole % k) for k in _PARTS if whole.max() >= 2 * k}  # type: ignore[misc]
    return next((text for text, compute in parts.items() if np.array_equal(compute(), part)), None)


def find_bands(columns: Collection[AdviceColumn]) -> Iterator[Finding]:
    """Yield categories cut from an ordered column at a few thresholds."""
    ordered = [c for c in columns if c.is_ordered and c.size > 2]
    banded = [c for c in columns if c.is_discrete and 2 <= c.size <= MOST_BANDS]
    for source in ordered:
        for band in banded:
            if band is not source and source.size >= 2 * band.size and _are_null_together(source, band):
                bands = _find_thresholds(source, band)
                if bands is not None:
                    yield _describe_bands(source, band, *bands)


def _find_thresholds(source: AdviceColumn, band: AdviceColumn) -> tuple[list[int], list[float]] | None:
    """Return the bands' codes from low to high and the lowest number of each but the first; None if not bands."""
    known = ~(source.null | band.null)
    numbers, codes = source.numbers[known], band.codes[known]
    in_order = codes[:SCREENED][np.argsort(numbers[:SCREENED], kind="stable")]
    if np.count_nonzero(np.diff(in_order)) != len(np.unique(in_order)) - 1:
        return None
    low, high = np.full(band.size, np.inf), np.full(band.size, -np.inf)
    np.minimum.at(low, codes, numbers)
    np.maximum.at(high, codes, numbers)
    order = np.argsort(low)
    if (low[order][1:] <= high[order][:-1]).any() or band.counts[: band.size].min() < LEAST_ROWS:
        return None
    return order.tolist(), low[order][1:].tolist()


def _describe_bands(source: AdviceColumn, band: AdviceColumn, order: list[int], lows: list[float]) -> Finding:
    name = name_in_rule(source)

    def write(low: float) -> str:
        if not source.is_moment:
            return format_value(low)
        return f"date('{np.datetime64(int(np.floor(low)), 'D')}')"

    if isinstance(band.described, BooleanColumn):
        sign = ">=" if band.values[order[1]] in (True, 1) else "<"
        expression = f"{name} {sign} {write(lows[0])}"
    else:
        words = [format_value(band.values[code]) for code in order]
        cuts = (f"{word} if {name} < {write(low)}" for word, low in zip(words, lows, strict=False))
        expression = " else ".join([*cuts, words[-1]])
    return make_rule(
        "band",
        (source.name, band.name),
        f"{name_in_sentence(band)} is cut from {name_in_sentence(source)} {count_known(source, band)}: `derive`, "
        "with the thresholds of its definition",
        derive={band.name: expression},
    )


def _are_null_together(one: AdviceColumn, other: AdviceColumn) -> bool:
    return bool((one.null ^ other.null).mean() <= ODD_NULLS)


def count_known(*columns: AdviceColumn) -> str:
    """Return the number of rows in which all columns are known, in words."""
    known = ~np.any([c.null for c in columns], axis=0)
    where = "" if known.all() else " in which all are known" if len(columns) > 2 else " in which both are known"
    return f"in all {np.count_nonzero(known):,} rows{where}"


def _varies(column: AdviceColumn, rows: Mask | None = None) -> bool:
    """Return whether at least LEAST_ROWS rows have the second most frequent value; ``rows``: a mask (None: all)."""
    counts = np.sort(column.counts if rows is None else np.bincount(column.codes[rows]))
    return len(counts) > 1 and int(counts[-2]) >= LEAST_ROWS


def find_dependencies(columns: Sequence[AdviceColumn]) -> list[tuple[AdviceColumn, AdviceColumn]]:
    """Return pairs (determinant, dependent) that hold in every row and are unlikely by chance.

    A determinant has fewer values than half the number of rows.
    """
    rows = len(columns[0].codes) if columns else 0
    discrete = [c for c in columns if c.is_discrete]
    determinants = [c for c in discrete if 2 <= c.size < rows / 2]
    dependents = [c for c in discrete if _varies(c)]
    limit = CHANCE - log(max(1, len(determinants) * len(dependents)))
    found = []
    for first in determinants:
        for second in dependents:
            if first is second or second.size > first.size:
                continue
            follows = _follows(first, second, SCREENED) and _follows(first, second, rows)
            if follows and _varies(second, ~first.null) and _compute_chance(first, second) < limit:
                found.append((first, second))
    return found


def _follows(first: AdviceColumn, second: AdviceColumn, rows: int, *, nulls: bool = False) -> bool:
    """Return whether each value of the first column has one value of the second, in the first ``rows`` rows.

    ``nulls``: treat null as a value; else rows with a null may be ignored if the columns are null together.
    """
    one, other = first.codes[:rows], second.codes[:rows]
    seen = np.empty(first.size + 1, np.int64)
    seen[one] = other
    if np.array_equal(seen[one], other):
        return True
    if nulls or not (first.null.any() or second.null.any()) or not _are_null_together(first, second):
        return False
    known = ~(first.null[:rows] | second.null[:rows])
    one, other = one[known], other[known]
    seen[one] = other
    return bool(np.array_equal(seen[one], other))


def _compute_chance(first: AdviceColumn, second: AdviceColumn) -> float:
    """Return the log probability that groups of the first column's sizes are pure if rows are drawn at random."""
    shares = second.counts[second.counts > 0] / len(second.codes)
    sizes, many = np.unique(first.counts[first.counts > 1], return_counts=True)
    largest = shares.max()
    rest = ((shares[None, :] / largest) ** sizes[:, None]).sum(axis=1)
    return float((many * (sizes * np.log(largest) + np.log(rest))).sum())


def reduce_dependencies(
    pairs: Sequence[tuple[AdviceColumn, AdviceColumn]],
) -> list[tuple[AdviceColumn, list[AdviceColumn], bool]]:
    """Return (determinant, direct dependents, whether each determines the other).

    One column represents all columns that determine each other.  Dependents through another column are left out.
    """
    follows = {(a.name, b.name) for a, b in pairs}
    place = {name: number for number, name in enumerate(dict.fromkeys(c.name for pair in pairs for c in pair))}
    representative: dict[str, AdviceColumn] = {}
    for a, b in pairs:
        if (b.name, a.name) in follows:
            first, second = sorted(
                (a, b), key=lambda c: (not isinstance(c.described, CategoricalColumn), place[c.name])
            )
            representative.setdefault(second.name, representative.get(first.name, first))
    direct: dict[tuple[str, bool], tuple[AdviceColumn, list[AdviceColumn], bool]] = {}
    for a, b in pairs:
        mutual = (b.name, a.name) in follows
        if a.name in representative or (b.name in representative and representative[b.name] is not a):
            continue
        through = {
            c
            for c in {pair[0].name for pair in pairs} - {a.name, b.name} - representative.keys()
            if (a.name, c) in follows and (c, b.name) in follows
        }
        if mutual or not through:
            direct.setdefault((a.name, mutual), (a, [], mutual))[1].append(b)
    return list(direct.values())


def describe_dependency(first: AdviceColumn, followers: Sequence[AdviceColumn], mutual: bool) -> Finding:
    """Return the finding that ``followers`` follow from ``first``."""
    to = [c.name for c in followers]
    names = " and ".join(
        [", ".join(map(name_in_sentence, to[:-1])), name_in_sentence(to[-1])] if to[1:] else [name_in_sentence(to[0])]
    )
    verb = ("follows" if len(to) == 1 else "follow") + f" from {name_in_sentence(first)}"
    back = ", and the other way round" if mutual else ""
    rows = len(first.codes)
    holds_with_null = all(_follows(first, c, rows, nulls=True) for c in followers)
    where = f"in all {rows:,} rows" if holds_with_null else count_known(first, *followers)
    return make_rule(
        "dependency",
        (first.name, *to),
        f"{names} {verb} {where}{back}: a `lookup`, if a public table says so",
        lookup={"from": first.name, "to": to[0] if len(to) == 1 else to, "table": TODO},
    )
