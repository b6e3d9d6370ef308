"""The command line's vocabulary: fields are options, arguments and environment variables, actions are commands."""

from __future__ import annotations

from privsyn.base.wording import API, Vocabulary

_SETTINGS = {
    name: f"PRIVSYN_{name.removeprefix('settings.').upper()}" for name in API.fields if name.startswith("settings.")
}

COMMAND_LINE = Vocabulary(
    fields={
        **_SETTINGS,
        "settings.out": "--out or PRIVSYN_OUT",
        "release.data": "--data",
        "release.spec": "SPEC",
        "release.fresh": "--fresh",
        "release.period": "--period",
        "release.new_dataset": "--new-dataset",
        "release.time_zone": "time_zone",
        "evaluate.release": "RELEASE",
        "evaluate.data": "--data",
        "evaluate.holdout": "--holdout",
        "evaluate.against": "--against",
        "evaluate.settings": "--settings",
        "evaluate.labels": "--label",
        "evaluate.epsilon_report": "--epsilon-report",
        "evaluate.delta": "delta",
        "comparison.methods": "--methods",
        "comparison.epsilons": "--epsilons",
        "comparison.seeds": "--seeds",
        "comparison.holdout": "--holdout",
        "comparison.labels": "--label",
        "improve.release": "RUN",
        "improve.epsilon": "--epsilon",
        "rerun.release": "RUN",
        "rerun.keep": "--output",
        "rerun.prior": "--prior",
        "query.release": "RELEASE",
        "query.columns": "QUESTION",
        "query.where": "QUESTION",
        "query.formula": "QUESTION",
        "query.probabilities": "QUESTION",
        "query.level": "--level",
        "query.population": "--population",
        "query.other": "--earlier",
        "query.plot": "--plot",
        "forecast.rows": "--rows-about",
        "forecast.epsilons": "--epsilons",
        "forecast.earlier": "--earlier",
        "forecast.public": "--public",
        "forecast.strength": "--strength",
        "forecast.seeds": "--seeds",
        "forecast.plot": "--plot",
        "add_formats.release": "RELEASE",
        "add_formats.formats": "--to",
        "draft_spec.data": "DATA",
        "draft_spec.dictionary": "--dictionary",
        "draft_spec.dataset": "--dataset",
        "draft_spec.header": "--header",
        "draft_spec.csv": "--delimiter, --decimal, --thousands, --encoding or --quote",
        "ledger.dataset": "DATASET",
        "ledger.against": "--against",
        "backup.file": "FILE",
        "deploy.file": "--file",
        "init.folder": "FOLDER",
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
