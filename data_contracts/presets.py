"""Versions of a spec: the values that ``preset`` gives to open options, and the spellings of earlier versions.

Earlier spellings are translated to today's, or refused with a message if they are gone.  Before there were several
mechanisms, the mechanism's options were at the top of a spec; this still works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from privsyn.data_contracts.focus import MOST_MEASURED
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.linked_tables import list_described_columns
from privsyn.data_contracts.mechanism_options import Mechanism, PrivSyn, Rows

SECTIONS = ("split", "compression", "selection", "consistency", "synthesis")
"""Options of the mechanism that may be at the top of a spec."""

EARLIER_SECTIONS = (*SECTIONS, "adaptive")
"""Everything that may be at the top of a spec besides its fields."""

RENAMED = {
    ("split", "again"): "remeasure_one_ways",
    ("selection", "choice"): "criterion",
    ("consistency", "firm"): "one_way_weight",
}
"""(section, earlier name) -> today's name."""

ROUNDS = {"rounds": "rounds", "share": "rounds_share", "scores": "scores_share", "triples": "triples"}
"""Fields of the earlier section ``adaptive`` -> options of the mechanism ``adaptive``."""


PRESETS = {"default": "0.3", 0.3: "0.3", 0.4: "0.4"}
"""Earlier names of presets, and names that YAML reads as numbers -> today's names."""

PAPER: dict[str, Any] = {
    "split": {"one_way": 0.1, "selection": 0.1, "measurement": 0.8, "one_ways": "equal", "remeasure_one_ways": False},
    "compression": {"filter": True, "neighbours": False},
    "selection": {"scores": "indif", "criterion": "dense_marg", "combine_cliques": True},
    "consistency": {"one_way_weight": 1.0, "shrink": False},
    "synthesis": {"method": "gum", "duplicate_share": 0.5},
}
"""The paper's values of ``privsyn`` options that differ from the defaults."""

RELATIONS: dict[str, Any] = {
    "split": {"trends": 0.15, "values": 0.02},
    "compression": {"equal_mass": True, "single_values": True, "round_numbers": True, "calendar": True, "ladder": True},
    "consistency": {"pooled": True},
    "synthesis": {"related_inside": True, "try_heat": True},
}
"""Values of ``privsyn`` options since 0.4.0 for tables that have numbers or moments with open bins."""

ALL_PAIRS_COLUMNS = 300
"""All pairs are scored up to this many columns; in wider tables, only pairs that are near each other."""

WIDE_RELATIONS: dict[str, Any] = {"split": {"trends": 0.15}, "consistency": {"pooled": True}}
"""Values since 0.4.0 for tables of more than ALL_PAIRS_COLUMNS columns without open bins: counts of so many pairs are
noise, but a trend is one number."""

SCORES_FOR_FOCUS: dict[str, float] = {"one_way": 0.25, "selection": 0.06, "measurement": 0.69}
"""The split since 0.4.0 if a focus gets half of the scores' budget and the spec gives no share."""

FOCUS_WEIGHT = 10.0
"""The weight of a focus since 0.4.0, where a spec gives none: the weight of a named set."""

ORDERED_KINDS = frozenset({"integer", "number", "datetime", "date", "time"})
"""Kinds of columns that have bins."""

DEFAULT_ACCOUNTANT: Literal["tight"] = "tight"
"""The accountant of a new data set if the spec names none; it rests on published theorems."""

PAPER_ACCOUNTANT: Literal["paper"] = "paper"
"""The accountant of ``preset: paper``: Theorem 2."""

PRESET_MECHANISMS = ("privsyn", "adaptive")
"""The mechanisms whose options a preset fills in."""

CELL_MECHANISMS = ("independent", "mst", "privbayes", "aim")
"""Mechanisms for which 0.4 fills in `compression` only, because they choose marginals as in their papers."""


def translate_to_current(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with today's names, and every option under ``mechanism``.

    A spec with ``preset: default``, as in every manifest before 0.4.0, keeps the defaults of 0.3.

    Raises FieldError if an option is given twice.
    """
    current = dict(content)
    preset = current.get("preset")
    if isinstance(preset, str | float) and preset in PRESETS:
        current["preset"] = PRESETS[preset]
    mechanism = current.pop("mechanism", {})
    if isinstance(mechanism, str):
        mechanism = {"name": mechanism}
    if not isinstance(mechanism, Mapping):
        return {**current, "mechanism": mechanism}
    options = {name: _rename_field(name, value) for name, value in mechanism.items()}
    for section in SECTIONS:
        if section in current:
            options[section] = _join_places(
                section, _rename_field(section, current.pop(section)), options.get(section, {})
            )
    if "adaptive" in current:
        options = _join_places("adaptive", _translate_rounds(current.pop("adaptive")), options)
    return {**current, "mechanism": {"name": "privsyn", **options}}


def _join_places(section: str, outside: Any, inside: Any) -> Any:
    """Return the options from the top of a spec and from its ``mechanism``.  Raises FieldError for different values."""
    if not isinstance(outside, Mapping) or not isinstance(inside, Mapping):
        return inside if isinstance(outside, Mapping) else outside  # the model refuses it
    for name in outside:
        if name in inside and inside[name] != outside[name]:
            place = (section, name) if section in SECTIONS else (section,)
            raise FieldError("is given in the spec and in its `mechanism`", "Leave one of them out", place)
    return {**outside, **inside}


def as_written(place: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    """Return the places in a spec's file that may have set the model's value at ``place``, today's spelling first."""
    places = [place]
    if len(place) > 1 and place[0] == "mechanism":
        inner = place[1:]
        old = {(section, new): earlier for (section, earlier), new in RENAMED.items()}
        earlier = old.get((str(inner[0]), str(inner[1]))) if len(inner) > 1 else None
        if earlier is not None:
            places += [("mechanism", inner[0], earlier, *inner[2:]), (inner[0], earlier, *inner[2:])]
        places.append(inner)
        rounds = {new: name for name, new in ROUNDS.items()}
        if inner[0] in rounds:
            places.append(("adaptive", rounds[str(inner[0])], *inner[1:]))
    return places


def _translate_rounds(section: Any) -> dict[str, Any]:
    """Return the options for the earlier section ``adaptive``; empty if it asks for no further round."""
    if not isinstance(section, Mapping):
        raise FieldError("must be a mapping", "Write `mechanism: {name: adaptive, rounds: 1}`", ("adaptive",))
    unknown = [name for name in section if name not in ROUNDS]
    if unknown:
        place = ("adaptive", str(unknown[0]))
        raise FieldError("is not a field of `adaptive`", f"Its fields are {', '.join(ROUNDS)}", place)
    if not section.get("rounds", 0):
        return {}
    return {"name": "adaptive", **{ROUNDS[name]: value for name, value in section.items()}}


def _rename_field(section: str, value: Any) -> Any:
    """Return a section with today's names of its fields, without removed fields."""
    if not isinstance(value, Mapping):
        return value
    current = {RENAMED.get((section, name), name): field_value for name, field_value in value.items()}
    if section == "synthesis" and "kappa" in current and not current.pop("kappa"):
        return current
    if section == "synthesis" and "kappa" in value:
        raise FieldError("was removed in 0.3.0, because it improved no release", "Leave it out", ("synthesis", "kappa"))
    return current


def fill_preset(content: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with the values of ``preset`` that it does not give."""
    filled = dict(content)
    for name, value in preset.items():
        if isinstance(value, Mapping) and isinstance(filled.get(name), Mapping):
            filled[name] = fill_preset(filled[name], value)
        else:
            filled.setdefault(name, dict(value) if isinstance(value, Mapping) else value)
    return filled


def fill_options(options: Mapping[str, Any], preset: str, columns: Any, focus: Any) -> dict[str, Any]:
    """Return a mechanism's options with the preset's values for open ones; ``columns``, ``focus``: as written."""
    values, name = find_open_values(preset, columns), options.get("name")
    if name in PRESET_MECHANISMS:
        return fill_preset(fill_split(options, focus) if preset == "0.4" else options, values)
    if name in CELL_MECHANISMS and preset == "0.4" and "compression" in values:
        return fill_preset(options, {"compression": values["compression"]})
    return dict(options)


def fill_targets(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``focus``, ``workload`` and ``tables`` with open fields filled in: sets are measured, triples sought.

    Only sets of few columns, and nothing for rows by GUM.  ``content``: a spec as written.
    """
    options, tables = content.get("mechanism"), content.get("tables")
    rows = options.get("synthesis") if isinstance(options, Mapping) else None
    if isinstance(rows, Mapping) and rows.get("method") == "gum":
        return {}
    targets = _fill_targets(content)
    if isinstance(tables, Mapping):
        targets["tables"] = {n: {**t, **_fill_targets(t)} if isinstance(t, Mapping) else t for n, t in tables.items()}
    return targets


def _fill_targets(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``focus`` and ``workload`` of a spec or a table, as in :func:`fill_targets`."""
    focus, workload = content.get("focus"), content.get("workload")
    targets: dict[str, Any] = {}
    if isinstance(focus, Mapping):
        targets["focus"] = {"weight": FOCUS_WEIGHT, "triples": True, "scores": True, **focus}
    if isinstance(workload, list | tuple):
        targets["workload"] = [{"measured": True, **m} if _can_be_measured(m) else m for m in workload]
    return targets


def keep_declined(content: Mapping[str, Any], spec: Any) -> dict[str, Any]:
    """Return ``content`` with the options of ``spec`` that its preset would otherwise overwrite on the next read.

    An option with its model's default is not written (``FrozenModel.OMITTED_AT_DEFAULT``), even where the preset has
    another value and the spec declines it.  ``content``: the written form of ``spec``, whole or in parts; missing parts
    stay missing.
    """
    filled = fill_targets(content)
    completed = _keep_targets(content, filled, spec)
    if "tables" in filled:
        of_tables = {name: filled["tables"][name] for name in spec.tables.keys() & filled["tables"].keys()}
        tables = {n: _keep_targets(completed["tables"][n], t, spec.tables[n]) for n, t in of_tables.items()}
        completed["tables"] = {**completed["tables"], **tables}
    options = completed.get("mechanism")
    if isinstance(options, Mapping):
        named = {**options, "name": spec.mechanism.name}
        of_preset = fill_options(named, spec.preset, list_described_columns(spec), completed.get("focus"))
        completed["mechanism"] = _keep_own(options, of_preset, spec.mechanism)
    return completed


def _keep_targets(content: Mapping[str, Any], filled: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return a spec or table with the values of ``filled`` that the ``focus`` and ``workload`` of ``model`` decline."""
    completed = dict(content)
    if "focus" in filled and "focus" in completed:
        completed["focus"] = _keep_own(completed["focus"], filled["focus"], model.focus)
    if "workload" in filled and "workload" in completed:
        parts = zip(completed["workload"], filled["workload"], model.workload, strict=True)
        completed["workload"] = [_keep_own(part, as_filled, marginal) for part, as_filled, marginal in parts]
    return completed


def _keep_own(content: Mapping[str, Any], filled: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return ``content`` with the options of ``model`` that the preset's ``filled`` form of it has otherwise."""
    completed = dict(content)
    for name, value in filled.items():
        model_value = getattr(model, name, value)
        if isinstance(value, Mapping) and not isinstance(model_value, Mapping):
            if (nested := _keep_own(content.get(name, {}), value, model_value)) or name in content:
                completed[name] = nested
        elif name not in content and model_value != value:
            completed[name] = model_value
    return completed


def fill_split(options: Mapping[str, Any], focus: Any) -> dict[str, Any]:
    """Return ``options`` with SCORES_FOR_FOCUS, if ``focus`` asks for ``scores`` and no share is given."""
    split = options.get("split", {})
    if not isinstance(focus, Mapping) or focus.get("scores") is not True or not isinstance(split, Mapping):
        return dict(options)
    return dict(options) if {*SCORES_FOR_FOCUS} & {*split} else {**options, "split": {**SCORES_FOR_FOCUS, **split}}


def _can_be_measured(marginal: Any) -> bool:
    if not isinstance(marginal, Mapping):
        return False
    columns = marginal.get("columns")
    return "question" in marginal or (isinstance(columns, list | tuple) and 2 <= len(columns) <= MOST_MEASURED)


def leaves_bins_open(columns: Any) -> bool:
    """Return whether a column of numbers or moments has neither bins nor edges; ``columns``: as written."""
    described = map(_read_fields, columns.values() if isinstance(columns, Mapping) else ())
    return any(
        str(c.get("kind")) in ORDERED_KINDS and c.get("bins") is None and c.get("edges") is None for c in described
    )


def _read_fields(column: Any) -> Mapping[str, Any]:
    """Return the fields of a column, written or read."""
    return column if isinstance(column, Mapping) else getattr(column, "__dict__", {})


def find_open_values(preset: str, columns: Any) -> Mapping[str, Any]:
    """Return the values of ``preset`` for open options (empty: the defaults of 0.3); ``columns``: as written."""
    if preset == "paper":
        return PAPER
    if preset != "0.4":
        return {}
    return RELATIONS if leaves_bins_open(columns) else WIDE_RELATIONS if _has_many_in_order(columns) else {}


def _has_many_in_order(columns: Any) -> bool:
    """Return whether more than ALL_PAIRS_COLUMNS columns are released, and two or more of them have an order."""
    described = columns.values() if isinstance(columns, Mapping) else ()
    kinds = [kind for column in described if (kind := str(_read_fields(column).get("kind"))) != "drop"]
    return len(kinds) > ALL_PAIRS_COLUMNS and sum(kind in ORDERED_KINDS for kind in kinds) > 1


def apply_paper_preset(options: Mechanism) -> PrivSyn:
    """Return the paper's options; rows, seed and public limits on sizes stay as in ``options``."""
    values = fill_preset({}, PAPER)
    if isinstance(options, PrivSyn):
        values["selection"]["max_cells"] = options.selection.max_cells
        values["consistency"]["rounds"] = options.consistency.rounds
    values["synthesis"] |= {name: getattr(options.synthesis, name) for name in Rows.model_fields}
    return PrivSyn.model_validate(values)
