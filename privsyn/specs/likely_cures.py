"""Likely cures for a misread column, by the form of its odd values.

PRIVATE: a cure depends on private values.  It may be shown only where these may be, and quotes none of them except
usual texts for null.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.tasks.codecs.ordered import FRACTIONS

_WORDS = ("na", "n/a", "#n/a", "n.a.", "<na>", "nan", "nat", "null", "none", "nil", "nd", "missing", "unknown")
NULL_TEXTS = frozenset((*_WORDS, "-", "--", ".", "..", "?"))
"""Usual texts for a missing value, in lower case."""

LEADING_ZEROS = "leading zeros"
"""Entry among a column's repairs, for a cure: whole numbers are written with leading zeros."""

_SLASHED = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(\D.*)?")
_NAMED_MONTH = re.compile(r"\d{1,2}([ -])[A-Za-z]{3}\1(\d{4}|\d{2})(\D.*)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d(\D.*)?")
_ZONE = re.compile(r"\d{4}-\d\d?-\d\d?.*\d *(?:[A-Z]{3,5}|[A-Za-z]+/[A-Za-z_/]+|\[[^]]+\])")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_DECIMAL_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}([. ']\d{3})+),\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?")
_SIGN = re.compile(r"[$€£¥]\s*[-+]?[\d.,]+|[-+]?[\d.,]+\s*[$€£¥%]")


def suggest_cures(
    column: object, odd: Collection[str], repairs: Mapping[str, float], *, read_some: bool = False
) -> tuple[str, ...]:
    """Return cures as sentences without full stops, likeliest first; empty if none is known.

    ``column``: the column's part of the spec.  ``odd``: the column's unlisted or unreadable values, as text.
    ``repairs``: the repairs of more than a few values.  ``read_some``: whether other values were read as the spec says.
    """
    texts = [text.strip() for text in odd]
    nulls = sorted({text for text in texts if text.lower() in NULL_TEXTS})
    not_null = [text for text in texts if text and text.lower() not in NULL_TEXTS]
    kind = getattr(column, "kind", "")
    cures = []
    if kind in ("datetime", "date", "time"):
        cures = _suggest_moments(not_null, getattr(column, "format", ""), read_some=read_some)
    elif kind in ("integer", "number"):
        cures = _suggest_numbers(not_null)
    if isinstance(column, CategoricalColumn):
        cures += _suggest_categories(not_null, column)
    if nulls:
        listed = ", ".join(f'"{text}"' for text in nulls[:3])
        cures.append(f"{listed} may mean null: list it in `null_values` of a CSV file, and write `nullable: true`")
    return tuple(cures + [cure for repair, cure in _OTHERS.items() if repair in repairs])


_OTHERS = {
    LEADING_ZEROS: "Values have zeros in front, which a number loses: if they are codes, write `kind: categorical`",
    "below min": "Check `min` and its unit against the codebook",
    "above max": "Check `max` and its unit against the codebook",
    FRACTIONS: "Values have fractions: write `kind: number`",
    "null": "Write `nullable: true` if null can occur",
    "not UTF-8": "Name the file's encoding, such as `csv: {encoding: latin-1}`",
}


def _suggest_moments(texts: Collection[str], written: str, *, read_some: bool) -> list[str]:
    """Return cures for days and moments; ``written``: the spec's ``format``, empty for ISO 8601."""
    cures = []
    slashed = [match for match in map(_SLASHED.fullmatch, texts) if match]
    if read_some and (slashed if not written else any(map(_ISO.fullmatch, texts))):
        cures.append("Dates are written in more than one way, and a column has one `format`: store all as YYYY-MM-DD")
    elif slashed:
        cures.append(_suggest_date_order(slashed))
    named = next((match for match in map(_NAMED_MONTH.fullmatch, texts) if match), None)
    if named:
        year = "%Y" if len(named[2]) == 4 else "%y"
        cures.append(
            f'Months are names: write `format: "%d{named[1]}%b{named[1]}{year}{_suggest_time_of_day(named[3])}"`'
        )
    if any(map(_ZONE.fullmatch, texts)):
        cures.append("Moments name a time zone: write `zone:` with the zone of the released moments")
    if any(map(_NUMBER.fullmatch, texts)):
        cures.append(
            "Moments are stored as numbers, seconds or days since a start: store them as YYYY-MM-DD (in a spreadsheet, "
            "give their cells a date's format before it is saved)"
        )
    if any(map(_CLOCK.fullmatch, texts)):
        cures.append("Values are times of day: write `kind: time`")
    return cures


def _suggest_date_order(dates: Collection[re.Match[str]]) -> str:
    """Return the cure for dates that do not begin with the year: day first or month first, if the dates tell."""
    date = next(iter(dates))
    year, separator, time = "%Y" if len(date[4]) == 4 else "%y", date[2], _suggest_time_of_day(date[5])
    orders = {first: f'`format: "{separator.join((*first, year))}{time}"`' for first in (("%d", "%m"), ("%m", "%d"))}
    day_first, month_first = any(int(d[1]) > 12 for d in dates), any(int(d[3]) > 12 for d in dates)
    if day_first != month_first:
        order = orders["%d", "%m"] if day_first else orders["%m", "%d"]
        return f"Dates have the {'day' if day_first else 'month'} first: write {order}"
    return f"Dates do not begin with the year: write {orders['%d', '%m']} or {orders['%m', '%d']}"


def _suggest_time_of_day(text: str | None) -> str:
    match = re.match(r"(\D+)\d{1,2}:\d\d(:\d\d)?", text or "")
    return "" if match is None else match[1] + ("%H:%M:%S" if match[2] else "%H:%M")


def _suggest_numbers(texts: Collection[str]) -> list[str]:
    cures = []
    commas = [text for text in texts if _DECIMAL_COMMA.fullmatch(text)]
    thousands = [text for text in texts if _THOUSANDS.fullmatch(text)]
    if set(commas) - set(thousands):
        cures.append('Numbers have a decimal comma: write `csv: {decimal: ","}`')
    elif thousands:
        separator = next(c for c in thousands[0].lstrip("+-") if not c.isdigit())
        cures.append(f'Numbers have a separator of thousands: write `csv: {{thousands: "{separator}"}}`')
    if any(map(_SIGN.fullmatch, texts)):
        cures.append("Numbers have a sign of currency or per cent: store them without it")
    if any(map(_CLOCK.fullmatch, texts)):
        cures.append("Values are times of day: write `kind: time`")
    if any(map(_SLASHED.fullmatch, texts)):
        cures.append("Values are dates: write `kind: date`")
    return cures


def _suggest_categories(texts: Collection[str], column: CategoricalColumn) -> list[str]:
    categories = {str(value) for value in column.values}
    alike = {value.strip().casefold() for value in categories}
    zeros = {_suggest_unpadded(value) for value in categories}
    cures = []
    if any(text.casefold() in alike for text in texts):
        cures.append("Some differ from a listed value in capital letters or spaces only: list them as they are stored")
    elif any(_suggest_unpadded(text) in zeros for text in texts):
        cures.append("Some differ from a listed value in zeros or a decimal point only: list them as they are stored")
    elif texts:
        cures.append("List what the codebook has for this column, or say with `unlisted` where the rest goes")
    return cures


def _suggest_unpadded(text: str) -> str:
    """Return a number without leading zeros and zero decimals; other text unchanged."""
    return re.sub(r"\.0+$", "", text).lstrip("0") or "0" if _NUMBER.fullmatch(text) else text
