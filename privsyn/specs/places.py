"""Places in a spec: the path of a field, as the file's author wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from privsyn.data_contracts import columns as kinds_module
from privsyn.data_contracts import mechanism_options
from privsyn.data_contracts.earlier_spellings import as_written
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.linked_tables import OF_ROWS
from privsyn.data_contracts.release_spec import ReleaseSpec

KINDS: dict[str, type[BaseModel]] = {
    "integer": kinds_module.IntegerColumn,
    "number": kinds_module.NumberColumn,
    "datetime": kinds_module.DatetimeColumn,
    "date": kinds_module.DateColumn,
    "time": kinds_module.TimeColumn,
    "categorical": kinds_module.CategoricalColumn,
    "boolean": kinds_module.BooleanColumn,
    "drop": kinds_module.DropColumn,
}

MECHANISMS: dict[str, type[BaseModel]] = {
    "privsyn": mechanism_options.PrivSyn,
    "adaptive": mechanism_options.Adaptive,
    "independent": mechanism_options.Independent,
    "mst": mechanism_options.Mst,
    "privbayes": mechanism_options.PrivBayes,
    "aim": mechanism_options.Aim,
    "prior": mechanism_options.PriorLevels,
}

RULES = ("never", "derive", "lookup", "one_of")

_BRANCHES = {"bool", "int", "float", "str"}


def locate_written(place: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """Return the place as the file spells it.

    Options of a mechanism may be at its top level or have earlier names; columns and fields about rows may be in a
    table of ``tables``.
    """
    spellings = [*_spell_inside_tables(place, lines), *as_written(place)]
    written = [spelling for spelling in spellings if spelling in lines]
    above = [spelling for spelling in spellings if any(spelling[: len(each)] == each for each in lines if each)]
    return (written or above or spellings)[0]


def _spell_inside_tables(
    place: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]
) -> list[tuple[str | int, ...]]:
    """Return the spellings of ``place`` inside tables of the file that have it."""
    inside = place
    if place[:1] == ("unit",) and place[-1] == "max_records":
        inside = ("max",)
    elif place[:1] not in (("columns",), *((field,) for field in OF_ROWS)):
        return []
    tables = [here[1] for here in lines if len(here) == 2 and here[0] == "tables"]
    return [("tables", table, *inside) for table in tables if ("tables", table, *inside[:2]) in lines]


def drop_table(place: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a place without the table that the column is in; other places unchanged."""
    return place[2:] if place[:1] == ("tables",) and place[2:3] == ("columns",) else place


def format_place(place: Sequence[str | int]) -> str:
    """Return a place as text such as ``columns.age.min``, with unusual names quoted and list positions in brackets."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[\w-]+", part) is not None
            text += ("." if text else "") + (clip_text(part) if plain else f'"{clip_text(part)}"')
    return text or "the spec"


def clip_text(text: str, limit: int = 60) -> str:
    """Return the text, cut to ``limit`` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def locate_field(entry: Any) -> tuple[str | int, ...]:
    """Return the place of a pydantic error in the spec, without pydantic's names of union branches."""
    parts = list(entry["loc"])
    if len(parts) > 2 and parts[0] == "columns" and parts[2] in KINDS:
        del parts[2]
    if len(parts) > 2 and parts[0] == "rules" and parts[2] in RULES:
        del parts[2]
    if len(parts) > 1 and parts[0] == "mechanism" and parts[1] in MECHANISMS:
        del parts[1]
    if (
        len(parts) > 1
        and isinstance(parts[-1], str)
        and (
            parts[-1].startswith("literal[")
            or parts[-1] == "[key]"
            or (parts[-1] in _BRANCHES and (isinstance(parts[-2], int) or parts[-2] == "rows"))
        )
    ):
        parts.pop()
    error = entry.get("ctx", {}).get("error")
    return (*parts, *(error.place if isinstance(error, FieldError) else ()))


def get_model_at(root: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """Return the model inside ``root`` that has the last field of ``place``; models of a union are not entered."""
    model = root
    for part in place[:-1]:
        field = model.model_fields.get(str(part))
        inner = [] if field is None else list(_iterate_models(field.annotation))
        model = inner[0] if len(inner) == 1 else model
    return model


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _iterate_models(part)


def get_model(place: Sequence[str | int], kind: str | None = None) -> type[BaseModel]:
    """Return the model that has the last field of ``place`` in a spec.

    ``kind``: the kind of the column, or the name of the mechanism, around it.
    """
    if kind in MECHANISMS:
        return get_model_at(MECHANISMS[kind], place[1:])
    return KINDS[kind] if kind in KINDS and place[0] == "columns" else get_model_at(ReleaseSpec, place)
