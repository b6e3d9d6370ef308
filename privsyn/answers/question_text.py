"""Answers to questions that are one line of text each (``data_contracts.focus``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from privsyn.base.errors import RequestError
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.focus import ParsedQuestion, parse_names, parse_question

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.questions import Questions


def parse(text: str) -> ParsedQuestion:
    """Return the question in a line of text.  Raises RequestError if it is none."""
    try:
        return parse_question(text)
    except FieldError as error:
        field = "query.where" if error.place == ("where",) else "query.columns"
        raise RequestError(error.problem, error.cure, field) from None


def answer(release: Questions, text: str, level: float = 0.95, *, population: bool = False) -> pd.DataFrame:
    """Return the release's answer to a question.  Raises RequestError for what is no question to it."""
    asked = parse(text)
    if population and asked.what not in ("count", "share", "mean"):
        raise RequestError(
            f"{asked.what}() has no interval about the population",
            "Ask for a count, a share or a mean",
            "query.population",
        )
    if asked.about_persons:
        if population or (asked.what == "share" and asked.where):
            raise RequestError(
                "questions about persons take neither `population` nor a further condition",
                "Leave it out, or group by a constant column",
                "query.population" if population else "query.where",
            )
        is_share = asked.what == "share"
        if not is_share and asked.where is None and release._counts.request.spec.panel is not None:
            return release.count(*asked.by, level=level)  # counts of linked rows are of persons
        return release.persons(asked.of if is_share else asked.where or "", asked.by, share=is_share, level=level)
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
