"""The forecast of a release: its quality at each epsilon, from simulated releases of tables made from public data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from html import escape
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from privsyn.answers.counted import Question, answer_means
from privsyn.answers.released_counts import MemoryCounts
from privsyn.base.errors import RequestError
from privsyn.base.pictures import write_picture
from privsyn.data_contracts.columns import DateColumn, DatetimeColumn
from privsyn.data_contracts.columns.ordered_columns import RESOLUTION_SECONDS
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.linked_tables import list_constant_columns
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import ONE_ROW
from privsyn.data_contracts.rules import Rule, list_conditions, list_continued_expressions, list_expressions
from privsyn.engine.memory import MemoryRun, draw_from_seed, name_by_files
from privsyn.engine.plan import Plan
from privsyn.engine.progress import format_html_table, format_paragraph
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table, to_bins
from privsyn.evaluation.forecasts.stand_in import MadeUpTable, list_nullable
from privsyn.pipelines.added_looks import NO_VALUE_COUNTS
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.rung_steps import NO_RUNG_COUNTS
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch_with_numbers
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.error_sources import compute_dependency
from privsyn.tasks.metrics.marginal_distance import compute_l1_distances, draw_cliques
from privsyn.tasks.metrics.samples import find_equivalent_share, score_subsamples

EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Default epsilons of a forecast, beside the spec's own."""

LISTED = 30
"""Number of strongest pairs listed."""

MOST_ROWS = 1_000_000
MOST_EPSILONS, MOST_SEEDS = 12, 20
SURE, ROUGH = 0.02, 0.1
"""Largest shares of rows in a wrong bin for a column to be sure, and to be rough."""

SURE_SHIFT, ROUGH_SHIFT = 0.05, 0.25
"""Largest errors of a mean, in standard deviations of the column, for it to be sure, and to be rough."""

_COLORS = {"columns sure": "#009E73", "pairs measured": "#0072B2", "worth a random sample of": "#D55E00"}

READING_NOTE = (
    f"A column is sure if at most {SURE:.0%} of the rows are in a wrong bin and a number's mean is off by at most "
    f"{SURE_SHIFT:.0%} of a standard deviation. It is rough up to {ROUGH:.0%} and {ROUGH_SHIFT:.0%}. ± is the "
    "standard error of a mean. Relations seen from: the least strength of a measured pair, which is the share of rows "
    "to change for two independent columns. Codes: the number of values or intervals in which a column's "
    "relations are counted. Inside a code, no relation is measured."
)
"""How to read the tables."""

ASSUMPTION_NOTE = (
    "The noise of counts follows from the spec, whatever the table is. Errors of means and columns also depend on the "
    "columns' shapes. The measured pairs, their least strength and the random sample depend on the assumption, since "
    "they follow from relations between the private columns."
)
"""Which figures depend on the assumption."""

UNKNOWN_NOTE = (
    "Made-up rows have the relations of a typical table; yours may differ. A figure after ~ is a guess: 40 % of them "
    "are off by more than a factor of 1.5. The error of a mean is unknown for columns that may be null. Your table "
    "decides which pairs are measured; name a public table or an earlier release to forecast them."
)
"""What a forecast without a stand-in table does not know."""

UNMEASURED_NOTE = (
    "Not in the tables, since they are not measured and say nothing about the private table at any epsilon: "
)
"""Begins the sentence about columns that are drawn at random."""

Progress = Callable[[int, int], None]
"""Called with (number of releases done, total number)."""


@dataclass(frozen=True)
class ColumnForecast:
    """A column at one epsilon.

    ``noise``: standard deviation of the noise of a bin's count, in records.
    ``misplaced``: share of rows in a wrong bin, 0 to 1.
    ``mean_error``: standard error of the column's mean, in the column's unit, None without a mean or if unknown;
    ``in_days``: whether that unit is a day, as it is for dates and moments.
    ``codes``: number of codes in which the column's relations are counted, a mean over simulated releases, None if
    the column is counted alone.
    ``mean_shift``: error of the mean, in standard deviations of the assumed column, None without a mean.
    """

    column: str
    noise: float
    misplaced: float
    mean_error: float | None
    codes: float | None = None
    mean_shift: float | None = None
    in_days: bool = False

    @property
    def words(self) -> str:
        """``sure``, ``rough`` or ``lost``, by the worse of ``misplaced`` and ``mean_shift``."""
        shift = self.mean_shift or 0.0
        if self.misplaced <= SURE and shift <= SURE_SHIFT:
            return "sure"
        return "rough" if self.misplaced <= ROUGH and shift <= ROUGH_SHIFT else "lost"


@dataclass(frozen=True)
class RelationForecast:
    """A pair of columns at one epsilon, with its relation in the stand-in table.

    ``strength``: share of rows that must change for independence, in [0, 1); ``measured``: share of the simulated
    releases that measured it; ``codes``: number of codes of each column.
    """

    columns: tuple[str, str]
    strength: float
    measured: float
    codes: tuple[float, float]


@dataclass(frozen=True)
class AtEpsilon:
    """The forecast at one epsilon.

    ``pairs``: number of measured pairs of ``all_pairs``, a mean over simulated releases.
    ``seen``: strength that as many pairs reach as are measured, None if no pair is measured.
    ``sample``: size of an equally good random sample, as a share of the rows, None for fewer than two columns.
    ``relations``: the LISTED strongest compared pairs, strongest first, empty for made-up rows.
    """

    epsilon: float
    delta: float
    columns: tuple[ColumnForecast, ...]
    pairs: float
    all_pairs: int
    seen: float | None
    sample: float | None
    relations: tuple[RelationForecast, ...] = ()

    def of(self, words: str) -> int:
        """Return the number of columns that are ``sure``, ``rough`` or ``lost``."""
        return sum(column.words == words for column in self.columns)


@dataclass(frozen=True)
class Forecast:
    """The forecast of a release at several epsilons.

    ``rows``: the assumed public number of rows.
    ``assumption``: the stand-in for the private table.
    ``made_up``: whether the stand-in's rows are made up, so that figures about relations are guesses.
    ``unmeasured``: columns that are not measured.
    ``own``: the spec's epsilon.
    ``of``: unit of ``rows``: rows, persons or households.
    ``further_tables``: further table -> its forecast.

    Privacy: a function of the spec, that number and public tables; it has seen no private row.
    """

    rows: int
    assumption: str
    seeds: int
    at: tuple[AtEpsilon, ...]
    made_up: bool = False
    unmeasured: tuple[str, ...] = ()
    own: float = math.nan
    unit: str = "rows"
    further_tables: Mapping[str, Forecast] = field(default_factory=dict)

    @property
    def size(self) -> str:
        """The assumed number of rows, persons or households, as text: ``2,000 rows``."""
        return f"{self.rows:,} {self.unit.removesuffix('s') if self.rows == 1 else self.unit}"

    @property
    def words(self) -> tuple[str, ...]:
        """How to read the tables, the assumption, and the figures that depend on it."""
        simulated = f"Means over {self.seeds} simulated releases" if self.seeds > 1 else "One simulated release"
        fewer = f"; at other epsilons than the spec's, over {count_seeds_elsewhere(self.seeds)}"
        return (
            READING_NOTE,
            f"Assumed: {self.assumption}. {simulated} of {self.size}{fewer if self.seeds > 1 else ''}.",
            ASSUMPTION_NOTE,
            *((UNKNOWN_NOTE,) if self.made_up else ()),
            *((f"{UNMEASURED_NOTE}{', '.join(self.unmeasured)}.",) if self.unmeasured else ()),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the forecast, JSON-ready."""
        content = {n: value for n, value in asdict(self).items() if value or n not in ("unmeasured", "further_tables")}
        content["words"] = list(self.words)
        if self.further_tables:
            content["further_tables"] = {name: table.as_json() for name, table in self.further_tables.items()}
        return content

    def epsilon_rows(self) -> list[list[str]]:
        """Return a row of text per epsilon, under :data:`HEADINGS`; guesses begin with ``~``."""
        guess = "~" if self.made_up else ""
        return [
            [
                f"{a.epsilon:g}",
                *(str(a.of(word)) for word in ("sure", "rough", "lost")),
                guess + f"{a.pairs:,.1f}".removesuffix(".0") + f" of {a.all_pairs:,}" if a.all_pairs else "none",
                guess + ("none" if a.seen is None else format_percent(a.seen)),
                _format_codes(_compute_mean(c.codes for c in a.columns if c.codes is not None)),
                "-" if a.sample is None else guess + _describe_sample(a.sample),
            ]
            for a in self.at
        ]

    def column_rows(self) -> list[list[str]]:
        """Return a row of text per column: its share of misplaced rows and its mean's error at each epsilon."""
        rows = []
        for columns in zip(*(a.columns for a in self.at), strict=True):
            cells = [
                f"{format_percent(c.misplaced)} {c.words}"
                + ("" if c.codes is None else f", {_format_codes(c.codes)} codes")
                + ("" if c.mean_error is None else f"\n±{_format_two_digits(c.mean_error)}" + " days" * c.in_days)
                for c in columns
            ]
            rows.append([columns[0].column, *cells])
        return rows

    def column_headings(self) -> list[str]:
        """Return the headings of :meth:`column_rows`."""
        return ["column", *(f"epsilon {a.epsilon:g}" for a in self.at)]

    def relation_rows(self) -> list[list[str]]:
        """Return a row of text per listed pair at the spec's epsilon, under :data:`RELATION_HEADINGS`."""
        return [
            [
                " × ".join(r.columns),
                format_percent(r.strength),
                {0.0: "no", 1.0: "yes"}.get(r.measured, f"in {round(r.measured * self.seeds)} of {self.seeds}"),
                " × ".join(map(_format_codes, r.codes)),
            ]
            for r in self.asked.relations
        ]

    @property
    def asked(self) -> AtEpsilon:
        """The forecast at the spec's epsilon."""
        return next(a for a in self.at if a.epsilon == self.own)

    def plot(self, path: str | Path) -> None:
        """Draw the forecast into a .png or .svg file.  Raises RequestError if ``path`` has another ending or fails."""
        write_picture(build_chart(self), Path(path), "forecast.plot")

    def __repr__(self) -> str:
        return f"<Forecast of {self.rows:,} {self.unit} at epsilon {', '.join(f'{a.epsilon:g}' for a in self.at)}>"

    def _repr_html_(self) -> str:
        return (
            format_html_table(HEADINGS, self.epsilon_rows())
            + format_html_table(self.column_headings(), self.column_rows())
            + (format_html_table(RELATION_HEADINGS, self.relation_rows()) if self.asked.relations else "")
            + format_paragraph(*self.words)
            + "".join(
                f"<h4>{escape(name)}</h4>{table_forecast._repr_html_()}"
                for name, table_forecast in self.further_tables.items()
            )
        )


RELATION_HEADINGS = ("relation", "strength", "measured", "codes")

HEADINGS = (
    "epsilon",
    "columns sure",
    "rough",
    "lost",
    "pairs measured",
    "weakest relation detected",
    "codes a column",
    "as good as a random sample of",
)


def forecast(
    spec: ReleaseSpec,
    rows: int,
    *,
    epsilons: Sequence[float] | None = None,
    earlier: str | Path | None = None,
    public: str | Path | None = None,
    strength: float | None = None,
    seeds: int = 2,
    progress: Progress = lambda done, total: None,
) -> Forecast:
    """Return the forecast for a table of about ``rows`` rows; arguments and errors: see privsyn.forecast.

    Known totals are ignored, since a made-up table has other totals.
    """
    table_pairs = spec.table_pairs
    budget_share = Fraction(1, max(len(table_pairs), 1))
    unlinked, pairs = take_units_for_rows(spec), {n: take_units_for_rows(pair) for n, pair in table_pairs.items()}
    _check_number(rows, seeds)
    wanted = _check_epsilons(unlinked, epsilons, budget_share)
    further = spec.further_tables
    jobs_of_table = seeds + (len(wanted) - 1) * count_seeds_elsewhere(seeds)
    jobs = (1 + len(further)) * jobs_of_table
    simulate = partial(
        _simulate,
        rows=rows,
        wanted=wanted,
        seeds=seeds,
        earlier=earlier,
        public=public,
        strength=strength,
        progress=lambda done: progress(done, jobs),
    )
    planned = Request(unlinked, threads=1, budget_share=budget_share)
    first = simulate(planned)
    person = spec.unit.one
    words = f"{first.assumption}. {OF_UNITS[person]}" if spec.panel is not None else first.assumption
    words += ". This covers the first two tables, with their part of the budget" if further else ""
    words += f". Noise is by the accountant {spec.effective_accountant}"
    by_table = {}
    for number, name in enumerate(further, 1):
        parent_columns = frozenset(list_constant_columns(table_pairs[name]))
        request = replace(planned, spec=pairs[name], parent_columns=parent_columns)
        table_forecast = simulate(request, table=name, before=number * jobs_of_table)
        by_table[name] = replace(
            table_forecast, assumption=f"{table_forecast.assumption}. {describe_records(spec, name)}", unit=f"{person}s"
        )
    progress(jobs, jobs)
    unit = f"{person}s" if spec.panel is not None else "rows"
    return replace(first, assumption=words, unit=unit, further_tables=by_table)


def count_seeds_elsewhere(seeds: int) -> int:
    """Return the number of simulated releases at another epsilon than the spec's: half as many, at least 1."""
    return max(seeds // 2, 1)


def _simulate(
    request: Request,
    *,
    rows: int,
    wanted: Sequence[float],
    seeds: int,
    earlier: str | Path | None,
    public: str | Path | None,
    strength: float | None,
    progress: Callable[[int], None],
    table: str = "",
    before: int = 0,
) -> Forecast:
    """Return the forecast of one table with one row per person.

    ``table``: name of a further table (empty: the first tables); ``progress``: called with the number of simulated
    releases done; ``before``: number of simulated releases of earlier tables.
    """
    spec = request.spec
    # a public table covers the first two tables; rows of further tables are made up
    public_table = None if table and earlier is None else public
    if earlier is None and public_table is None and spec.has_ladder:
        request = replace(request, spec=spec.without_ladder())  # made-up rows fill the bounds
    at_spec_epsilon = _with_epsilon(request, spec.privacy.epsilon)
    stand_in = MadeUpTable.of(at_spec_epsilon, rows, earlier, public_table, strength, table)
    qualities: dict[float, list[ReleaseQuality]] = {epsilon: [] for epsilon in wanted}
    drawn = [stand_in.draw(seed) for seed in range(seeds)]
    several = [
        (epsilon, seed)
        for epsilon in wanted
        for seed in range(seeds if epsilon == spec.privacy.epsilon else count_seeds_elsewhere(seeds))
    ]
    scored: dict[int, Floats] = {}
    with threadpool_limits(1):  # matrices of a few hundred rows: more threads only wait for each other
        for done, (epsilon, seed) in enumerate(several):
            progress(before + done)
            made_up, prior, stored = drawn[seed]
            asked = _with_epsilon(request, epsilon, prior)
            qualities[epsilon].append(simulate_figures(asked, made_up, seed, stored, scored))
    unknown = list_nullable(spec) if stand_in.made_up else ()
    epsilons = [_forecast_at(spec, e, every, unknown, made_up=stand_in.made_up) for e, every in qualities.items()]
    unmeasured = tuple(name for name in spec.unmeasured_columns if name not in request.parent_columns)
    return Forecast(rows, stand_in.words, seeds, tuple(epsilons), stand_in.made_up, unmeasured, spec.privacy.epsilon)


OF_UNITS = {
    "person": "A row stands for a person, with one row counted; links between rows, and their cost, are left out",
    "household": "A row stands for a household, with one member counted; links between members, and their cost, are "
    "left out",
}
"""Meaning of a row of a forecast if the release links rows."""


def describe_records(spec: ReleaseSpec, table: str) -> str:
    """Return the meaning of a further table's records in a forecast or an estimate."""
    person = spec.unit.one
    return (
        f"Each {person} is assumed to have one record, a row of {table} with the columns above it; if fewer have one, "
        f"ask for that number of {person}s. It has its table's part of the budget"
    )


def take_units_for_rows(spec: ReleaseSpec) -> ReleaseSpec:
    """Return the spec for a made-up table with one row per person or household where the spec links rows.

    Totals, which a made-up table does not have, are left out; of linked rows also rules about several rows or other
    tables, and questions about persons.
    """
    changed: dict[str, Any] = {"totals": ()}
    if spec.panel is not None:
        changed |= {"order": None, "constant": (), "with_order": (), "once": (), "tables": {}}
        changed["unit"] = Unit(records_per_person=1)
        changed["workload"] = tuple(marginal for marginal in spec.workload if marginal.summary is None)
        changed["rules"] = tuple(rule for rule in spec.rules if _is_of_one_row(rule, spec))
    return spec.model_copy(update=changed)


def _is_of_one_row(rule: Rule, spec: ReleaseSpec) -> bool:
    """Return whether a rule makes sense without linked rows."""
    try:
        for read in (list_conditions, list_expressions, list_continued_expressions):
            read([rule], spec.released_columns, ONE_ROW)
    except FieldError:
        return False
    return True


def _with_epsilon(request: Request, epsilon: float, prior: CodeTable | None = None) -> Request:
    """Return the request at another epsilon, with a cap that allows it; ``prior``: replaces the spec's prior."""
    spec = request.spec
    privacy = Guarantee(epsilon=epsilon, delta=spec.privacy.delta)
    budget = Guarantee(epsilon=max(epsilon, spec.budget.epsilon), delta=spec.budget.delta)
    return replace(request, spec=spec.at_price(privacy, budget), prior_rows=prior)


def _check_number(rows: int, seeds: int) -> None:
    if not 1 <= rows <= MOST_ROWS:
        cure = f"Give about how many rows the table has, from public knowledge, 1 to {MOST_ROWS:,}"
        raise RequestError(f"{rows:,} rows cannot be simulated", cure, "forecast.rows")
    if not 1 <= seeds <= MOST_SEEDS:
        raise RequestError(f"{seeds} repetitions are not 1 to {MOST_SEEDS}", "Choose another number", "forecast.seeds")


def _check_epsilons(spec: ReleaseSpec, epsilons: Sequence[float] | None, budget_share: Fraction) -> tuple[float, ...]:
    """Return the epsilons, ascending.  Raises RequestError if one is not valid."""
    wanted = sorted({*(EPSILONS if epsilons is None else map(float, epsilons))} | {spec.privacy.epsilon})
    if len(wanted) > MOST_EPSILONS or not all(0 < e <= 1e6 for e in wanted):
        cure = f"Give at most {MOST_EPSILONS - 1} numbers above 0 and at most 1,000,000"
        raise RequestError("are not epsilons to simulate", cure, "forecast.epsilons")
    for epsilon in wanted:
        request = _with_epsilon(Request(spec, threads=1, budget_share=budget_share), epsilon)
        plan = Plan(request, build_steps(request))
        plan.check()
        plan.check_noise()
    return tuple(wanted)


def _forecast_at(
    spec: ReleaseSpec, epsilon: float, several: Sequence[ReleaseQuality], unknown: Sequence[str], *, made_up: bool
) -> AtEpsilon:
    first = several[0]
    errors = {n: _compute_known(f.mean_errors.get(n) for f in several) for n in first.noise if n not in unknown}
    in_days = {name for name, column in spec.columns.items() if isinstance(column, DateColumn | DatetimeColumn)}
    errors |= {n: error / RESOLUTION_SECONDS["day"] for n in in_days if (error := errors.get(n)) is not None}
    columns = tuple(
        ColumnForecast(
            name,
            _compute_mean(f.noise[name] for f in several),
            _compute_mean(f.misplaced[name] for f in several),
            errors.get(name),
            _compute_mean(f.codes[name] for f in several) if name in first.codes else None,
            float(np.sqrt(np.mean(np.square([f.mean_shifts[name] for f in several]))))
            if name in first.mean_shifts
            else None,
            in_days=name in in_days,
        )
        for name in first.noise
    )
    return AtEpsilon(
        epsilon,
        spec.privacy.delta,
        columns,
        _compute_mean(f.pairs for f in several),
        first.all_pairs,
        _compute_known(f.seen for f in several),
        _compute_known(f.sample for f in several),
        () if made_up else _list_relations(several),
    )


def _list_relations(several: Sequence[ReleaseQuality]) -> tuple[RelationForecast, ...]:
    """Return the LISTED strongest pairs over all simulated releases."""
    strengths: dict[Clique, list[float]] = {}
    for figures in several:
        for pair, strength in figures.strengths.items():
            strengths.setdefault(pair, []).append(strength)
    means = {pair: float(np.mean(values)) for pair, values in strengths.items()}
    return tuple(
        RelationForecast(
            (pair[0], pair[1]),
            means[pair],
            _compute_mean(pair in f.measured for f in several),
            (_compute_mean(f.codes[pair[0]] for f in several), _compute_mean(f.codes[pair[1]] for f in several)),
        )
        for pair in sorted(means, key=lambda pair: (-means[pair], pair))[:LISTED]
    )


def _compute_mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))


def _compute_known(values: Iterator[float | None]) -> float | None:
    """Return the geometric mean of the known positive values; None if there are none."""
    usable = [v for v in values if v is not None and math.isfinite(v) and v > 0]
    return float(np.exp(np.mean(np.log(usable)))) if usable else None


def format_percent(share: float) -> str:
    """Return a share as per cent, two significant digits."""
    return f"{100 * share:.2g} %" if share < 0.095 else f"{100 * share:.0f} %"


def _format_two_digits(value: float) -> str:
    """Return two significant digits, without an exponent for numbers of 100 and more."""
    return f"{value:.2g}" if value < 100 else f"{float(f'{value:.1e}'):,.0f}"


def _format_codes(codes: float) -> str:
    return f"{codes:,.1f}".removesuffix(".0")


def _describe_sample(share: float) -> str:
    if share <= SHARES[0] * 1.001:
        return f"at most {format_percent(SHARES[0])}"
    return "all rows" if share >= 1 else format_percent(share)


def build_chart(forecast: Forecast) -> dict[str, Any]:
    """Return a Vega-Lite chart of three shares, 0 to 100 %, over epsilon (logarithmic)."""
    import altair as alt  # here: it loads slowly

    rows: list[dict[str, Any]] = []
    for a in forecast.at:
        shares = {
            "columns sure": a.of("sure") / len(a.columns),
            "pairs measured": a.pairs / a.all_pairs if a.all_pairs else None,
            "worth a random sample of": a.sample,
        }
        rows += [{"epsilon": a.epsilon, "what": k, "share": v} for k, v in shares.items() if v is not None]
    sources = [name for name in _COLORS if any(row["what"] == name for row in rows)]
    epsilons = [a.epsilon for a in forecast.at]
    title = alt.Title(
        f"Forecast for about {forecast.size}",
        subtitle=textwrap.wrap(f"Assumed: {forecast.assumption}", 80),
        anchor="start",
    )
    lines = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=50), strokeWidth=2)
        .encode(
            x=alt.X(
                "epsilon:Q",
                scale=alt.Scale(type="log", nice=False, padding=12),
                axis=alt.Axis(values=epsilons, format="~g", title="epsilon"),
            ),
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", title=None)),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=sources, range=[_COLORS[name] for name in sources]),
                legend=alt.Legend(orient="bottom", title=None, symbolStrokeWidth=3, labelLimit=300),
            ),
        )
    )
    content: dict[str, Any] = lines.properties(width=440, height=260, title=title).to_dict()
    return content


Floats = NDArray[np.float64]

MOST_PAIRS = 300
"""Largest number of pairs compared; of more, a random choice."""

_LEVEL = 0.95
SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Sizes of random samples that a release is compared with, as shares of the table's rows."""


@dataclass(frozen=True)
class ReleaseQuality:
    """The quality of one release of a known table.

    ``noise``: column -> standard deviation of the noise of a bin's count, in records.
    ``misplaced``: column -> share of rows in a wrong bin.
    ``mean_errors``: column of numbers -> standard error of its mean; of dates and moments in seconds.
    ``mean_shifts``: ordered column -> error of its mean, in standard deviations.
    ``seen``: strength that as many pairs reach as were measured, None if no pair was measured.
    ``pairs``: number of measured pairs.
    ``sample``: size of an equally good random sample, as a share of the rows.
    ``codes``: column -> number of codes in counts of pairs.
    ``strengths``: compared or measured pair -> strength.
    ``measured``: the measured pairs.
    ``all_pairs``: number of pairs.

    A further table's quality leaves out the columns above and the pairs of such columns, except their codes.
    """

    noise: dict[str, float]
    misplaced: dict[str, float]
    mean_errors: dict[str, float]
    mean_shifts: dict[str, float]
    seen: float | None
    pairs: int
    sample: float | None
    codes: dict[str, int]
    strengths: dict[Clique, float]
    measured: frozenset[Clique]
    all_pairs: int


def find_threshold(strength: Floats, share: float) -> float | None:
    """Return the strength that a ``share`` of the pairs, 0 to 1, reaches; None for a share of 0."""
    if share == 0 or not len(strength):
        return None
    ranked, number = np.sort(strength)[::-1], max(round(share * len(strength)), 1)
    return float(np.sqrt(max(ranked[min(number, len(ranked) - 1)], 1e-4) * ranked[number - 1]))


def simulate_figures(
    request: Request,
    fine: CodeTable,
    seed: int,
    stored: pa.Table | None = None,
    scored: dict[int, Floats] | None = None,
) -> ReleaseQuality:
    """Return the quality of one release of ``fine``, rows in the request's fine codes, with seeded noise.

    ``stored``: the same rows with their values, to find full cells and frequent values (None: no look inside cells);
    ``scored``: cache of seed -> scores of random samples of its rows, which do not depend on epsilon.
    """
    order = request.column_order or tuple(request.spec.released_columns)
    unit = Unit(records_per_person=request.records)  # rows are independent of persons
    spec = request.spec.with_rows(seed=seed).with_columns(request.spec.columns, unit)
    seeded = replace(request, spec=spec, column_order=order)
    steps = build_steps(seeded)
    given: dict[str, dict[str, pa.Table]] = {"encode": {"encoded_rows": fine.to_arrow()}}
    if stored is None:
        given |= NO_RUNG_COUNTS | NO_VALUE_COUNTS
    else:
        batches = stored.to_batches()
        numbers = [encode_batch_with_numbers(batch, seeded.encoding, Repairs())[1] for batch in batches]
        given["encode"]["numbers"] = pa.Table.from_batches(numbers)
    outputs = MemoryRun(seeded, steps, draw_from_seed(seed), known_tables=given).run()
    released = MemoryCounts.of_run(seeded, name_by_files(steps, outputs))
    encoding, rows = released.request.encoding, outputs["decode"]["synthetic"]
    cut = stored is not None and released.request.cuts
    real = encode_table(batches, encoding).bins if cut else to_bins(fine, encoding.groups)
    synthetic = encode_table(rows.to_batches(), encoding).bins
    above = {*encoding.list_attributes_within(seeded.parent_columns)}
    singles = [(name,) for name in real.domain.attributes if name not in above]
    counted_alone = set(list_counted_alone(encoding.binning))
    related = [name for name in real.domain.attributes if name not in counted_alone]
    sizes = Domain.of({name: real.domain.size(name) for name in related})
    pairs = [pair for pair in draw_cliques(sizes, 2, MOST_PAIRS, 0) if not above.issuperset(pair)]
    all_pairs = comb(len(related), 2) - comb(len(above.intersection(related)), 2)
    inside = {pair for counts in released.joint for pair in combinations(counts.attributes, 2)}
    inside = {pair for pair in inside if not above.issuperset(pair)}
    distances = compute_l1_distances(real, synthetic, [*singles, *pairs], threads=1)
    order_of = {name: place for place, name in enumerate(related)}
    measured = sorted({tuple(sorted(pair, key=order_of.__getitem__)) for pair in inside if order_of.keys() >= {*pair}})
    compared = list(dict.fromkeys((*pairs, *measured)))
    strengths = dict(zip(compared, (compute_dependency(real, compared, threads=1) / 2).tolist(), strict=True))
    return ReleaseQuality(
        noise={name: noise for name, noise in _draw_noise(released).items() if name not in above},
        misplaced={name: float(d) / 2 for (name,), d in zip(singles, distances, strict=False)},
        mean_errors=_average_errors(released),
        mean_shifts={
            name: _compute_shift(codec, real.column(name), synthetic.column(name))
            for codec in encoding.codecs
            if (name := codec.attribute) not in above and codec.in_order
        },
        seen=find_threshold(np.array([strengths[pair] for pair in pairs]), len(measured) / max(all_pairs, 1)),
        pairs=len(measured),
        sample=_sample(
            real, pairs, float(distances[len(singles) :].mean()), {} if cut or scored is None else scored, seed
        )
        if pairs
        else None,
        codes={name: released.recode[name].size for name in related},
        strengths=strengths,
        measured=frozenset(measured),
        all_pairs=all_pairs,
    )


def _draw_noise(released: MemoryCounts) -> dict[str, float]:
    """Return column -> noise of a public bin's count, in records, summed over fine codes and pooled over looks."""
    noise = {}
    for name, measured in released.single.items():
        precision = sum(1 / counts.sigma**2 for counts in measured)
        groups = released.codecs[name].groups
        noise[name] = float(np.sqrt(len(groups) / (int(groups.max()) + 1) / precision))
    return noise


def _average_errors(released: MemoryCounts) -> dict[str, float]:
    """Return column -> standard error of its mean by the release's noisy counts."""
    errors = {}
    for name in released.columns:
        if released.reach[name] is not None and released.codecs[name].in_order:
            answer = answer_means(Question.of(released, (), None, (name,)), name, _LEVEL)
            errors[name] = float(answer.std_error[0]) if len(answer.std_error) else float("nan")
    return errors


def _compute_shift(codec: Codec, real: NDArray[Any], synthetic: NDArray[Any]) -> float:
    """Return the error of the mean of synthetic bins, in standard deviations of the real bins; 0 if it is unknown."""
    middles = codec.values(fine=False)
    if middles is None:
        return 0.0
    values, others = (middles[bins][~np.isnan(middles[bins])] for bins in (real, synthetic))
    deviation = float(values.std()) if len(values) and len(others) else 0.0
    return abs(float(others.mean() - values.mean())) / deviation if deviation else 0.0


def _sample(
    real: CodeTable, pairs: list[Clique], distance: float, scored: dict[int, Floats], seed: int
) -> float | None:
    """Return the share of rows whose random sample has the same L1 distance over pairs as the release."""
    if not real.rows:
        return None
    if seed not in scored:
        scores = {"l1": lambda table: float(compute_l1_distances(real, table, pairs, threads=1).mean())}
        scored[seed] = score_subsamples(scores, real, SHARES)["l1"]
    return find_equivalent_share(SHARES, scored[seed], distance, "lower")
