"""The run form's vocabulary: fields are those of Prefect's form, settings the variables of the worker."""

from __future__ import annotations

from privsyn.base.wording import API, SETTINGS, Vocabulary, list_fields


def _name_form_field(*titles: str) -> str:
    return f"the field {' > '.join(titles)} of the run form"


FORM = Vocabulary(
    fields={
        **API.fields,
        **{field: f"{variable} of the worker" for field, variable in SETTINGS.items()},
        **{
            field: _name_form_field(name.replace("_", " ").title())
            for field, name in list_fields("release", "evaluate", "comparison", "ledger")
        },
        "release.data": _name_form_field("Spec", "Data"),
        "evaluate.labels": _name_form_field("Settings", "Labels"),
        "comparison.labels": _name_form_field("Settings", "Labels"),
        "evaluate.delta": "delta",
        "ledger.against": "against",
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
