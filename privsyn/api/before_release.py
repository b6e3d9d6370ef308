"""The public functions that help to decide on a release: check_spec, forecast, estimate, epsilon and compare.

What a function needs is imported when it is called, as in ``privsyn.api.release``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from privsyn.base.arguments import check_arguments
from privsyn.base.notebook import is_in_notebook
from privsyn.base.settings import load_settings
from privsyn.sources.private_table import Table
from privsyn.specs.spec_file import AnySpec, load_any_spec

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.api.check import CheckReport
    from privsyn.api.estimate import Estimate
    from privsyn.evaluation.comparison.compare_methods import Compared
    from privsyn.evaluation.forecasts.forecast import Forecast


@check_arguments
def check_spec(spec: AnySpec, data: Table | None = None) -> CheckReport:
    """Return what a spec would do: warnings, predicted noise and sizes; with a table also how well it fits.

    Args:
        spec: The spec.
        data: The private table; None: nothing but the spec is looked at.

    Returns:
        ``warnings``, ``noise`` and ``columns``, all public; ``fit``, PRIVATE, which prints no figure. Its
        ``advice`` has relations that the rows show and no rule says.

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
    """Return what a release would be worth, before anything is spent: releases in memory of a table from public things.

    Args:
        spec: The spec; the table that it names is not opened.
        rows: About how many rows the table has, from public knowledge: 1 to 1,000,000.
        epsilons: At most 11, each > 0; None: 0.2, 0.5, 1, 2 and 5.  The spec's own is added.
        earlier: A released folder (or a run's name) of the same columns, whose rows stand in for the private ones.
        public: The path of a public table of the same columns that does so.
        strength: Without both, rows are like the spec's prior, which cannot fit better.  Without a prior, columns of a
            usual shape are made up, and their pairs correlated by 0 to ``strength``, most of them weakly.  It is 0 to
            1; None: 0.9.
        seeds: Simulated releases at the spec's own epsilon, 1 to 20; half as many at each other one.
        progress: Show a bar; None: in a notebook only.

    Returns:
        For each epsilon: how sure each column will be, the error of each mean, the number of measured pairs, and their
        least strength.  Also the size of a random sample that is as good as the rows.  ``words`` states the assumption
        and where it enters; ``plot(path)`` draws the forecast.

    Raises:
        RequestError: An argument or the spec is wrong, or a table does not fit it.

    Privacy: no argument may be private.  Nothing is drawn for a release, spent or written; the noise has a seed.
    """
    from privsyn.engine.choose_accountant import assume_accountant
    from privsyn.engine.progress import show_bar
    from privsyn.evaluation.forecasts.forecast import forecast as simulated

    shown = is_in_notebook() if progress is None else progress
    with show_bar("simulating") if shown else nullcontext(_ignore_progress) as report:
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
    """Return what a release would take on this machine: CPU and wall time, memory and disk, by step.

    Args:
        spec: The spec; the table that it names is not opened.
        rows: About how many rows the table has, from public knowledge: 1 to 10^12.  How many are made, the spec says.
        workers: Of a Dask cluster, which count: at most 10,000; 0: as the spec's ``engine`` says.

    Returns:
        ``steps``, each with its CPU and wall seconds, peak memory and what it writes, and ``whole``, all together;
        ``words`` say what was assumed.

    Raises:
        RequestError: An argument or the spec is wrong, or the spec improves an earlier release.

    Privacy: no argument may be private.  A small release of made-up rows is rehearsed in a temporary folder, with a
    ledger of its own; no table is read, nothing is spent and nothing stays.
    """
    from privsyn.api.estimate import estimate as rehearsed
    from privsyn.engine.choose_accountant import assume_accountant

    return rehearsed(assume_accountant(load_any_spec(spec), load_settings())[0], rows, workers=workers)


@check_arguments
def epsilon(
    spec: AnySpec | None = None, *, epsilons: Sequence[float] | None = None, delta: float | None = None
) -> pd.DataFrame:
    """Return what an attacker can learn at each epsilon, to choose one: what ``privsyn epsilon`` shows.

    Args:
        spec: Its epsilon is added, and its delta taken; the table that it names is not opened.
        epsilons: Each > 0; None: 0.1, 0.2, 0.5, 1, 2, 5 and 10.
        delta: Between 0 and 1; None: the spec's, else 1e-9.

    Returns:
        A row an epsilon, ascending, with ``epsilon`` and ``delta``.  At even chances, ``guess`` is the probability
        (0.5 to 1) that the best guess is right whether a person is in the table.  ``any_promise`` is its bound for any
        mechanism of the same promise.  An attacker believed with 10 % that a person is in the table, who is: the new
        belief (0 to 1) is at most ``typical_10`` in half of all releases, and at most ``most_10``.  ``found`` is the
        share of people in the table whom a test recognises that is wrong for 1 % of the others.
        ``attrs["published"]``: what others published with, as mappings, from ``attrs["source"]``.  ``forecast`` says
        what a release is worth.

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
        spec: The table's file, its columns, delta, and the settings of the method ``default``; its ``rules``,
            ``levels`` and ``totals`` take no part.
        methods: Names of methods, or ``all``; None: ``default``, ``privsyn-paper`` and ``independent``.
        epsilons: Each > 0; None: 0.2, 1 and 2.
        seeds: Repetitions, with the seeds 0 to ``seeds`` - 1; at least 1.
        holdout: The path of real rows that no method sees.
        labels: Columns that models predict; default: chosen by their kinds.
        out: As for ``release``; results lie in its private folder.

    Returns:
        ``folder``, with a table and plots, and ``results``, which print no figure.

    Raises:
        RequestError: An argument is wrong, or the table does not fit the spec.

    Privacy: the noise has a seed and the figures are exact functions of the real rows, so this is for data that is
    public or stays where it is.  Nothing is released and nothing is charged.
    """
    from privsyn.evaluation.comparison.compare_methods import DEFAULT_EPSILONS, DEFAULT_METHODS, AskedComparison
    from privsyn.evaluation.comparison.compare_methods import compare as run_comparison
    from privsyn.evaluation.comparison.methods import METHODS
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


def _ignore_progress(done: int, total: int) -> None:
    """No progress."""
