"""The public functions that look at what was released and spent: evaluate, rerun and ledger.

What a function needs is imported when it is called, as in ``privsyn.api.release``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.api.open_release import Release
from privsyn.base.arguments import check_arguments
from privsyn.base.settings import load_settings
from privsyn.sources.private_table import Table

if TYPE_CHECKING:
    from privsyn.api.ledger import LedgerView
    from privsyn.api.rerun import Rerun
    from privsyn.evaluation.private_evaluation import Report


@check_arguments
def evaluate(
    release: Release | str | Path,
    data: Table | None = None,
    *,
    holdout: Table | None = None,
    against: Sequence[Table] = (),
    settings: str | Path | None = None,
    labels: Sequence[str] = (),
    out: str | Path | None = None,
) -> Report:
    """Compare a release with the private table: scores, causes, and one private page.  PRIVATE: do not share.

    Args:
        release: The release, a run's name, or a released folder.
        data: The private table; None: the file that the run remembers.
        holdout: Real rows that the release has not seen, for attacks and honest model tests.
        against: Other tables of the same columns, scored beside the release.
        settings: The path of an evaluation settings file (YAML).
        labels: Columns that models predict; default: the settings', or none.
        out: As for ``release``; the report lies in its private folder.

    Returns:
        The report: ``scores`` by table and metric; ``html`` and ``figures``, its files.  It prints no figure.

    Raises:
        RequestError: An argument is wrong, or a table does not fit the release; raised before any row is read.

    Privacy: nothing is released and nothing is charged, but every figure is a function of the private rows.
    """
    from privsyn.evaluation.private_evaluation import AskedEvaluation
    from privsyn.evaluation.private_evaluation import evaluate as run_evaluation
    from privsyn.evaluation.settings_file import load_evaluation_spec

    evaluation_spec = load_evaluation_spec(None if settings is None else Path(settings), labels)
    return run_evaluation(
        AskedEvaluation(_name_release(release), data, holdout, against, evaluation_spec), load_settings(out)
    )


@check_arguments
def rerun(
    release: Release | str | Path,
    *,
    keep: str | Path | None = None,
    out: str | Path | None = None,
    prior: str | Path | None = None,
) -> Rerun:
    """Make a release again from its released folder alone, and compare every file with its manifest.

    Args:
        release: The release, a run's name, or a released folder.
        keep: A new folder for the files made again; None: they are not kept.
        out: As for ``open_release``.
        prior: The file of the release's public prior, or the folder of the release that served as prior.

    Returns:
        The comparison: ``agrees`` (true if everything does), ``files``, ``problems``.

    Raises:
        RequestError: The folder is not a release of a known form, ``prior`` is not its public prior, or ``keep`` exists
            already.

    Privacy: anybody may do this.  It needs no ledger, no private folder and no table, draws nothing and costs nothing.
    """
    from privsyn.api.rerun import rerun as run_again

    places = [None if place is None else Path(place) for place in (keep, prior)]
    return run_again(_name_release(release), load_settings(out), places[0], prior=places[1])


@check_arguments
def ledger(*, out: str | Path | None = None) -> LedgerView:
    """Return a read-only view of the privacy ledger: ``show()``, ``entries(dataset)``, ``verify()``.

    Args:
        out: The folder with the certificates that ``verify`` compares; default: as for ``release``.

    Returns:
        A view of the ledger named by ``PRIVSYN_LEDGER``, else of the ledger in the user's data folder.

    Raises:
        RequestError: A setting is wrong.  Each method of the view documents its own errors.

    Privacy: reads no private table, spends nothing, and creates no ledger.
    """
    from privsyn.api.ledger import LedgerView

    return LedgerView(load_settings(out))


def _name_release(release: Release | str | Path) -> str:
    """Return the folder of a release, or the run or folder that names it."""
    return str(release.folder if isinstance(release, Release) else release)
