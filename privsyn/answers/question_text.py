"""A question as one line of text: ``sex, income where age >= 65``, ``mean(age) by income``, ``share(happy) by sex``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from privsyn.base.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.questions import Questions

_QUOTED = r"""`[^`]*`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_WORD = re.compile(rf"({_QUOTED})|\b(where|by)\b", re.IGNORECASE)
_FUNCTION = re.compile(r"(count|share|mean|median|quantile|correlation|regress)\s*\((.*)\)\s*", re.DOTALL)
_COMMA = re.compile(rf"({_QUOTED}|[^,`\"']+)+")


class ParsedQuestion(NamedTuple):
    """A question: what is asked (``count`` unless it says more), of what, by which columns, where."""

    what: str
    of: str
    by: tuple[str, ...]
    where: str | None


def parse(text: str) -> ParsedQuestion:
    """Return the question in a line of text.  Raises RequestError if it is none."""
    places = [(m.start(), m.end(), m[2].lower()) for m in _WORD.finditer(text) if m[2]]
    where_at = next((p for p in places if p[2] == "where"), None)
    where = text[where_at[1] :].strip() if where_at else None
    head = text[: where_at[0]] if where_at else text
    by_at = next((p for p in places if p[2] == "by" and p[0] < len(head)), None)
    if where_at and not where:
        raise RequestError("has no condition after `where`", "Write one, such as `age >= 65`", "query.where")
    function = _FUNCTION.fullmatch((head[: by_at[0]] if by_at else head).strip())
    if function:
        return ParsedQuestion(function[1], function[2].strip(), parse_names(head[by_at[1] :]) if by_at else (), where)
    if by_at and head[: by_at[0]].strip().lower() not in ("", "count"):
        raise RequestError(
            f"{text[:200]!r} is no question",
            "Write columns (`sex, income where age >= 65`), or `mean(age) by sex`, `share(happy)`, `median(age)`, "
            "`quantile(age, 0.9)`, `correlation()`, `regress(income ~ age)`",
            "query.columns",
        )
    return ParsedQuestion("count", "", parse_names(head[by_at[1] :] if by_at else head), where)


def parse_names(text: str) -> tuple[str, ...]:
    """Return column names between commas; those with other signs stand in backticks."""
    found = [m.group(0).strip() for m in _COMMA.finditer(text)]
    return tuple(name.strip("`") for name in found if name)


def answer(release: Questions, text: str, level: float = 0.95, *, population: bool = False) -> pd.DataFrame:
    """Return the release's answer to a question.  Raises RequestError for what is no question to it."""
    asked = parse(text)
    if population and asked.what not in ("count", "share", "mean"):
        raise RequestError(
            f"{asked.what}() has no interval about the population",
            "Ask for a count, a share or a mean",
            "query.population",
        )
    if asked.what == "count":
        return release.count(*asked.by, *parse_names(asked.of), where=asked.where, level=level, population=population)
    if asked.what == "share":
        what = asked.of.strip("`") if re.fullmatch(r"`[^`]*`", asked.of) else asked.of
        return release.share(what, by=asked.by, where=asked.where, level=level, population=population)
    if asked.what in ("correlation", "regress"):
        if asked.by or asked.where:
            raise RequestError(f"{asked.what}() takes neither `by` nor `where`", "Leave them out", "query.columns")
        if asked.what == "regress":
            return release.regress(asked.of, level=level)
        return release.correlation(*parse_names(asked.of), level=level)
    parts = parse_names(asked.of)
    if not parts:
        raise RequestError(f"{asked.what}() names no column", "Name one in the brackets", "query.columns")
    if asked.what == "mean":
        return release.mean(parts[0], by=asked.by, where=asked.where, level=level, population=population)
    wanted = [0.5] if asked.what == "median" or len(parts) == 1 else [_parse_number(part) for part in parts[1:]]
    return release.quantile(parts[0], wanted, by=asked.by, where=asked.where, level=level)


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{text!r} is no number", "Write parts such as 0.9", "query.probabilities") from None


def parse_difference(later: Questions, earlier: Questions, text: str, level: float = 0.95) -> pd.DataFrame:
    """Return how the answer differs between two releases: of counts, shares and means.  Errors as :func:`answer`."""
    asked, compared = parse(text), later.compare(earlier)
    if asked.what == "count":
        return compared.count(*asked.by, *parse_names(asked.of), where=asked.where, level=level)
    if asked.what == "share":
        return compared.share(asked.of, by=asked.by, where=asked.where, level=level)
    if asked.what == "mean":
        return compared.mean("".join(parse_names(asked.of)), by=asked.by, where=asked.where, level=level)
    raise RequestError(f"{asked.what}() has no difference", "Ask for a count, a share or a mean", "query.columns")
