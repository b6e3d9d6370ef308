"""The run form's vocabulary: fields are those of Prefect's form, settings the variables of the worker."""

from __future__ import annotations

from privsyn.base.wording import API, Vocabulary

_SETTINGS = {
    name: f"PRIVSYN_{name.removeprefix('settings.').upper()} of the worker"
    for name in API.fields
    if "settings." in name
}


def _name_form_field(*titles: str) -> str:
    return f"the field {' > '.join(titles)} of the run form"


FORM = Vocabulary(
    fields={
        **API.fields,
        **_SETTINGS,
        "release.data": _name_form_field("Spec", "Data"),
        "release.spec": _name_form_field("Spec"),
        "release.fresh": _name_form_field("Fresh"),
        "release.new_dataset": _name_form_field("New Dataset"),
        "release.period": _name_form_field("Period"),
        "release.time_zone": _name_form_field("Time Zone"),
        "evaluate.release": _name_form_field("Release"),
        "evaluate.data": _name_form_field("Data"),
        "evaluate.holdout": _name_form_field("Holdout"),
        "evaluate.against": _name_form_field("Against"),
        "evaluate.settings": _name_form_field("Settings"),
        "evaluate.labels": _name_form_field("Settings", "Labels"),
        "evaluate.epsilon_report": _name_form_field("Epsilon Report"),
        "comparison.methods": _name_form_field("Methods"),
        "comparison.epsilons": _name_form_field("Epsilons"),
        "comparison.seeds": _name_form_field("Seeds"),
        "comparison.holdout": _name_form_field("Holdout"),
        "comparison.labels": _name_form_field("Settings", "Labels"),
        "ledger.dataset": _name_form_field("Dataset"),
    },
    actions={
        "redraw": "run again with " + _name_form_field("Fresh") + " ticked",
        "draft_spec": "`privsyn spec draft`",
        "list_runs": "`privsyn ledger show`",
        "verify_ledger": "the flow `budget-report`",
        "show_whole_error": "the whole error is in the private folder, in failure.txt",
    },
)
"""The words of the forms.  A request that no form takes is named as in Python; a spec is drafted with the command."""
