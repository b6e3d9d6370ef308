"""The questions that a release answers, each with an interval; ``Release`` inherits them.

A question may also be one line of text (``data_contracts.focus``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privsyn.answers.answer_table import FIGURES, SECONDS_NOTE, collect_labels, name_label
from privsyn.base.arguments import check_arguments
from privsyn.base.errors import RequestError
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.question_language import ParsedQuestion, parse_names, parse_question, strip_quotes
from privsyn.data_contracts.rule_language import drop_table_names
from privsyn.data_contracts.unicode import adopt_spellings

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.released_counts import ReleasedCounts
    from privsyn.answers.simulated import Kind, Progress, Simulated


LEVEL = 0.95


class Questions:
    """Statistics of the private table as far as the release knows them, each with an error bar.

    Every answer is a pandas table with one row an answer: its labels, ``estimate``, ``std_error``, ``low`` and ``high``
    (the interval at ``level``), and ``source``, which ``attrs["words"]`` explains.  A condition (``where``) is a text
    such as ``'age >= 65 and region in ["north", "east"]'``.  With ``population`` the interval is about the population,
    as if the private rows were a simple random sample of it.

    Privacy: reads nothing but the released folder; post-processing costs nothing.
    """

    folder: Path

    @property
    def _child_table(self) -> str:
        """The further table that the questions are about; empty for the first two tables, or the only one."""
        return ""

    def _show_simulation(self) -> AbstractContextManager[Progress]:
        """Return a context that ignores a simulation's progress."""
        return nullcontext(lambda done, total: None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy or pickle; cached properties are left out and read from the folder again."""
        kind = type(self)
        return {n: v for n, v in vars(self).items() if not isinstance(getattr(kind, n, None), cached_property)}

    @cached_property
    def _counts(self) -> ReleasedCounts:
        from privsyn.answers.released_counts import ReleasedCounts

        return ReleasedCounts.of(self.folder, self._child_table)

    @check_arguments
    def count(self, *by: str, where: str | None = None, level: float = LEVEL, population: bool = False) -> pd.DataFrame:
        """Return how many rows the private table has, by the levels of columns, where a condition holds.

        Estimates are unbiased, so they may be negative, and sums of estimates are estimates of sums.
        """
        from privsyn.answers.counted import answer_counts, answer_in_groups

        subject, level = f"rows{_describe_rows(by, where)}", _check_level(level)
        answer = partial(answer_counts, level=level)
        return answer_in_groups(self._counts, by, where, subject, answer, population=population)

    @check_arguments
    def share(
        self,
        what: str,
        by: str | Sequence[str] = (),
        where: str | None = None,
        level: float = LEVEL,
        population: bool = False,
    ) -> pd.DataFrame:
        """Return the share of rows that a condition holds for, or of each value of a column, in each group.

        ``what``: a condition, or the name of a boolean column, or of another column, whose values are all shown.
        """
        from privsyn.answers.cells import check_column, state_rule
        from privsyn.answers.counted import answer_in_groups, answer_shares

        groups, released = _list_names(by), self._counts
        subject = f"share of {what}{_describe_rows(groups, where)}"
        level = _check_level(level)
        column = what in released.language.types and bool(check_column(released, what))
        if what in groups:
            raise RequestError(f"the column {what!r} is both asked for and grouped by", "Name it once", "query.columns")
        if column and released.language.types[what] != "truth":
            return self._answer_shares_of_values(what, groups, where, level, subject, population)
        event = state_rule(released, f"`{what}`" if column else what)
        answer = partial(answer_shares, event=event, level=level)
        return answer_in_groups(released, groups, where, subject, answer, event=event, population=population)

    @check_arguments
    def mean(
        self,
        column: str,
        by: str | Sequence[str] = (),
        where: str | None = None,
        level: float = LEVEL,
        population: bool = False,
    ) -> pd.DataFrame:
        """Return the mean of a column of numbers (moments: seconds since 1970), nulls left out, in each group."""
        from privsyn.answers.counted import answer_in_groups, answer_means

        groups, level = _list_names(by), _check_level(level)
        subject = f"mean of {column}{_describe_rows(groups, where)}"
        answer, others = partial(answer_means, column=column, level=level), (column,)
        table = answer_in_groups(self._counts, groups, where, subject, answer, others=others, population=population)
        return self._note_moments(table, column)

    @check_arguments
    def quantile(
        self,
        column: str,
        probabilities: float | Sequence[float] = 0.5,
        by: str | Sequence[str] = (),
        where: str | None = None,
        level: float = LEVEL,
    ) -> pd.DataFrame:
        """Return quantiles of a column of numbers (moments: seconds since 1970), nulls left out, in each group."""
        from privsyn.answers.answer_table import answer_table
        from privsyn.answers.number_columns import answer_quantiles
        from privsyn.answers.question import Question
        from privsyn.answers.released_counts import describe_kept_rows, describe_known_totals

        wanted = list(probabilities) if isinstance(probabilities, Sequence) else [probabilities]
        question = Question.of(self._counts, _list_names(by), where, (column,))
        q = answer_quantiles(question, column, wanted, _check_level(level))
        labels = collect_labels(question.by, q.labels)
        subject = f"quantiles of {column}{_describe_rows(question.by, where)}"
        columns: dict[str, Sequence[Any]] = {**labels, "probability": q.probabilities}
        table = answer_table(columns, q.estimate, np.nan, q.low, q.high, q.sources, subject)
        table.attrs["words"] += describe_known_totals(question.released, question.columns)
        table.attrs["words"] += describe_kept_rows(question.released)
        return self._note_moments(table, column)

    @check_arguments
    def correlation(self, *columns: str, level: float = LEVEL) -> pd.DataFrame:
        """Return Pearson's correlation of every pair of the columns (by default, of all number columns)."""
        from privsyn.answers.answer_table import answer_table
        from privsyn.answers.cells import check_column
        from privsyn.answers.number_columns import answer_correlations, list_number_columns
        from privsyn.answers.released_counts import describe_kept_rows

        released = self._counts
        numbers = list_number_columns(released)
        for name in columns:
            if check_column(released, name) not in released.columns:
                raise RequestError(
                    f"the column {name!r} was not counted by itself, so its correlations are not known: rules compute "
                    "it, or it is one of several dummies",
                    "Name the columns that determine it",
                    "query.columns",
                )
            if name not in numbers:
                raise RequestError(f"the column {name!r} holds no numbers", "Name columns of numbers", "query.columns")
        if len(set(columns)) < len(columns):
            raise RequestError("names one column twice", "Name each column once", "query.columns")
        if len(columns) == 1:
            raise RequestError(
                "a correlation is of two columns of numbers", "Name two of them, or none for all pairs", "query.columns"
            )
        correlations = answer_correlations(released, columns or numbers, _check_level(level))
        estimate, error, low, high = np.array([c[2:6] for c in correlations], dtype=np.float64).reshape(-1, 4).T
        pairs = {"a": [c.a for c in correlations], "b": [c.b for c in correlations]}
        table = answer_table(pairs, estimate, error, low, high, [c.source for c in correlations], "correlation")
        table.attrs["words"] += describe_kept_rows(released)
        return table

    @check_arguments
    def transitions(self, column: str, level: float = LEVEL) -> pd.DataFrame:
        """Return the shares of a column's codes in a person's (or member's) next row, by the current row's code."""
        from privsyn.answers.answer_table import answer_table
        from privsyn.answers.persons import Transition, answer_transitions

        found = answer_transitions(self._counts, column, _check_level(level))
        t = {name: [getattr(each, name) for each in found] for name in Transition._fields}
        labels = {"kind of pair": t["kind"]} if any(t["kind"]) else {}
        labels |= {f"{column} of a row": t["first"], f"{column} of the next row": t["second"]}
        figures = t["estimate"], t["error"], t["low"], t["high"]
        table = answer_table(labels, *figures, t["source"], f"transitions of {column}")
        person = self._counts.request.spec.unit.one
        table.attrs["words"].append(f"Shares are of pairs of neighbouring rows; one pair of each {person} is counted.")
        return table

    @check_arguments
    def persons(
        self, what: str, by: str | Sequence[str] = (), *, share: bool = False, level: float = LEVEL
    ) -> pd.DataFrame:
        """Return how many persons (households) satisfy a statement about all of their rows.

        ``what``: ``"ever(job == 'none')"``, ``"always(..)"``, ``"count(job == 'none') > 2"``, ``"sum(visits) >= 10"``,
        ``"change(income) < 0"``, ``"spells(job == 'none') > 1"``; ``by``: constant columns; ``share``: as a share of
        the persons of each group.  Statements in the spec's ``workload`` were measured.  For other statements, only
        ``ever`` and ``always`` have bounds.  Needs linked rows.
        """
        from privsyn.answers.persons import answer_persons

        return answer_persons(self._counts, what, _list_names(by), _check_level(level), share=share)

    @check_arguments
    def regress(self, formula: str, kind: Kind | None = None, level: float = LEVEL) -> pd.DataFrame:
        """Return coefficients of ``"y ~ a + b"``: least squares if y is a number, logistic if y has two values.

        Text columns become dummies for each value but the first, moments become seconds since 1970.  Errors come from a
        simulation, which is slow the first time.
        """
        from privsyn.answers.simulated import answer_regression

        with self._show_simulation() as progress:
            simulated, chosen = answer_regression(self._counts, formula, kind, _check_level(level), progress)
        return _build_simulated_table(self._counts, simulated, "term", f"{chosen} regression {formula}")

    @check_arguments
    def estimate(
        self, function: Callable[[pd.DataFrame], Any], columns: Sequence[str] | None = (), level: float = LEVEL
    ) -> pd.DataFrame:
        """Return any figures of a table: ``function`` gets a pandas table of ``columns`` (by default, of all columns).

        It returns a number, or several as a mapping, a Series or a list.  Errors come from a simulation.  They are
        known only if every pair of the columns was measured, so name few.
        """
        from privsyn.answers.simulated import answer_function

        released = self._counts
        with self._show_simulation() as progress:
            simulated = answer_function(released, function, columns or released.columns, _check_level(level), progress)
        subject = f"estimate of {getattr(function, '__name__', 'a function')}"
        return _build_simulated_table(released, simulated, "figure", subject)

    def compare(self, earlier: Questions) -> ReleaseComparison:
        """Return the differences to another release, such as an earlier period: ``compare(other).count("sex")``."""
        if earlier._counts.manifest.run == self._counts.manifest.run:
            raise RequestError("is the same release", "Name another release", "query.other")
        return ReleaseComparison(self, earlier)

    def _answer_shares_of_values(
        self, column: str, groups: tuple[str, ...], where: str | None, level: float, subject: str, population: bool
    ) -> pd.DataFrame:
        import pandas as pd

        from privsyn.answers.counted import answer_in_groups, answer_shares, list_levels_within

        parts, words = [], []
        for label, event in list_levels_within(self._counts, column, groups, where):
            answer = partial(answer_shares, event=event, level=level)
            table = answer_in_groups(self._counts, groups, where, subject, answer, event=event, population=population)
            table.insert(len(groups), name_label(column), label)
            parts.append(table)
            words += table.attrs["words"]
        for part in parts:
            part.attrs = {}
        joined = pd.concat(parts, ignore_index=True)
        joined.attrs["about"], joined.attrs["words"] = subject, list(dict.fromkeys(words))
        return joined

    def _note_moments(self, table: pd.DataFrame, column: str) -> pd.DataFrame:
        """Return the table of a column's figures, with a note on the unit if the column holds dates or times."""
        if self._counts.language.types.get(column) == "moment":
            described = self._counts.request.spec.columns.get(column)
            table.attrs["kind"] = getattr(described, "kind", "datetime")
            table.attrs["words"] += [SECONDS_NOTE]
        return table


def _build_simulated_table(released: ReleasedCounts, simulated: Simulated, heading: str, subject: str) -> pd.DataFrame:
    from privsyn.answers.answer_table import answer_table
    from privsyn.answers.released_counts import describe_kept_rows

    sources = np.where(np.isnan(simulated.low), "not known", simulated.source).tolist()
    table = answer_table({heading: simulated.names}, *simulated[1:5], sources, subject)
    table.attrs["words"] += describe_kept_rows(released)
    if simulated.missing:
        pairs = ", ".join(f"{a} and {b}" for a, b in simulated.missing[:5])
        more = f" and {len(simulated.missing) - 5} more pairs" if len(simulated.missing) > 5 else ""
        table.attrs["words"].append(f"Not measured together: {pairs}{more}.")
    if simulated.why:
        table.attrs["words"].append(simulated.why)
    return table


def _list_names(by: str | Sequence[str]) -> tuple[str, ...]:
    return (by,) if isinstance(by, str) else tuple(by)


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise RequestError(f"{level:g} is not between 0 and 1", "Write 0.95 for intervals of 95 %", "query.level")
    return level


def _describe_rows(by: Sequence[str], where: str | None) -> str:
    return (f" by {', '.join(by)}" if by else "") + (f" where {where}" if where else "")


class ReleaseComparison:
    """Differences between two releases: the same questions to both, and the differences of their answers.

    The noise of the two releases is independent.  An interval of a difference follows from both intervals (MOVER, Zou
    and Donner 2008): low = d - sqrt((e1 - l1)^2 + (u2 - e2)^2), and high likewise.

    Privacy: reads only the two released folders.
    """

    def __init__(self, later: Questions, earlier: Questions) -> None:
        self._later, self._earlier = later, earlier

    @check_arguments
    def count(self, *by: str, where: str | None = None, level: float = 0.95) -> pd.DataFrame:
        """Return differences of counts, later less earlier; arguments as in ``Release.count``."""
        return self.answer(lambda r: r.count(*by, where=where, level=level))

    @check_arguments
    def share(
        self, what: str, by: str | Sequence[str] = (), where: str | None = None, level: float = 0.95
    ) -> pd.DataFrame:
        """Return differences of shares; arguments as in ``Release.share``."""
        return self.answer(lambda r: r.share(what, by=by, where=where, level=level))

    @check_arguments
    def mean(
        self, column: str, by: str | Sequence[str] = (), where: str | None = None, level: float = 0.95
    ) -> pd.DataFrame:
        """Return differences of means; arguments as in ``Release.mean``."""
        return self.answer(lambda r: r.mean(column, by=by, where=where, level=level))

    def answer(self, ask: Callable[[Questions], pd.DataFrame]) -> pd.DataFrame:
        """Return the differences of both releases' answers to ``ask``."""
        later, earlier = ask(self._later), ask(self._earlier)
        labels = [c for c in later.columns if c not in FIGURES]
        if labels:
            merged = later.merge(earlier, on=labels, suffixes=("_later", "_earlier"))
        else:
            merged = later.add_suffix("_later").join(earlier.add_suffix("_earlier"))
        if not len(merged):
            raise RequestError(
                "the two releases have no level in common here: compression combined other values",
                "Ask for fewer columns",
                "query.columns",
            )
        e1, e2 = merged["estimate_later"], merged["estimate_earlier"]
        low = np.hypot(e1 - merged["low_later"], merged["high_earlier"] - e2)
        high = np.hypot(merged["high_later"] - e1, e2 - merged["low_earlier"])
        merged["estimate"] = e1 - e2
        merged["std_error"] = np.hypot(merged["std_error_later"], merged["std_error_earlier"])
        merged["low"], merged["high"] = merged["estimate"] - low, merged["estimate"] + high
        sources = zip(merged["source_later"], merged["source_earlier"], strict=True)
        merged["source"] = [max(both, key=_ORDER.index) for both in sources]
        differences: Any = merged[[*labels, *FIGURES]]
        differences.attrs["about"] = f"difference of {later.attrs['about']}"
        words = dict.fromkeys((*later.attrs["words"], *earlier.attrs["words"]))
        only_in_one = len(later) + len(earlier) - 2 * len(merged)
        more = [f"{only_in_one} levels are in only one of the two releases and are left out."] if only_in_one else []
        if (only_in_one or set(merged["source"]) != {"measured"}) and (names := self._list_recut_columns()):
            more.append(f"The cells of {', '.join(names)} differ: each release answers by its own.")
        differences.attrs["words"] = [*words, *more]
        return differences

    def _list_recut_columns(self) -> list[str]:
        """Return the columns of both releases with cells between other edges, such as after a first look of each."""
        later, earlier = ({c.attribute: c for c in r._counts.encoding.codecs} for r in (self._later, self._earlier))
        ordered = [name for name, codec in later.items() if codec.in_order and name in earlier]
        return [name for name in ordered if later[name].labels() != earlier[name].labels()]


_WHOLE_NAME = re.compile(r"""`[^`]*`|"[^"]*"|'[^']*'""")

_ORDER = ("measured", "implied", "simulated", "bounded", "model", "not known")


def parse(text: str) -> ParsedQuestion:
    """Parse a question from a line of text.  Raises RequestError if it is not one."""
    try:
        return parse_question(text)
    except FieldError as error:
        field = "query.where" if error.place == ("where",) else "query.columns"
        raise RequestError(error.problem, error.cure, field) from None


def answer(release: Questions, text: str, level: float = 0.95, *, population: bool = False) -> pd.DataFrame:
    """Return the release's answer to a question.  Raises RequestError if the text is not a question it can answer."""
    text = adopt_spellings(text, release._counts.language.types)
    question = parse(drop_table_names(text, release._counts.tables))
    if population and question.what not in ("count", "share", "mean"):
        raise RequestError(
            f"{question.what}() has no interval about the population",
            "Ask for a count, a share or a mean",
            "query.population",
        )
    if question.about_persons:
        if population or (question.what == "share" and question.where):
            raise RequestError(
                "questions about persons take neither `population` nor a further condition",
                "Leave it out, or group by a constant column",
                "query.population" if population else "query.where",
            )
        is_share = question.what == "share"
        if not is_share and question.where is None and release._counts.request.spec.panel is not None:
            return release.count(*question.by, level=level)  # counts of linked rows are of persons
        statement = question.of if is_share else question.where or ""
        return release.persons(statement, question.by, share=is_share, level=level)
    if question.what == "count":
        by = (*question.by, *parse_names(question.of))
        return release.count(*by, where=question.where, level=level, population=population)
    if question.what == "share":
        what = strip_quotes(question.of) if _WHOLE_NAME.fullmatch(question.of) else question.of
        return release.share(what, by=question.by, where=question.where, level=level, population=population)
    if question.what in ("correlation", "regress", "transitions") and (question.by or question.where):
        raise RequestError(f"{question.what}() takes neither `by` nor `where`", "Leave them out", "query.columns")
    if question.what == "regress":
        return release.regress(question.of, level=level)
    parts = parse_names(question.of)
    if question.what == "correlation":
        return release.correlation(*parts, level=level)
    if not parts:
        raise RequestError(f"{question.what}() names no column", "Name one in the brackets", "query.columns")
    if question.what == "transitions":
        return release.transitions(parts[0], level=level)
    if question.what == "mean":
        return release.mean(parts[0], by=question.by, where=question.where, level=level, population=population)
    wanted = [0.5] if question.what == "median" or len(parts) == 1 else [_parse_number(part) for part in parts[1:]]
    return release.quantile(parts[0], wanted, by=question.by, where=question.where, level=level)


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{text!r} is not a number", "Write parts such as 0.9", "query.probabilities") from None


def parse_difference(later: Questions, earlier: Questions, text: str, level: float = 0.95) -> pd.DataFrame:
    """Return how a count, share or mean differs between two releases.  Raises RequestError as :func:`answer` does."""
    text = adopt_spellings(text, later._counts.language.types)
    question = parse(drop_table_names(text, later._counts.tables))
    if question.what not in ("count", "share", "mean", "persons"):
        raise RequestError(
            f"{question.what}() has no difference", "Ask for a count, a share or a mean", "query.columns"
        )
    return later.compare(earlier).answer(lambda release: answer(release, text, level))
