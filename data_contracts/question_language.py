"""A question as one line of text: ``sex, income where age >= 65``, ``mean(age) by income``, ``share(happy) by sex``."""

from __future__ import annotations

import re
from typing import NamedTuple

from privsyn.data_contracts.field_error import FieldError

_QUOTED = r"""`[^`]*`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_WORD = re.compile(rf"({_QUOTED})|\b(where|by)\b", re.IGNORECASE)
_FUNCTION = re.compile(r"(count|share|mean|median|quantile|correlation|regress)\s*\((.*)\)\s*", re.DOTALL)
_COMMA = re.compile(rf"({_QUOTED}|[^,`\"']+)+")
_NAME = re.compile(r"`[^`]*`|\w+")


class ParsedQuestion(NamedTuple):
    """A question: what is asked (``count`` unless it says more), of what, by which columns, where."""

    what: str
    of: str
    by: tuple[str, ...]
    where: str | None

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The columns by whose values rows are to be counted, each once: those it is by, and those it is of."""
        return tuple(dict.fromkeys((*self.by, *(() if self._is_of_condition else parse_names(self.of)[: self._most]))))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that rows are to be told apart by."""
        return tuple(text for text in (self.of if self._is_of_condition else None, self.where) if text)

    @property
    def _is_of_condition(self) -> bool:
        return self.what == "share" and not _NAME.fullmatch(self.of)

    @property
    def _most(self) -> int | None:
        return 1 if self.what in ("mean", "median", "quantile") else None


def parse_question(text: str) -> ParsedQuestion:
    """Return the question in a line of text.  Raises FieldError, its place ``where`` or ``columns``, if it is none."""
    places = [(m.start(), m.end(), m[2].lower()) for m in _WORD.finditer(text) if m[2]]
    where_at = next((p for p in places if p[2] == "where"), None)
    where = text[where_at[1] :].strip() if where_at else None
    head = text[: where_at[0]] if where_at else text
    by_at = next((p for p in places if p[2] == "by" and p[0] < len(head)), None)
    if where_at and not where:
        raise FieldError("has no condition after `where`", "Write one, such as `age >= 65`", ("where",))
    function = _FUNCTION.fullmatch((head[: by_at[0]] if by_at else head).strip())
    if function:
        return ParsedQuestion(function[1], function[2].strip(), parse_names(head[by_at[1] :]) if by_at else (), where)
    if by_at and head[: by_at[0]].strip().lower() not in ("", "count"):
        raise FieldError(
            f"{text[:200]!r} is no question",
            "Write columns (`sex, income where age >= 65`), or `mean(age) by sex`, `share(happy)`, `median(age)`, "
            "`quantile(age, 0.9)`, `correlation()`, `regress(income ~ age)`",
            ("columns",),
        )
    return ParsedQuestion("count", "", parse_names(head[by_at[1] :] if by_at else head), where)


def parse_names(text: str) -> tuple[str, ...]:
    """Return column names between commas; those with other signs stand in backticks."""
    found = [m.group(0).strip() for m in _COMMA.finditer(text)]
    return tuple(name.strip("`") for name in found if name)
