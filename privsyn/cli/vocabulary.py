"""The command line's vocabulary: fields are options, arguments and environment variables, actions are commands."""

from __future__ import annotations

from privsyn.base.wording import SETTINGS, Vocabulary, list_fields

_OTHER_WORDS = {
    "settings.out": "--out or PRIVSYN_OUT",
    "release.spec": "SPEC",
    "release.time_zone": "time_zone",
    "evaluate.release": "RELEASE",
    "evaluate.labels": "--label",
    "evaluate.delta": "delta",
    "comparison.labels": "--label",
    "improve.release": "RUN",
    "rerun.release": "RUN",
    "rerun.keep": "--output",
    "query.release": "RELEASE",
    "query.columns": "QUESTION",
    "query.where": "QUESTION",
    "query.formula": "QUESTION",
    "query.probabilities": "QUESTION",
    "query.other": "--earlier",
    "forecast.rows": "--rows-about",
    "add_formats.release": "RELEASE",
    "add_formats.formats": "--to",
    "publish.release": "RELEASE",
    "publish.database": "DATABASE",
    "draft_spec.data": "DATA",
    "draft_spec.csv": "--delimiter, --decimal, --thousands, --encoding or --quote",
    "ledger.dataset": "DATASET",
    "backup.file": "FILE",
    "init.folder": "FOLDER",
}
"""Fields that are arguments, or options of another name."""

COMMAND_LINE = Vocabulary(
    fields={
        **{field: f"--{name.replace('_', '-')}" for field, name in list_fields()},
        **SETTINGS,
        **_OTHER_WORDS,
    },
    actions={
        "redraw": "run with --fresh",
        "draft_spec": "`privsyn spec draft`",
        "list_runs": "`privsyn ledger show`",
        "verify_ledger": "`privsyn ledger verify`",
        "show_whole_error": "--debug shows the whole error",
    },
)
"""The words of ``privsyn --help``.  What no option gives (a schedule's time zone) has its own name."""
