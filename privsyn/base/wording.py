"""Texts that name fields and actions of their reader, the API's words for them, and words for the use of a budget.

An error names fields of the models (a spec field, a function argument, a setting) and actions.  Each surface has a
vocabulary with the names that its readers know.  The API's is here, the command line's in ``privsyn/cli/common.py`` and
the run form's in ``flows/private_errors.py``.

Every surface that shows a data set's lifetime budget uses the same words.  Shares are of the cap's rho, which adds up
over releases.  Epsilons do not add up, so they come second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

_ARGUMENTS = {
    "release": "data spec fresh period early new_dataset time_zone",
    "evaluate": "release data holdout against settings labels epsilon_report delta",
    "comparison": "methods epsilons seeds holdout labels",
    "improve": "release epsilon",
    "rerun": "release keep prior",
    "query": "release columns where formula probabilities level population other table plot",
    "forecast": "rows epsilons earlier public strength seeds plot",
    "estimate": "rows workers",
    "add_formats": "release formats",
    "publish": "release database prefix schema replace",
    "draft_spec": "data dictionary dataset header csv key of",
    "ledger": "dataset against",
    "calendar": "last",
    "backup": "file",
    "backfill": "dataset from to",
    "deploy": "file",
    "init": "folder",
    "settings": "out released private released_store released_url database_url database_password_file ledger dask "
    "dask_ca dask_certificate dask_key dask_public dask_public_folder dask_public_ca dask_public_certificate "
    "dask_public_key dask_wait_minutes policy login_file metrics history_days traces lineage anonymeter "
    "threads",
}
"""Request -> its arguments that errors name; ``settings``: environment settings."""

REQUESTS = frozenset(_ARGUMENTS)
"""Prefixes of argument fields.  Any other field is in a file that people write (the release spec, an evaluation's
settings), and every surface uses its name in that file."""


Text: TypeAlias = str
"""A text with the marks of :func:`mention` and :func:`refer_to_action`, which a vocabulary replaces by its words."""

_MARK = re.compile("\ue000([^\ue000]*)\ue000|\ue001([^\ue001]*)\ue001")

SMALLEST_PERCENT, LARGEST_PERCENT = 0.001, 99.99
"""Shares outside these are shown as bounds, so that only zero is "0 %" and only the whole "100 %"."""


def mention(field: str) -> Text:
    """Return a field's name as part of a text."""
    return f"\ue000{field}\ue000"


def refer_to_action(name: str) -> Text:
    """Return an action as part of a text; each vocabulary words it as a clause without a subject."""
    return f"\ue001{name}\ue001"


@dataclass(frozen=True)
class Vocabulary:
    """The names of fields and actions on one surface."""

    fields: Mapping[str, str]
    actions: Mapping[str, str]

    def field(self, name: str) -> str:
        """Return the field's name.  Raises LookupError for an argument or a setting without a word."""
        if "." in name and name not in self.fields and name.partition(".")[0] in REQUESTS:
            raise LookupError(f"the vocabulary has no word for the field {name!r}")
        return self.fields.get(name, name)

    def action(self, name: str) -> str:
        """Return the words for an action.  Raises LookupError for an action without words."""
        if name not in self.actions:
            raise LookupError(f"the vocabulary has no words for the action {name!r}")
        return self.actions[name]

    def text(self, text: Text) -> str:
        """Return the text with every field and action in this vocabulary's words."""
        return _MARK.sub(lambda mark: self.action(mark[2]) if mark[1] is None else self.field(mark[1]), text)


def list_fields(*requests: str) -> list[tuple[str, str]]:
    """Return the fields of these requests, by default of all: ``("release.data", "data")``."""
    return [(f"{r}.{name}", name) for r in requests or _ARGUMENTS for name in _ARGUMENTS[r].split()]


SETTINGS = {field: f"PRIVSYN_{name.upper()}" for field, name in list_fields("settings")}
"""Settings field -> its environment variable."""

API = Vocabulary(
    fields={**dict(list_fields()), **SETTINGS, "settings.out": "out or PRIVSYN_OUT", "query.other": "earlier"},
    actions={
        "redraw": "release again with `fresh=True`",
        "draft_spec": "`privsyn.draft_spec()`",
        "list_runs": "`privsyn.ledger().entries(dataset)`",
        "verify_ledger": "`privsyn.ledger().verify()`",
        "show_whole_error": "its `__cause__` is the whole error",
    },
)
"""The words of the Python functions: argument names, and environment variables for settings."""


def make_printable(text: str) -> str:
    """Return the text without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def make_sentence(text: Text) -> Text:
    """Return the text with one final mark: a full stop, or its own question mark."""
    text = text.rstrip(". ")
    return text if text.endswith("?") else f"{text}."


def join_sentences(texts: Iterable[Text]) -> Text:
    """Join the texts as sentences; empty texts are left out."""
    return " ".join(make_sentence(text) for text in texts if text)


def format_share(part: Fraction, whole: Fraction) -> str:
    """Return a share in percent, such as ``0.93 %`` or ``99.97 %``; only zero is 0 %, only the whole 100 %."""
    share = Fraction(part) / whole
    if share <= 0:
        return "0 %"
    if share == 1:
        return "100 %"
    percent = float(100 * share)
    if share > 1:
        return f"{percent:,.0f} %" if percent >= 101 else "over 100 %"
    if percent < SMALLEST_PERCENT:
        return f"under {SMALLEST_PERCENT:g} %"
    if percent > LARGEST_PERCENT:
        return f"over {LARGEST_PERCENT:g} %"
    if percent < 1:
        return f"{float(f'{percent:.2g}'):f}".rstrip("0").rstrip(".") + " %"
    text = f"{percent:.2f}" if percent > 99 else f"{percent:.1f}"
    return f"{text.rstrip('0').rstrip('.')} %"


def describe_use(spent: Fraction, cap: Fraction, price: Fraction | None, priced_release: str = "the last one") -> str:
    """Return how much of a cap is used, and how many more releases of ``price`` fit; all in rho.

    ``price``: of the release named by ``priced_release``; None or 0 to return only the share.
    """
    used = f"{format_share(spent, cap)} used"
    if not price:
        return used
    more = int(max(cap - spent, Fraction(0)) / price)
    if more == 0:
        return f"{used}; no further release like {priced_release} fits"
    like = f"like {priced_release} fit{'' if more > 1 else 's'}"
    return f"{used}; {more:,} more release{'s' if more > 1 else ''} {like}"


def draw_bar(share: Fraction, width: int) -> str:
    """Return a share of rho, which adds up over releases (epsilon does not), as a bar; full only for the whole."""
    filled = min(int(share * width), width)
    return "█" * filled + "░" * (width - filled)


def describe_epsilon(epsilon: float, cap_epsilon: float, cap_delta: float) -> str:
    """Return an epsilon with the cap's epsilon, at the cap's delta: ``epsilon 0.93 of 4 at delta 1e-08``."""
    return f"epsilon {epsilon:.3g} of {cap_epsilon:g} at delta {cap_delta:g}"
