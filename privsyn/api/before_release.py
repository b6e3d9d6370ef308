"""The public functions that help to decide on a release: check_spec, forecast, estimate, epsilon and compare.

What a function needs is imported when it is called, as in ``privsyn.api.release``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from privsyn.base.arguments import check_arguments
from privsyn.base.settings import load_settings
from privsyn.engine.progress import is_in_notebook
from privsyn.sources.private_table import Table
from privsyn.specs.spec_file import AnySpec, load_any_spec

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.api.check import CheckReport
    from privsyn.api.cost_estimate import Estimate
    from privsyn.evaluation.comparison.compare_methods import Compared
    from privsyn.evaluation.forecasts.forecast import Forecast


@check_arguments
def check_spec(spec: AnySpec, data: Table | None = None) -> CheckReport:
    """Return what a spec would do: warnings, predicted noise and sizes; with a table also how well it fits.

    Args:
        spec: The spec.
        data: The private table; None: only the spec is checked.

    Returns:
        ``warnings``, ``noise`` and ``columns``, all public; ``fit``, PRIVATE, which prints no figure.  Its ``advice``
        lists relations of the rows that no rule states.

    Raises:
        RequestError: The spec is wrong or still open, or the table does not have its columns.  Or the operator's policy
            forbids the table or a file that the spec calls public.

    Privacy: draws nothing, spends nothing and writes nothing; ``fit`` is an exact function of the private rows.
    """
    from privsyn.api.check import check, open_for_check

    loaded = load_any_spec(spec)
    settings = load_settings()
    return check(loaded, open_for_check(loaded, data, settings), settings)


@check_arguments
def forecast(
    spec: AnySpec,
    rows: int,
    *,
    epsilons: Sequence[float] | None = None,
    earlier: str | Path | None = None,
    public: str | Path | None = None,
    strength: float | None = None,
    seeds: int = 2,
    progress: bool | None = None,
) -> Forecast:
    """Forecast the accuracy of a release before anything is spent, from releases of a public stand-in table in memory.

    Args:
        spec: The spec; the table that it names is not opened.
        rows: Approximate number of rows of the table, from public knowledge: 1 to 1,000,000.
        epsilons: At most 11, each > 0; None: 0.2, 0.5, 1, 2 and 5.  The spec's own is added.
        earlier: A released folder (or a run's name) of the same columns, whose rows stand in for the private ones.
        public: The path of a public table of the same columns, which stands in instead.
        strength: Without both, rows are drawn from the spec's prior, the best case.  Without a prior, columns are made
            up, and their pairs correlated by 0 to ``strength`` (0 to 1; None: 0.9), most of them weakly.
        seeds: Simulated releases at the spec's own epsilon, 1 to 20; half as many at each other one.
        progress: Show a bar; None: in a notebook only.

    Returns:
        For each epsilon: the accuracy of each column, the error of each mean, the number of measured pairs, their least
        strength.  Also the size of a random sample that is as good as the rows.  ``words`` states the assumptions;
        ``plot(path)`` draws the forecast.

    Raises:
        RequestError: An argument or the spec is wrong, or a table does not fit it.

    Privacy: no argument may be private.  Nothing is drawn for a release, spent or written; the noise has a seed.
    """
    from privsyn.engine.choose_accountant import assume_accountant
    from privsyn.engine.progress import show_bar
    from privsyn.evaluation.forecasts.forecast import forecast as simulated

    shown = is_in_notebook() if progress is None else progress
    with show_bar("simulating") if shown else nullcontext(lambda done, total: None) as report:
        return simulated(
            assume_accountant(load_any_spec(spec), load_settings())[0],
            rows,
            epsilons=epsilons,
            earlier=earlier,
            public=public,
            strength=strength,
            seeds=seeds,
            progress=report,
        )


@check_arguments
def estimate(spec: AnySpec, rows: int, *, workers: int = 0) -> Estimate:
    """Estimate the CPU and wall time, memory and disk that each step of a release takes on this machine.

    Args:
        spec: The spec; the table that it names is not opened.
        rows: Approximate number of rows of the table, from public knowledge: 1 to 10^12.  The spec sets the number of
            synthetic rows.
        workers: Workers of a Dask cluster that count, at most 10,000; 0: as in the spec's ``engine``.

    Returns:
        ``steps``, each with its CPU and wall seconds, peak memory and written bytes; ``whole``, their total; ``words``,
        the assumptions.

    Raises:
        RequestError: An argument or the spec is wrong, or the spec improves an earlier release.

    Privacy: no argument may be private.  It rehearses a small release of made-up rows in a temporary folder with its
    own ledger.  No table is read, and nothing is spent or kept.
    """
    from privsyn.api.cost_estimate import estimate_cost
    from privsyn.engine.choose_accountant import assume_accountant

    return estimate_cost(assume_accountant(load_any_spec(spec), load_settings())[0], rows, workers=workers)


@check_arguments
def epsilon(
    spec: AnySpec | None = None, *, epsilons: Sequence[float] | None = None, delta: float | None = None
) -> pd.DataFrame:
    """Return what an attacker can learn at each epsilon, as ``privsyn epsilon`` shows it.

    Args:
        spec: A spec, whose epsilon is added and whose delta is used; its table is not opened.
        epsilons: Each > 0; None: 0.1, 0.2, 0.5, 1, 2, 5 and 10.
        delta: Between 0 and 1; None: the spec's, else 1e-9.

    Returns:
        One row per epsilon, ascending, with ``epsilon`` and ``delta``.  ``guess``: the probability (0.5 to 1) that an
        attacker with even odds guesses right whether a person is in the table.  ``any_promise``: the bound on it for
        every mechanism with the same promise.  ``typical_10``: the belief (0 to 1) that a present person is present,
        after 10 % before, which half of all releases do not exceed; ``most_10``: its bound.  ``found``: the share of
        present people found by a test that wrongly flags 1 % of the others.  ``attrs["published"]``: epsilons of
        published releases, as mappings, from ``attrs["source"]``.

    Raises:
        RequestError: The spec is wrong, or the epsilons and delta cannot be accounted.

    Privacy: reads no private table, spends nothing.
    """
    import pandas as pd

    from privsyn.evaluation.forecasts.attacker import PUBLISHED, REGISTRY, USUAL_DELTA, USUAL_EPSILONS, compute_risks

    loaded = None if spec is None else load_any_spec(spec)
    promised = delta if delta is not None else USUAL_DELTA if loaded is None else loaded.privacy.delta
    wanted = [
        *(USUAL_EPSILONS if epsilons is None else epsilons),
        *([] if loaded is None else [loaded.privacy.epsilon]),
    ]
    rows = []
    for risk in compute_risks(wanted, promised):
        even, tenth, _ = risk.guesses
        guesses = {"guess": even.after, "any_promise": even.any_promise, "typical_10": tenth.typical}
        rows.append(
            {"epsilon": risk.epsilon, "delta": risk.delta, **guesses, "most_10": tenth.most, "found": risk.found}
        )
    table = pd.DataFrame(rows)
    table.attrs |= {"published": [entry._asdict() for entry in PUBLISHED], "source": REGISTRY}
    return table


@check_arguments
def compare(
    spec: AnySpec,
    *,
    methods: Sequence[str] | Literal["all"] | None = None,
    epsilons: Sequence[float] | None = None,
    seeds: int = 3,
    holdout: str | Path | None = None,
    labels: Sequence[str] = (),
    out: str | Path | None = None,
) -> Compared:
    """Run methods at several epsilons and seeds on one table and score each.  PRIVATE, and not a release.

    Args:
        spec: The table's file, columns and delta, and the settings of the method ``default``.  Its ``rules``,
            ``levels`` and ``totals`` are ignored.
        methods: Names of methods, or ``all``; None: ``default``, ``privsyn-paper`` and ``independent``.
        epsilons: Each > 0; None: 0.2, 1 and 2.
        seeds: Repetitions, with the seeds 0 to ``seeds`` - 1; at least 1.
        holdout: The path of a table of real rows that no method sees.
        labels: Columns that models predict; default: chosen by their kinds.
        out: As for ``release``; results lie in its private folder.

    Returns:
        ``folder``, with a table and plots, and ``results``, which print no figure.

    Raises:
        RequestError: An argument is wrong, or the table does not fit the spec.

    Privacy: the noise has a seed and the figures are exact functions of the real rows, so use it only for public data,
    or data that stays with you.  Nothing is released or charged.
    """
    from privsyn.evaluation.comparison.compare_methods import (
        DEFAULT_EPSILONS,
        DEFAULT_METHODS,
        METHODS,
        AskedComparison,
    )
    from privsyn.evaluation.comparison.compare_methods import compare as run_comparison
    from privsyn.evaluation.settings_file import load_evaluation_spec

    request = AskedComparison(
        spec=load_any_spec(spec),
        methods=DEFAULT_METHODS if methods is None else tuple(METHODS) if methods == "all" else methods,
        epsilons=DEFAULT_EPSILONS if epsilons is None else epsilons,
        seeds=seeds,
        holdout=None if holdout is None else str(holdout),
        evaluation=load_evaluation_spec(None, labels or "auto"),
    )
    return run_comparison(request, load_settings(out))
