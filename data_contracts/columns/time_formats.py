"""How texts of dates are written, as described by ``format``, and time zones."""

from __future__ import annotations

import re
from typing import Literal
from zoneinfo import ZoneInfo

from privsyn.data_contracts.field_error import FieldError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""Prefixes of the English month names."""

_PARTS = {
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<short_year>[0-9]{2})",
    "m": r"(?P<month>[0-9]{1,2})",
    "d": r"(?P<day>[0-9]{1,2})",
    "b": r"(?P<month_name>[A-Za-z]{3})[A-Za-z]*\.?",
    "B": r"(?P<month_name>[A-Za-z]{3})[A-Za-z]*\.?",
    "H": r"(?P<hour>[0-9]{1,2})",
    "I": r"(?P<half_hour>[0-9]{1,2})",
    "p": r"(?P<half>[AaPp])\.?[Mm]\.?",
    "M": r"(?P<minute>[0-9]{2})",
    "S": r"(?P<second>[0-9]{2})",
    "f": r"(?P<fraction>[0-9]+)",
    "%": "%",
}

FORMAT = (
    "How texts, and numbers such as 20230623, are written: `%m/%d/%Y`. Parts: %Y %y %m %d %b %B %H %I %p %M %S %f; "
    "%y is 1969 to 2068, months are English. Empty: ISO 8601."
)
ZONE = "Time zone, such as Europe/Berlin, to which stored zones are converted. Required if the source has a zone."


def translate_to_pattern(format_: str) -> str:
    """Return the regular expression (RE2) for texts in this format, with groups named after the parts of a moment.

    Raises FieldError for unknown or repeated parts, or without a complete date.
    """
    pattern, seen = "", set()
    for literal, part in re.findall(r"([^%]+)|%(.?)", format_, flags=re.DOTALL):
        if literal:
            pattern += re.sub(r"\s+", r"\\s+", re.escape(literal).replace("\\ ", " "))
            continue
        if part not in _PARTS:
            raise FieldError(f"`format` has %{part}, which is not known", "Use " + " ".join(f"%{p}" for p in _PARTS))
        if part in seen:
            raise FieldError(f"`format` has %{part} twice", "Remove one")
        seen.add(part)
        pattern += _PARTS[part]
    for one, other in (("Y", "y"), ("m", "b"), ("m", "B"), ("b", "B"), ("H", "I")):
        if {one, other} <= seen:
            raise FieldError(f"`format` has both %{one} and %{other}", "Keep one")
    if not (seen & {"Y", "y"} and seen & {"m", "b", "B"} and "d" in seen):
        raise FieldError("`format` names no whole date", "Write one such as %m/%d/%Y")
    if ("I" in seen) != ("p" in seen):
        raise FieldError("`format` has %I or %p without the other", "Use %H for 24 hours")
    return f"^{pattern}$"


def count_digits(pattern: str) -> int:
    """Return the most digits of texts of a pattern; 0 if they may have other characters, or any number of digits."""
    parts = re.findall(r"\(\?P<\w+>\[0-9\]\{(?:\d+,)?(\d+)\}\)|(.)", pattern.removeprefix("^").removesuffix("$"))
    return 0 if any(other for _, other in parts) else sum(int(most) for most, _ in parts)


def find_finest_part(format_: str) -> Literal["", "day", "hour", "minute", "second"]:
    """Return the smallest part of a moment in texts of this format; empty without a format."""
    parts = set(re.findall(r"%(.)", format_, flags=re.DOTALL))
    if not parts:
        return ""
    if parts & {"S", "f"}:
        return "second"
    return "minute" if "M" in parts else "hour" if parts & {"H", "I"} else "day"


def check_zone(name: str) -> str:
    """Return the zone's name.  Raises FieldError if there is no such zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        raise _make_zone_error(name) from None
    except KeyError:
        raise _make_zone_error(name) from None
    return name


def _make_zone_error(name: str) -> FieldError:
    return FieldError(f"`zone` ({name[:80]!r}) is not a time zone", "Write one such as Europe/Berlin or UTC")
