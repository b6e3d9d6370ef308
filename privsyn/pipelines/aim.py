"""AIM over rows: one-ways, then rounds that make rows, score all candidates, and measure the worst.

McKenna, Mullins, Sheldon, Miklau: *AIM*, PVLDB 15(11), 2022.

From the paper: the one-ways are measured first.  Each round scores a candidate by its error, weighted by the workload,
less the noise of measuring the candidate.  A tenth of a round's budget pays for scores.  Later rounds have more budget.

Unlike the paper: rows by sweeps replace the graphical model.  Noisy scores of all candidates replace one draw by the
exponential mechanism, and a round takes several marginals.  The number of rounds and their budgets are public and
fixed; the paper anneals adaptively.

Privacy: rho-zCDP for adding or removing one person with at most k records.  With d attributes there are d one-way
marginals, and one table for each named set.  Each of R rounds has at most d (d - 1) scores, against earlier released
counts.  A round also has at most d times ``per_column`` marginals, rounded up.  If no score exceeds its noise, a round
has the d one-ways again instead.  Each of these queries is one mechanism instance of sensitivity k.  The shares are
fixed before any look, so the prices add up to rho (adaptive composition).
"""

from __future__ import annotations

from functools import partial

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import Aim
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.adaptive import make_rows_so_far, measure_again, refine_again, score_residuals
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS
from privsyn.pipelines.mechanism_parts import build_choice_step, measure_chosen
from privsyn.pipelines.named_sets import SET_STEPS
from privsyn.pipelines.one_shot import MEASURED, RECODE_ROWS, SCORES
from privsyn.pipelines.rung_steps import build_first_look
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import score_columns


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps: one-ways, the rounds, and rows from all measurements."""
    rounds = (_build_round(n) for n in range(1, request.get_options(Aim).rounds + 1))
    return (
        ENCODE,
        *build_first_look(),
        ONE_WAYS,
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        *SET_STEPS,
        *(step for steps in rounds for step in steps),
        *build_row_steps(request),
    )


TREE_WIDTH_NOTE = (
    "The rows keep the relations of few columns, those that were measured in rounds; any others only as far as they "
    "follow from these."
)


def _choose(n: int, request: Request, inputs: Inputs) -> list[Clique]:
    queries, scores = inputs.noisy_scores(_name_scores(n))
    return score_columns.choose_worst_marginals(
        [q.attributes for q in queries],
        scores,
        queries[0].sigma if queries else 0.0,
        inputs.domain(),
        request.get_options(Aim).at_once(len(request.encoding.domain.attributes)),
        float(inputs.rho[_name_measurement(n)]),
        request.records,
        targets=request.public.targets,
    )


def _name_scores(n: int) -> str:
    return SCORES.name if n == 1 else f"residual_scores_{n}"


def _name_measurement(n: int) -> str:
    return MEASURED if n == 1 else f"measure_again_{n}"


def _choose_worst(n: int) -> Step:
    """Return the step that chooses the marginals of round ``n`` by their noisy distances."""
    return build_choice_step(
        name=f"worst_marginals_{n}",
        title=f"Worst marginals, round {n}",
        scores=_name_scores(n),
        choose=partial(_choose, n),
        fields=("mechanism.per_column",),
        budgets=(_name_measurement(n),),
        reads=(KnowledgePart.TARGETS,),
        words=(
            "the few marginals that independent columns, by the noisy one-ways, fit worst are measured first"
            if n == 1
            else "rows made from what was measured so far say which few marginals are measured next"
        ),
    )


def _build_round(n: int) -> tuple[Step, ...]:
    """Return the steps of round ``n``."""
    chosen = f"worst_marginals_{n}.cliques"
    if n == 1:
        return SCORES, _choose_worst(1), measure_chosen(chosen, TREE_WIDTH_NOTE)
    rows, scores = make_rows_so_far(n), score_residuals(n)
    return refine_again(n), rows, scores, _choose_worst(n), measure_again(n, chosen)
