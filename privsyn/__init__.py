"""PrivSyn: differentially private synthetic tables.

``example`` gives a public table to begin with.  ``epsilon`` says what an attacker learns, and ``forecast`` what a
table would be worth.  ``release`` makes a table, and ``evaluate`` says (privately) how good the table is.  ``ledger``
says what was spent.  Each name is loaded at its first use; docs/api.md describes the names.

``privsyn/tasks``, ``privsyn/data_contracts`` and ``privsyn/flows`` are links to the folders of these names at the top:
search there too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsyn.api.after_release import evaluate as evaluate
    from privsyn.api.after_release import ledger as ledger
    from privsyn.api.after_release import rerun as rerun
    from privsyn.api.before_release import check_spec as check_spec
    from privsyn.api.before_release import compare as compare
    from privsyn.api.before_release import epsilon as epsilon
    from privsyn.api.before_release import estimate as estimate
    from privsyn.api.before_release import forecast as forecast
    from privsyn.api.check import CheckReport as CheckReport
    from privsyn.api.cost_estimate import Estimate as Estimate
    from privsyn.api.draft import SpecDraft as SpecDraft
    from privsyn.api.draft import draft_spec as draft_spec
    from privsyn.api.example import example as example
    from privsyn.api.ledger import LedgerView as LedgerView
    from privsyn.api.open_release import Release as Release
    from privsyn.api.open_release import open_release as open_release
    from privsyn.api.release import improve as improve
    from privsyn.api.release import release as release
    from privsyn.api.rerun import Rerun as Rerun
    from privsyn.base.errors import BudgetRefusedError as BudgetRefusedError
    from privsyn.base.errors import ContractError as ContractError
    from privsyn.base.errors import LedgerError as LedgerError
    from privsyn.base.errors import PrivsynError as PrivsynError
    from privsyn.base.errors import RequestError as RequestError
    from privsyn.data_contracts.release_spec import ReleaseSpec as ReleaseSpec
    from privsyn.evaluation.comparison.compare_methods import Compared as Compared
    from privsyn.evaluation.forecasts.forecast import Forecast as Forecast
    from privsyn.evaluation.private_evaluation import Report as Report

_MODULES = {
    "api.release": ("improve", "release"),
    "api.after_release": ("evaluate", "ledger", "rerun"),
    "api.before_release": ("check_spec", "compare", "epsilon", "estimate", "forecast"),
    "api.draft": ("draft_spec", "SpecDraft"),
    "api.example": ("example",),
    "api.open_release": ("open_release", "Release"),
    "data_contracts.release_spec": ("ReleaseSpec",),
    "evaluation.private_evaluation": ("Report",),
    "evaluation.comparison.compare_methods": ("Compared",),
    "api.rerun": ("Rerun",),
    "api.check": ("CheckReport",),
    "api.cost_estimate": ("Estimate",),
    "evaluation.forecasts.forecast": ("Forecast",),
    "api.ledger": ("LedgerView",),
    "base.errors": ("PrivsynError", "RequestError", "BudgetRefusedError", "LedgerError", "ContractError"),
}
"""Module -> the public names that it has.  None is the name of a module or package in ``privsyn``."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'privsyn' has no attribute {name!r}")
    from privsyn.base.process_memory import pause_gc

    with pause_gc():
        value = getattr(import_module(f"privsyn.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
