"""Refuse a request that no run can keep: a package that is not installed, rules or totals that no rows keep."""

from __future__ import annotations

import importlib.util

from privsyn.base.errors import RequestError
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import LookupRule
from privsyn.engine.request import Request
from privsyn.tasks.knowledge.totals_and_rules import check_totals_possible
from privsyn.tasks.rules.feasibility import check_feasible


def check_package(spec: ReleaseSpec) -> None:
    """Raise RequestError if the mechanism's options ask for a package that is not installed."""
    wanted = spec.mechanism.package
    if wanted is None:
        return
    package, extra = wanted
    if importlib.util.find_spec(package) is None:
        raise RequestError(
            f"needs the package {package}, which is not installed",
            f"Install it with: pip install 'privsyn-flows[{extra}]'",
            "mechanism.rows_by",
        )


def check_rules(request: Request) -> Request:
    """Return the request, if some row keeps its rules, and rows its totals.  Raises RequestError that names the field.

    A lookup whose table was not read is refused: whoever may start runs must not choose which file is published.
    """
    for i, rule in enumerate(request.spec.rules):
        if isinstance(rule, LookupRule) and rule.lookup.table:
            raise RequestError(
                "names a file, and a run takes none",
                "Start the release from the spec's file, or give the table itself as `rows`",
                f"rules[{i}].lookup.table",
            )
    try:
        check_feasible(request.encoding)
        if request.public.totals is not None:
            check_totals_possible(request.spec.totals, request.public.totals, request.encoding)
    except FieldError as error:
        raise RequestError(
            error.problem, error.cure, "".join(f"[{p}]" if isinstance(p, int) else p for p in error.place)
        ) from None
    return request
