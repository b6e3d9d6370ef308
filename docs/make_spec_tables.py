"""Write the tables of fields of docs/spec.md from the models that read a spec.

    python docs/make_spec_tables.py

What stands between the two marks is replaced; a test holds the page to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from privsyn.data_contracts import columns, mechanism_options
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.focus import Focus, NamedMarginal
from privsyn.data_contracts.frozen_model import write_form_text
from privsyn.data_contracts.presets import FOCUS_WEIGHT, RELATIONS
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.public_counts import EarlierCells, KnownTotal, Prior
from privsyn.data_contracts.publication import About
from privsyn.data_contracts.release_spec import EngineChoice, ReleaseSpec
from privsyn.data_contracts.rules import Derive, Lookup, Never, OneOf

PAGE = Path(__file__).with_name("spec.md")
BEGIN, END = "<!-- fields -->\n", "<!-- /fields -->\n"

SECTIONS: tuple[tuple[str, tuple[type[BaseModel], ...]], ...] = (
    ("The spec", (ReleaseSpec,)),
    ("`unit`", (Unit,)),
    ("`privacy` and `budget`", (Guarantee,)),
    ("`columns`: fields of every kind but `drop`", (columns.BooleanColumn,)),
    ("`columns`: `kind: integer`", (columns.IntegerColumn,)),
    ("`columns`: `kind: number`", (columns.NumberColumn,)),
    ("`columns`: `kind: date`", (columns.DateColumn,)),
    ("`columns`: `kind: datetime`", (columns.DatetimeColumn,)),
    ("`columns`: `kind: time`", (columns.TimeColumn,)),
    ("`columns`: `kind: categorical`", (columns.CategoricalColumn,)),
    ("`csv`", (CsvOptions,)),
    ("`rules`", (Never, Derive, Lookup, OneOf)),
    ("`mechanism: {name: privsyn}`", (mechanism_options.PrivSyn,)),
    ("`mechanism: {split: ...}`", (mechanism_options.Split,)),
    ("`mechanism: {compression: ...}`", (mechanism_options.Compression,)),
    ("`mechanism: {selection: ...}`", (mechanism_options.Selection,)),
    ("`mechanism: {consistency: ...}`", (mechanism_options.Consistency,)),
    ("`mechanism: {synthesis: ...}`", (mechanism_options.Synthesis,)),
    ("`mechanism: {name: adaptive}`", (mechanism_options.Adaptive,)),
    ("`mechanism: {name: independent}`", (mechanism_options.Independent,)),
    ("`mechanism: {name: mst}`", (mechanism_options.Mst,)),
    ("`mechanism: {name: privbayes}`", (mechanism_options.PrivBayes,)),
    ("`mechanism: {name: aim}`", (mechanism_options.Aim,)),
    ("`mechanism: {name: prior}`", (mechanism_options.PriorLevels,)),
    ("`focus`", (Focus,)),
    ("`workload`: each entry", (NamedMarginal,)),
    ("`prior`", (Prior,)),
    ("`cells`", (EarlierCells,)),
    ("`totals`: each entry", (KnownTotal,)),
    ("`engine`", (EngineChoice,)),
    ("`about`", (About,)),
)
"""Heading -> the models whose fields stand under it, in the order of the page."""

TITLES = {title for title, _ in SECTIONS}

COMMON = {"description", "nullable", "measured"}
"""Fields of every kind of column, described once."""

FILLED_IN = {"improves", "public_files", "sha256"}
"""Fields that the program fills in; the page's words say so once."""

OF_DEFAULT_PRESET: dict[type[BaseModel], dict[str, Any]] = {
    mechanism_options.Split: RELATIONS["split"],
    mechanism_options.Compression: RELATIONS["compression"],
    mechanism_options.Consistency: RELATIONS["consistency"],
    mechanism_options.Synthesis: RELATIONS["synthesis"],
    Focus: {"weight": FOCUS_WEIGHT, "triples": True, "scores": True},
    NamedMarginal: {"measured": True},
}
"""Defaults of the preset `0.4` that differ from the model's; the page's words say for which specs."""

MAX_DEFAULT_LENGTH = 24
"""Longest default in characters that a table shows; a longer one is left to the field's description."""


def describe_default(field: FieldInfo) -> str:
    """Return a field's default as YAML has it; `required`, or nothing where it is a section of its own."""
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, default=str)
    return f"`{text}`" if len(text) <= MAX_DEFAULT_LENGTH and value not in ("", None, ()) else ""


def describe_fields(model: type[BaseModel], column: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the line of the table of each field that the page does not describe elsewhere."""
    for name, field in model.model_fields.items():
        tells_models_apart = name == "name" or (name == "kind" and not isinstance(field.default, str))
        described_elsewhere = column and name in COMMON and model is not columns.BooleanColumn
        if not tells_models_apart and not described_elsewhere and name not in FILLED_IN:
            words = " ".join((field.description or "").split()).replace("|", "\\|")
            default, of_preset = describe_default(field), OF_DEFAULT_PRESET.get(model, {})
            if name in of_preset:
                default = f"`{json.dumps(of_preset[name])}` (`0.4`), else {default}"
            yield f"`{field.alias or name}`", f"`{field.alias or name}` | {default} | {words}"


def summarize(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring as Markdown."""
    return write_form_text((model.__doc__ or "").split("\n\n")[0])


def render_tables() -> str:
    """Return the sections of all models; fields that a section of the same group has described are only named."""
    parts = []
    seen: dict[str, set[str]] = {}
    for title, models in SECTIONS:
        column = title.startswith("`columns`")
        described = [] if len(models) > 1 or models == (columns.BooleanColumn,) else [summarize(models[0]) + "\n\n"]
        lines = {line: name for model in models for name, line in describe_fields(model, column)}
        known = seen.setdefault(title.split(":")[0], set())
        options = title.startswith("`mechanism: {name")
        below = [line for line in lines if options and f"`mechanism: {{{lines[line].strip('`')}: ...}}`" in TITLES]
        new, above = ([line for line in lines if (line in known) is old and line not in below] for old in (False, True))
        known.update(new)
        names = [f"Also, as above: {', '.join(lines[line] for line in above)}.\n"] if above else []
        names += [f"Sections: {', '.join(lines[line] for line in below)}.\n"] if below else []
        parts.append(
            "\n".join([f"### {title}\n" + "".join(described) + draw_table(new), *names]).replace("\n\n\n", "\n\n")
        )
    return "\n".join(parts)


def draw_table(lines: list[str]) -> str:
    """Return fields as a table; a column of defaults only where a field has one."""
    if not lines:
        return ""
    if all(" |  | " in line for line in lines):
        return "\n".join(["field | meaning", "---|---", *(line.replace(" |  | ", " | ", 1) for line in lines)]) + "\n"
    return "\n".join(["field | default | meaning", "---|---|---", *lines]) + "\n"


def insert_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + render_tables() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(insert_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
