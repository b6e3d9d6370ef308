"""Marginals chosen without a look at the data: all pairs, PriView's covering designs, and random views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, Step, fund
from privsyn.evaluation.comparison.method import MethodInput, MethodResult, Steps
from privsyn.extras.papers.noise_variants import vary_paper
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS, RECODE
from privsyn.pipelines.mechanism_parts import measure_chosen
from privsyn.pipelines.one_shot import CLIQUES, MEASURED, RECODE_ROWS
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.steps import select_marginals

WIDTH = 8
"""Attributes of a view at most (PriView; DPSyn report, section 3.2)."""

CELLS = 5_000
"""Cells of a view at most, beyond the one pair that it must hold: PrivSyn's gamma."""


Choose = Callable[[Domain, int], list[Clique]]
"""(compressed domain, most cells of a marginal) to the marginals to measure: public facts only."""


def all_pairs(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but every pair is measured, with the scores' budget too."""
    return _choose_views(trial, _list_pairs)


def priview(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but the measured marginals are views that cover every pair."""
    return _choose_views(trial, list_covering_views)


def random_views(trial: MethodInput) -> MethodResult:
    """Draw as many views as the covering has, of attributes drawn with the trial's seed."""

    def choose(domain: Domain, limit: int) -> list[Clique]:
        generator = np.random.default_rng([trial.seed, 0x71E5])
        views: dict[Clique, None] = {}
        for _ in list_covering_views(domain, limit):
            order = [domain.attributes[i] for i in generator.permutation(len(domain.attributes))]
            views[_widen_views(order[:1], order[1:], domain, min(limit, CELLS))] = None
        return [view for view in views if len(view) > 1]

    return _choose_views(trial, choose)


def manual_list(trial: MethodInput) -> MethodResult:
    """Return the marginals that the spec's ``workload`` names, each whole, where it fits.

    The one-ways where none is.
    """
    named = [set(m.columns) for m in trial.settings.workload]

    def choose(domain: Domain, limit: int) -> list[Clique]:
        cliques = [domain.ordered([a for a in domain.attributes if a in columns]) for columns in named]
        return list(dict.fromkeys(c for c in cliques if len(c) > 1 and domain.cells(c) <= limit))

    return _choose_views(trial, choose)


def list_covering_views(domain: Domain, most: int) -> list[Clique]:
    """Return views of at most WIDTH attributes and CELLS cells that hold every pair of at most ``most`` cells.

    The views are a covering design (t = 2): the lines of an affine plane that fit, and greedy views for the remaining
    pairs.  For 64 attributes the lines are the known design of 72 views of 8.  If greedy views alone are fewer, the
    function returns them instead.
    """
    names, limit = domain.attributes, min(most, CELLS)
    lines = [tuple(names[i] for i in line) for line in build_affine_plane(len(names))]
    plane = list_greedy_views(domain, most, [line for line in lines if domain.cells(line) <= limit])
    greedy = list_greedy_views(domain, most)
    return plane if len(plane) < len(greedy) else greedy


def list_greedy_views(domain: Domain, most: int, first: Sequence[Clique] = ()) -> list[Clique]:
    """Return the views ``first``, and views for pairs in none; each begins with the first pair not yet covered.

    Then the attribute that covers most pairs not covered yet joins, up to the limits of :func:`list_covering_views`.
    """
    limit = min(most, CELLS)
    pairs = _list_pairs(domain, most)
    views = [domain.ordered(view) for view in first]
    uncovered = set(pairs).difference(*(combinations(view, 2) for view in views))
    while uncovered:
        view = list(next(p for p in pairs if p in uncovered))
        while len(view) < WIDTH:
            gains = {
                a: sum(domain.ordered((a, v)) in uncovered for v in view)
                for a in domain.attributes
                if a not in view and domain.cells([*view, a]) <= limit
            }
            best = max(gains, key=lambda a: gains[a], default=None)
            if best is None or not gains[best]:
                break
            view.append(best)
        views.append(domain.ordered(view))
        uncovered.difference_update(combinations(views[-1], 2))
    return views


def _widen_views(view: list[str], others: list[str], domain: Domain, limit: int) -> Clique:
    """Return ``view`` with the first of ``others`` that fit."""
    for attribute in others:
        if len(view) < WIDTH and domain.cells([*view, attribute]) <= limit:
            view = [*view, attribute]
    return domain.ordered(view)


def _list_pairs(domain: Domain, limit: int) -> list[Clique]:
    """Return every pair of at most ``limit`` cells."""
    return [p for p in combinations(domain.attributes, 2) if domain.cells(p) <= limit]


def _choose_views(trial: MethodInput, choose: Choose) -> MethodResult:
    """Return the paper's settings, but ``choose`` names what is measured; the scores' budget goes there."""
    return vary_paper(trial, replace_selection(choose))


def replace_selection(choose: Choose) -> Callable[[Request], Steps]:
    """Return PrivSyn's steps, but ``choose`` names what is measured; the scores' budget goes there."""

    def steps(request: Request) -> Steps:
        one_way, selection, measurement = request.get_options(PrivSyn).split.exact()
        steps = (
            ENCODE,
            ONE_WAYS,
            COMPRESS_DOMAIN,
            RECODE_ROWS,
            _build_choice_step(choose),
            measure_chosen(CLIQUES),
            *build_row_steps(request),
        )
        return fund(steps, {ONE_WAYS.name: one_way, MEASURED: selection + measurement})

    return steps


def _build_choice_step(choose: Choose) -> Step:
    """Return the step whose cliques are the choice of ``choose``, at most ``selection.max_cells`` cells each."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        domain, fine = inputs.domain(), request.encoding.domain
        weighed = select_marginals.weigh(
            choose(domain, request.get_options(PrivSyn).selection.max_cells), domain, fine, None
        )
        return {"cliques": select_marginals.tabulate_cliques(weighed, domain, fine)}

    return Step(
        name=CLIQUES.split(".")[0],
        title="Public choice",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE,),
        outputs={"cliques": tables.CLIQUES},
        fields=("mechanism.selection.max_cells",),
        run=run,
    )


_FIELDS = {2: 0, 3: 0, 4: 0b111, 5: 0, 7: 0, 8: 0b1011}
"""Order of a field -> the irreducible polynomial over GF(2) that it is taken modulo, in bits; 0: integers modulo q."""

LARGEST = max(_FIELDS) ** 2
"""Points at most of a plane here."""


def build_affine_plane(points: int) -> list[tuple[int, ...]]:
    """Return the lines of the smallest affine plane with at least so many points, cut to these, each ascending.

    Points are 0 to ``points`` - 1; every pair of them is on exactly one line.  Lines of fewer than two are left out.
    Empty for more than LARGEST points.
    """
    order = next((q for q in _FIELDS if points <= q * q), None)
    if order is None:
        return []
    elements = range(order)
    sloped = [
        [x * order + _add(_multiply(slope, x, order), offset, order) for x in elements]
        for slope in elements
        for offset in elements
    ]
    upright = [[x * order + y for y in elements] for x in elements]
    lines = [tuple(sorted(p for p in line if p < points)) for line in (*upright, *sloped)]
    return [line for line in lines if len(line) > 1]


def _add(a: int, b: int, order: int) -> int:
    return a ^ b if _FIELDS[order] else (a + b) % order


def _multiply(a: int, b: int, order: int) -> int:
    modulus = _FIELDS[order]
    if not modulus:
        return a * b % order
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
        a ^= modulus if a & order else 0
    return product
