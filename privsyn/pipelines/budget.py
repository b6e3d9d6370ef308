"""The budget table: every look of a release and its exact share of the budget.

Belongs here: all shares, and all arithmetic with them.  A release has exactly the looks of its budget table: the steps
of a look without a share are left out (:func:`privsyn.engine.step.fund`).

By default, for a table of one row a person: s = (.25, .02, .73) is the option ``split``.  Of d columns, o have an order
and l have rungs.

- rung_counts: s1 * .15 * l / d; one_way_marginals: the rest of s1.
- indif_scores: s2.
- trend_scores: s3 * .15 * 2 o / (o + d); value_counts: s3 * .02; measure_marginals: the rest of s3.
- triple_scores and measure_sets take a part of s3 first, where the spec looks for triples or names sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple, cast

from privsyn.data_contracts.mechanism_options import Adaptive, Aim, PrivSyn
from privsyn.engine.request import Request
from privsyn.tasks.codecs.cells import get_ordered
from privsyn.tasks.estimation.rungs import list_looked_at
from privsyn.tasks.knowledge.public_knowledge import COMPARED_WEIGHT
from privsyn.tasks.steps import measure_marginals

Budget = dict[str, Fraction]
"""Look -> its share of the request's budget."""

RUNGS_PART = Fraction(3, 20)
"""Part of a column's one-way budget for the first look at its rungs."""

SEARCH_PART = Fraction(1, 10)
"""Part of a measurement's budget for finding and measuring triples of the focus."""

SCORES_PART = Fraction(1, 4)
"""Part of SEARCH_PART for the triples' scores."""

TRANSITIONS, LINKED_ROWS, WITHOUT_ROWS = Fraction(3, 20), Fraction(1, 4), Fraction(1, 20)
"""Shares of transitions, of the counts of all rows, and of the counts of persons without rows."""

MST: Budget = dict.fromkeys(("one_way_marginals", "indif_scores", "measure_marginals"), Fraction(1, 3))
"""A third each, as in the paper."""

PRIVBAYES: Budget = {
    "one_way_marginals": Fraction(2, 10),
    "indif_scores": Fraction(1, 10),
    "measure_marginals": Fraction(7, 10),
}
"""0.3 for the network (here one-ways and scores) and 0.7 for its families, as in the paper."""

PRIOR_LEVELS: Budget = dict.fromkeys(
    ("one_way_marginals", "measure_marginals", "measure_groups", "measure_in_groups"), Fraction(1, 4)
)
"""A quarter each, as in the paper."""


def split_budget(request: Request) -> Budget:
    """Return the budget table of a request without table pairs; in a tree of tables, each pair has its own."""
    split: Callable[[Request], Budget]
    if request.spec.improves is not None:
        split = _split_improved
    elif request.spec.panel is not None:
        split = _split_linked
    else:
        split = _SPLITS[request.spec.mechanism.name]
    return {look: share for look, share in split(request).items() if share}


def _scale(budget: Mapping[str, Fraction], part: Fraction) -> Budget:
    return {look: share * part for look, share in budget.items()}


def _split_one_ways(request: Request, share: Fraction) -> Budget:
    """Return the shares of the first two looks; the first is in proportion to the number of columns with rungs."""
    counted = [codec for codec in request.encoding.codecs if codec.chances is None]
    part = RUNGS_PART * Fraction(len(list_looked_at(request.encoding)), max(len(counted), 1))
    return {"rung_counts": share * part, "one_way_marginals": share * (1 - part)}


def _split_pairs(request: Request, share: Fraction) -> Budget:
    """Return the shares of trends, the chosen marginals, and the counts of single values."""
    trends, options = share_trends(request), request.spec.mechanism
    counted = bool(request.encoding.wide_celled)
    values = Fraction(repr(options.split.values)) * counted if isinstance(options, PrivSyn) else Fraction(0)
    return {
        "trend_scores": share * trends,
        "measure_marginals": share * (1 - trends - values),
        "value_counts": share * values,
    }


def share_trends(request: Request) -> Fraction:
    """Return the part of the chosen marginals' budget that goes to trends; 0 if no trend is asked.

    If o of d columns have a trend, the part is 2 o / (o + d) of the option.  It is 0 with fewer than two ordered
    columns, or with a prior, which already gives the expected pairs.
    """
    options, binning = request.spec.mechanism, request.encoding.binning
    numbers = len(get_ordered(binning))
    if not isinstance(options, PrivSyn) or request.spec.prior is not None or numbers < 2:
        return Fraction(0)
    with_trend = numbers + len(request.public.two_valued)
    return Fraction(repr(options.split.trends)) * Fraction(2 * with_trend, with_trend + len(binning))


class SetParts(NamedTuple):
    """Parts of a measurement's budget: named sets, the triples' scores, and the sets found by the scores."""

    named: Fraction
    scores: Fraction
    found: Fraction

    @property
    def whole(self) -> Fraction:
        """The sum of the three parts."""
        return self.named + self.scores + self.found

    @property
    def named_of_measured(self) -> Fraction:
        """The named sets' part of the look at sets."""
        return self.named / (self.named + self.found)


def split_sets(request: Request) -> SetParts:
    """Return the parts of a measurement's budget for sets of columns; 0 for kinds that the spec lacks.  Public."""
    spec = request.spec
    search = SEARCH_PART if spec.looks_for_triples else Fraction(0)
    sizes = [(len(m.columns), m.weight) for m in spec.measured_sets]
    least = measure_marginals.compute_least_share([size for size, _ in sizes])
    sizes += [(3, COMPARED_WEIGHT)] * len(spec.compared_pairs)  # the two columns and their difference
    named = max(measure_marginals.compute_share(sizes, len(spec.measured_columns)), least) * (1 - search)
    return SetParts(named, search * SCORES_PART, search * (1 - SCORES_PART))


def _split_sets(request: Request, share: Fraction) -> Budget:
    parts = split_sets(request)
    return {"triple_scores": share * parts.scores, "measure_sets": share * (parts.named + parts.found)}


def _split_privsyn(request: Request, first: Fraction | None = None) -> Budget:
    """Return PrivSyn's table; ``first``: the first measurement's share (None: the third stage's whole share)."""
    one_ways, scores, measurement = cast(PrivSyn, request.spec.mechanism).split.exact()
    pairs = (measurement if first is None else first) * (1 - split_sets(request).whole)
    return {
        **_split_one_ways(request, one_ways),
        "indif_scores": scores,
        **_split_pairs(request, pairs),
        **_split_sets(request, measurement),
    }


def _split_adaptive(request: Request) -> Budget:
    options = cast(Adaptive, request.spec.mechanism)
    rounds, pairs = options.exact_rounds(), 1 - split_sets(request).whole
    budget = _split_privsyn(request, rounds.first)
    for n in range(2, options.rounds + 2):
        budget |= {f"residual_scores_{n}": rounds.scores * pairs, f"measure_again_{n}": rounds.measurement * pairs}
    return budget


def _split_aim(request: Request) -> Budget:
    options = cast(Aim, request.spec.mechanism)
    (asking, measuring), *further = rounds = options.exact_rounds()
    pairs = 1 - split_sets(request).whole
    budget = {
        **_split_one_ways(request, options.exact_one_ways()),
        **_split_sets(request, sum((measuring for _, measuring in rounds), Fraction(0))),
        "indif_scores": asking,
        "measure_marginals": measuring * pairs,
    }
    for n, (asking, measuring) in enumerate(further, start=2):
        budget |= {f"residual_scores_{n}": asking, f"measure_again_{n}": measuring * pairs}
    return budget


def _split_with_rungs(budget: Budget) -> Callable[[Request], Budget]:
    return lambda request: {**budget, **_split_one_ways(request, budget["one_way_marginals"])}


def _split_linked(request: Request) -> Budget:
    """Return the table of linked rows: PrivSyn's over one record per person, and the other counts of rows."""
    panel = request.encoding.get_order()[0]
    counts_rows = not (panel.household or request.has_parent_rows)  # they choose persons; rows that exist are kept
    linked = {
        "measure_transitions": TRANSITIONS * bool(request.encoding.following),
        "measure_rows": LINKED_ROWS * counts_rows,
        "measure_without_rows": WITHOUT_ROWS * bool(panel.above),
    }
    return {**_scale(_split_privsyn(request), 1 - sum(linked.values(), Fraction(0))), **linked}


def _split_improved(request: Request) -> Budget:
    """Return the table of pooled releases: the first release's table, and each later release's looks."""
    options, total = cast(PrivSyn, request.spec.mechanism), request.total_rho
    one_ways, scores, measurement = options.split.exact()
    sets, (first, *further) = split_sets(request).whole, (rho / total for rho in request.rounds)
    budget = _scale(_split_privsyn(request), first)
    for n, part in enumerate(further, 2):
        pairs = _split_pairs(request, measurement * part * (1 - sets))
        budget |= {
            f"one_way_marginals_{n}": one_ways * part,
            f"indif_scores_{n}": scores * part,
            f"trend_scores_{n}": pairs["trend_scores"],
            f"measure_more_{n}": pairs["measure_marginals"],
            f"value_counts_{n}": pairs["value_counts"],
            f"measure_sets_{n}": measurement * sets * part,
        }
    return budget


_SPLITS: dict[str, Callable[[Request], Budget]] = {
    "privsyn": _split_privsyn,
    "adaptive": _split_adaptive,
    "independent": lambda request: _split_one_ways(request, Fraction(1)),
    "mst": _split_with_rungs(MST),
    "privbayes": _split_with_rungs(PRIVBAYES),
    "aim": _split_aim,
    "prior": lambda request: PRIOR_LEVELS,
}
