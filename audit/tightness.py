"""How much of its budget a release really spends: worst-case neighbours found by search, and likelihood ratios.

A look of price rho is a Gaussian mechanism of mu = sqrt(2 rho) (Dong, Roth and Su 2022), and an attacker who knows two
neighbours sees all of it where they differ by the whole sensitivity.  So an audit that is worth its name comes near
mu, and one that passes mu has found a fault (tight audits of MST and AIM: arXiv 2405.10994).

- **attained**: from true answers, without noise: the root of the share of the price that the two tables' answers differ
  by.  It needs no statistics, and trusts the declared scale of the noise.
- **at least**: from the noise itself: the error rates of the likelihood-ratio test on the noisy tables, with exact
  intervals (audit/bounds.py).  It trusts nothing.

Looks are those that the release declares.  The neighbours are one person more, whose rows the search changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from audit.bounds import CONFIDENCE, bound_mu_at
from audit.lockstep import compute_log_likelihood_ratio
from audit.planted_faults import ChangeSteps
from audit.referee import Other, Relation, compare_answers
from audit.referee_cases import Case
from audit.referee_tables import NEW, Tables, insert, list_neighbours, shuffle
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.noise import NoiseSource, SeededNoise

Ratios = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Log-likelihood ratios of runs without and with the person, each of shape (runs,)."""

CERTAIN = 0.9999
"""Confidence of a bound that is called a fault: hundreds of bounds are computed."""

LOSS = 0.03
"""Share of mu that the confidence interval of a look may take; from it follows how many draws are made."""

MOST_DRAWS = 1_000_000
"""Draws of noise for one look and one table at most."""

_CHUNK = 10_000  # runs whose noise is drawn at once


class Effort(NamedTuple):
    """How long is searched: ``neighbours`` to begin with, ``rounds`` of changes, ``width`` of neighbours in each."""

    neighbours: int = 6
    rounds: int = 6
    width: int = 12


class Difference(NamedTuple):
    """What two tables differ by in one look: its queries, and the differences of their true answers."""

    queries: Sequence[Query]
    moved: Sequence[NDArray[np.int64]]

    @property
    def mu(self) -> float:
        """The mu that the look's price declares."""
        return math.sqrt(2 * float(sum_rho(self.queries)))

    @property
    def attained(self) -> float:
        """The mu of these two tables, under noise of the declared scale."""
        squares = (float((m**2).sum()) / q.sigma**2 for q, m in zip(self.queries, self.moved, strict=True))
        return math.sqrt(sum(squares))

    @property
    def largest_share(self) -> float:
        """The largest distance of one query's answers, as a share of its declared sensitivity."""
        shares = (float(np.linalg.norm(m)) / q.sensitivity for q, m in zip(self.queries, self.moved, strict=True))
        return max(shares, default=0.0)


@dataclass
class Search:
    """The worst neighbours that were found.

    ``pair``: the two tables that differ most in all looks together, ``whole``: what they differ by; ``looks``: look ->
    the largest difference of any two tables in it; ``shares``: look -> the largest share of a query's declared
    sensitivity; ``mu``: of the whole price; ``tried``: how many neighbours.
    """

    pair: tuple[Tables, Tables]
    mu: float
    whole: Difference = field(default_factory=lambda: Difference((), ()))
    looks: dict[str, Difference] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    tried: int = 0

    @property
    def attained(self) -> float:
        """The mu of the two tables that differ most, under noise of the declared scale."""
        return self.whole.attained


class Release:
    """Releases of one of two neighbouring tables of a case, as far as the last look.

    ``change``: what a planted fault makes of the steps.
    """

    def __init__(self, case: Case, noise: NoiseSource, change: ChangeSteps = lambda steps: steps) -> None:
        self.case, self.noise, self.change = case, noise, change

    def list_differences(self, base: Tables, others: Sequence[Tables]) -> list[dict[str, Difference]]:
        """Return for each other table look -> what it differs by, where ``base`` is released."""
        differences: list[dict[str, Difference]] = [{} for _ in others]

        def note(
            look: str, queries: Sequence[Query], released: noisy.Answers, answers: Sequence[noisy.Answers]
        ) -> None:
            for found, other in zip(differences, answers[1:], strict=True):
                found[look] = Difference(queries, [after - a for a, after in zip(answers[0], other, strict=True)])

        self._run(base, others, note)
        return differences

    def compute_ratio(self, base: Tables, other: Tables) -> dict[str, float]:
        """Return look -> ln P(its noisy table | other) - ln P(it | base), of one release of ``base``."""
        ratios: dict[str, float] = {}

        def note(
            look: str, queries: Sequence[Query], released: noisy.Answers, answers: Sequence[noisy.Answers]
        ) -> None:
            ratios[look] = float(compute_log_likelihood_ratio(released, answers[0], answers[1], queries))

        self._run(base, [other], note)
        return ratios

    def _run(self, base: Tables, others: Sequence[Tables], note) -> None:  # type: ignore[no-untyped-def]
        request = self.case.make_request(base)
        beside = [Other("", other, Relation.NEIGHBOUR) for other in others]
        steps = self.change(self.case.build(request))
        compare_answers(request, steps, self.case.open_rows, base, beside, self.noise, note)


def find_worst_neighbours(
    case: Case, effort: Effort, size: int = 1, seed: int = 0, change: ChangeSteps = lambda steps: steps
) -> Search:
    """Return the worst neighbours that a search finds, where noise follows from ``seed``.

    It begins with the referee's neighbours, one person more or fewer.  Then it changes the rows of the person who is
    more: a column takes another value, all rows become one of them, or rows of another person come in their
    place.  Of each round the table stays that differs most.  Rows of a neighbour are in another order.
    """
    rng, tables = np.random.default_rng(seed), case.make(case.few * size, seed)
    release = Release(case, SeededNoise(seed), change)
    mu = math.sqrt(2 * float(case.make_request(tables).total_rho))
    search = Search((tables, tables), mu)
    fewer = [other for _, other in list_neighbours(tables, case.structure, rng, effort.neighbours)]
    _judge(release, search, tables, fewer)
    rows = [draw_person(case, tables, rng) for _ in range(effort.width)]
    for further in range(effort.rounds, -1, -1):
        best = rows[_judge(release, search, tables, [shuffle(insert(tables, more, "end"), rng) for more in rows])]
        if further:
            rows = [best, *(change_rows(case, tables, best, rng) for _ in range(effort.width - 1))]
    return search


def _judge(release: Release, search: Search, base: Tables, others: Sequence[Tables]) -> int:
    """Enter what other tables differ by into the search, and return the place of the one that differs most."""
    wholes = []
    for other, differences in zip(others, release.list_differences(base, others), strict=True):
        search.tried += 1
        for look, difference in differences.items():
            known = search.looks.get(look)
            if known is None or difference.attained / difference.mu > known.attained / known.mu:
                search.looks[look] = difference
            search.shares[look] = max(search.shares.get(look, 0.0), difference.largest_share)
        each = list(differences.values())
        wholes.append(Difference([q for d in each for q in d.queries], [m for d in each for m in d.moved]))
        if wholes[-1].attained > search.attained:
            search.pair, search.whole = (base, other), wholes[-1]
    return int(np.argmax([whole.attained for whole in wholes]))


def draw_person(case: Case, tables: Tables, rng: np.random.Generator) -> Tables:
    """Return the rows of a new person, which are those of one, two or three who are there."""
    structure = case.structure
    if not structure.unit:
        places = rng.integers(0, tables[""].num_rows, structure.records)
        return {"": tables[""].take(pa.array(places))}
    like = rng.choice(structure.list_units(tables), int(rng.integers(1, 4)), replace=False).tolist()
    return structure.rename_unit(structure.take_rows(tables, like), NEW)


def change_rows(case: Case, tables: Tables, rows: Tables, rng: np.random.Generator) -> Tables:
    """Return the new person's rows, changed at random."""
    chance = rng.random()
    if chance < 0.15:
        return draw_person(case, tables, rng)
    names = [name for name, table in rows.items() if table.num_rows]
    name = str(rng.choice(names)) if names else ""
    if not names or chance < 0.3:
        drawn = draw_person(case, tables, rng)
        return {**rows, name: drawn[name]} if names else drawn
    if chance < 0.45 and name != case.structure.top:
        place, most = int(rng.integers(rows[name].num_rows)), max(rows[name].num_rows, case.structure.records)
        return {**rows, name: rows[name].take(pa.array(np.full(most, place)))}
    columns = [column for column in rows[name].column_names if column in case.value_columns]
    for column in rng.choice(columns, min(len(columns), int(rng.integers(1, 3))), replace=False) if columns else ():
        value = _draw_value(tables[name][str(column)], rng)
        every = value.take(pa.array(np.zeros(rows[name].num_rows, int)))
        rows = {**rows, name: rows[name].set_column(rows[name].column_names.index(str(column)), str(column), every)}
    return rows


def _draw_value(column: pa.ChunkedArray, rng: np.random.Generator) -> pa.Array:
    """Return a value of a column; of whole numbers and dates half of the time one that may be nobody's."""
    value = column.take(pa.array([int(rng.integers(len(column)))])).combine_chunks()
    if rng.random() < 0.5 and (pa.types.is_integer(column.type) or pa.types.is_date32(column.type)):
        whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
        numbers = column.drop_null().cast(whole).to_numpy()
        return pa.array([int(rng.integers(numbers.min(), numbers.max() + 1))], whole).cast(column.type)
    return value


# bounds from the noise


def draw_evidence(difference: Difference, noise: NoiseSource, runs: int) -> Ratios:
    """Return the likelihood ratio of one look, or of all looks together, in ``runs`` releases of each of two tables.

    The questions stay those that were recorded.  Noise is drawn by the release's own function, of the cells in which
    the tables differ: others have the same noise under both.
    """
    touched = [(q, m[m != 0]) for q, m in zip(difference.queries, difference.moved, strict=True) if m.any()]
    queries = [replace(query, cells=len(moved)) for query, moved in touched]
    nothing, moves = [np.zeros(len(m), np.int64) for _, m in touched], [m for _, m in touched]
    sides = [
        np.concatenate(
            [
                _draw_ratios(queries, truth, nothing, moves, noise, min(_CHUNK, runs - begin))
                for begin in range(0, runs, _CHUNK)
            ]
        )
        for truth in (nothing, moves)
    ]
    return sides[0], sides[1]


def _draw_ratios(
    queries: Sequence[Query],
    truth: noisy.Answers,
    without: noisy.Answers,
    with_person: noisy.Answers,
    noise: NoiseSource,
    runs: int,
) -> NDArray[np.float64]:
    """Return the likelihood ratio of each run, shape (runs,), where the true answers are ``truth``."""
    every = [replace(query, cells=query.cells * runs) for query in queries]
    drawn = noisy.draw_for_queries(every, lambda sizes: [noise.draw(sigma, cells) for sigma, cells in sizes])
    answers = [counts + draws.reshape(runs, -1) for counts, draws in zip(truth, drawn, strict=True)]
    return compute_log_likelihood_ratio(answers, without, with_person, queries)


def choose_runs(difference: Difference, loss: float = LOSS, most: int = MOST_DRAWS) -> int:
    """Return how many runs of each table leave the bound within ``loss`` of mu, as far as ``most`` draws allow.

    By the normal approximation: each of two error rates near 1/2 has a standard error of sqrt(pi / 2 / runs) in
    standard normal units.
    """
    z = float(stats.norm.ppf(1 - (1 - CONFIDENCE) / 2))
    runs = math.ceil((2 * z * math.sqrt(math.pi / 2) / (loss * difference.attained)) ** 2)
    cells = sum(int(np.count_nonzero(moved)) for moved in difference.moved)
    return max(min(runs, most // max(cells, 1)), 1_000)


def gather_ratios(release: Release, pair: tuple[Tables, Tables], runs: int) -> Ratios:
    """Return the likelihood ratio of all noisy tables in ``runs`` whole releases of each table of the pair.

    Every run asks anew: later looks follow from the noisy answers of earlier ones.
    """
    one, other = pair
    without = [sum(release.compute_ratio(one, other).values()) for _ in range(runs)]
    with_person = [-sum(release.compute_ratio(other, one).values()) for _ in range(runs)]
    return np.array(without), np.array(with_person)


def prove_mu(ratios: Ratios) -> float:
    """Return the mu that the ratios prove, with CONFIDENCE: both error rates of the test at ratio 0."""
    return bound_mu_at(*ratios, 0.0)


def is_fault(ratios: Ratios, mu: float) -> bool:
    """Return whether the ratios prove more than ``mu``."""
    return bound_mu_at(*ratios, 0.0, CERTAIN) > mu
