"""Search for columns determined by one other column: parts of a number or date, bands, and lookup tables.

PRIVATE: a pure function of private rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, IntegerColumn
from privsyn.specs.advice.columns import (
    AdviceColumn,
    Floats,
    Mask,
    format_value,
    name_in_rule,
    name_in_sentence,
    pair_columns,
)
from privsyn.specs.advice.finding import Finding, make_rule
from privsyn.specs.draft import TODO

LEAST_ROWS = 20
"""Smallest number of rows of a dependent column's second most frequent value."""

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
    if not _are_intervals(numbers[:SCREENED], codes[:SCREENED]):
        return None
    low, high = np.full(band.size, np.inf), np.full(band.size, -np.inf)
    np.minimum.at(low, codes, numbers)
    np.maximum.at(high, codes, numbers)
    order = np.argsort(low)
    if (low[order][1:] <= high[order][:-1]).any() or band.counts[: band.size].min() < LEAST_ROWS:
        return None
    return order.tolist(), low[order][1:].tolist()


def _are_intervals(numbers: Floats, codes: NDArray[np.int64]) -> bool:
    changes = np.count_nonzero(np.diff(codes[np.argsort(numbers, kind="stable")]))
    return bool(changes == len(np.unique(codes)) - 1)


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
    """Return whether the two columns are null together in nearly all rows."""
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
