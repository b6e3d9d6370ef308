"""The run form's vocabulary: fields are those of Prefect's form, settings the variables of the worker."""

from __future__ import annotations

from privsyn.base.wording import API, Vocabulary

_SETTINGS = {
    name: f"PRIVSYN_{name.removeprefix('settings.').upper()} of the worker"
    for name in API.fields
    if "settings." in name
}


def _of_the_form(*titles: str) -> str:
    return f"the field {' > '.join(titles)} of the run form"


FORM = Vocabulary(
    fields={
        **API.fields,
        **_SETTINGS,
        "release.data": _of_the_form("Spec", "Data"),
        "release.spec": _of_the_form("Spec"),
        "release.fresh": _of_the_form("Fresh"),
        "release.new_dataset": _of_the_form("New Dataset"),
        "release.period": _of_the_form("Period"),
        "release.time_zone": _of_the_form("Time Zone"),
        "evaluate.release": _of_the_form("Release"),
        "evaluate.data": _of_the_form("Data"),
        "evaluate.holdout": _of_the_form("Holdout"),
        "evaluate.against": _of_the_form("Against"),
        "evaluate.settings": _of_the_form("Settings"),
        "evaluate.labels": _of_the_form("Settings", "Labels"),
        "evaluate.epsilon_report": _of_the_form("Epsilon Report"),
        "compare.methods": _of_the_form("Methods"),
        "compare.epsilons": _of_the_form("Epsilons"),
        "compare.seeds": _of_the_form("Seeds"),
        "compare.holdout": _of_the_form("Holdout"),
        "compare.labels": _of_the_form("Settings", "Labels"),
        "ledger.dataset": _of_the_form("Dataset"),
    },
    actions={
        "redraw": "run again with " + _of_the_form("Fresh") + " ticked",
        "draft_spec": "`privsyn spec draft`",
        "list_runs": "`privsyn ledger show`",
        "verify_ledger": "the flow `budget-report`",
        "show_whole_error": "the whole error is in the private folder, in failure.txt",
    },
)
"""The words of the forms.  A request that no form takes is named as in Python; a spec is drafted with the command."""
