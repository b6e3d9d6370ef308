"""Earlier spellings of a release spec: translated to today's, or refused with a message if they are gone.

Before there were several mechanisms, the mechanism's options were at the top of a spec; this still works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privsyn.data_contracts.frozen_model import FieldError

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
    """Return the merged options from the top of a spec and from its ``mechanism``.

    Raises FieldError if they give a field different values.
    """
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
