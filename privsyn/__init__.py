"""PrivSyn: differentially private synthetic tables.

``example`` has a public table to begin with, ``epsilon`` says what an attacker learns, ``forecast`` what a table would
be worth, ``release`` makes one, ``evaluate`` says (privately) how good it is, ``ledger`` what was spent.  Each name is
loaded when it is first used; docs/api.md describes them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsyn.api import evaluate as evaluate
    from privsyn.api import improve as improve
    from privsyn.api import ledger as ledger
    from privsyn.api import release as release
    from privsyn.api import rerun as rerun
    from privsyn.before_release import check_spec as check_spec
    from privsyn.before_release import compare as compare
    from privsyn.before_release import epsilon as epsilon
    from privsyn.before_release import forecast as forecast
    from privsyn.comparison.compare_methods import Compared as Compared
    from privsyn.data_contracts.release_spec import ReleaseSpec as ReleaseSpec
    from privsyn.errors import BudgetRefusedError as BudgetRefusedError
    from privsyn.errors import ContractError as ContractError
    from privsyn.errors import LedgerError as LedgerError
    from privsyn.errors import PrivsynError as PrivsynError
    from privsyn.errors import RequestError as RequestError
    from privsyn.evaluation.private_evaluation import Report as Report
    from privsyn.example_table import example as example
    from privsyn.forecasts.forecast import Forecast as Forecast
    from privsyn.ledger_view import LedgerView as LedgerView
    from privsyn.released import Release as Release
    from privsyn.released import open_release as open_release
    from privsyn.reproduction import Rerun as Rerun
    from privsyn.spec_check import CheckReport as CheckReport
    from privsyn.spec_draft import SpecDraft as SpecDraft
    from privsyn.spec_draft import draft_spec as draft_spec

_MODULES = {
    "api": ("evaluate", "improve", "ledger", "release", "rerun"),
    "before_release": ("check_spec", "compare", "epsilon", "forecast"),
    "spec_draft": ("draft_spec", "SpecDraft"),
    "example_table": ("example",),
    "released": ("open_release", "Release"),
    "data_contracts.release_spec": ("ReleaseSpec",),
    "evaluation.private_evaluation": ("Report",),
    "comparison.compare_methods": ("Compared",),
    "reproduction": ("Rerun",),
    "spec_check": ("CheckReport",),
    "forecasts.forecast": ("Forecast",),
    "ledger_view": ("LedgerView",),
    "errors": ("PrivsynError", "RequestError", "BudgetRefusedError", "LedgerError", "ContractError"),
}
"""Module -> the public names that it has.  None is the name of a module or package in ``privsyn``."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'privsyn' has no attribute {name!r}")
    from privsyn.loading import no_collection

    with no_collection():
        value = getattr(import_module(f"privsyn.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
