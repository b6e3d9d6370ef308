"""DDI codebooks (versions 1 and 2): the variables of an XML file, read by defusedxml.

Statistics of the rows (``sumStat``, ``catStat``) depend on private data and are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privsyn.base.registry import need_package
from privsyn.specs.dictionaries import (
    Dictionary,
    Facts,
    bound_of,
    format_value,
    list_values,
    make_unreadable_error,
    parse_range,
    parse_whole_number,
)

_FORM = "DDI codebook"


def read(path: Path, table: str) -> Dictionary:
    """Return the facts about every ``var``; of several files, those about the one called ``table``, if there is one."""
    with need_package("defusedxml", f"reading a {_FORM}", "codebooks", "draft_spec.dictionary"):
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, parse
    try:
        root = parse(path).getroot()
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        raise make_unreadable_error(path.name, _FORM) from None
    variables = [e for e in root.iter() if _get_tag(e) == "var"]
    if not variables:
        raise make_unreadable_error(path.name, f"{_FORM}: it has no `var`")
    files = {e.get("ID"): _get_text(_find_first(e, "fileName")) for e in root.iter() if _get_tag(e) == "fileDscr"}
    wanted = {key for key, name in files.items() if name.partition(".")[0] == table}
    mine = [v for v in variables if not wanted or wanted & set((v.get("files") or "").split())]
    return Dictionary(path.name, {format_value(v.get("name")): _read_column(v) for v in mine})


def _read_column(variable: Any) -> Facts:
    label, question = _get_text(_find_child(variable, "labl")), _get_text(_find_first(variable, "qstnLit"))
    facts = Facts(description=label or question, unit=format_value(variable.get("measUnit")), nullable=True)
    facts.universe = _get_text(_find_child(variable, "universe"))
    form = _find_child(variable, "varFormat")
    is_text = form is not None and form.get("type") == "character"
    categories = [c for c in variable if _get_tag(c) == "catgry" and c.get("missing") != "Y"]
    continuous = variable.get("intrvl") == "contin"
    if categories and not continuous:
        facts.kind = "categorical"
        codes = [_get_text(_find_child(c, "catValu")) for c in categories]
        facts.values = list_values(codes if is_text else _parse_numbers(codes), facts)
        facts.labels = [_get_text(_find_child(c, "labl")) for c in categories]
    elif form is not None and form.get("category") in ("date", "time"):
        facts.kind, facts.type = "datetime", "date"
    elif is_text:
        facts.kind = "categorical"
    else:
        decimals = parse_whole_number(format_value(variable.get("dcml"))) or 0
        facts.decimals = decimals if 0 < decimals <= 15 else None
        facts.kind = "number" if facts.decimals else "integer"
    _read_bounds(variable, facts, label)
    return facts


def _read_bounds(variable: Any, facts: Facts, label: str) -> None:
    """Read bounds from ``valrng``, else from the label; note values that mean missing."""
    within = _find_child(variable, "valrng")
    range_node = _find_child(within, "range")
    if range_node is not None:
        facts.min, facts.max = bound_of(range_node.get("min"), facts.kind), bound_of(range_node.get("max"), facts.kind)
    elif (limits := parse_range(label)) is not None:
        facts.min, facts.max = (bound_of(limit, facts.kind) for limit in limits)
    if any(_get_tag(e) == "sumStat" for e in variable) and facts.min is None and facts.kind in ("integer", "number"):
        facts.remarks.append("the codebook's minimum and maximum are statistics of the data (sumStat), not public")
    missing = [format_value(i.get("VALUE")) for i in _find_child(variable, "invalrng") or () if _get_tag(i) == "item"]
    if missing:
        facts.remarks.append(f"values that mean missing: {', '.join(missing[:8])}; list them in `null_values`")


def _parse_numbers(codes: list[str]) -> list[Any]:
    """Return the codes as whole numbers if all are whole numbers without leading zeros, else as text."""
    numbers = [parse_whole_number(code) for code in codes]
    return list(codes) if None in numbers else numbers


def _get_tag(element: Any) -> str:
    """Return the element's name without its namespace; empty for comments."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _find_child(element: Any, name: str) -> Any:
    return None if element is None else next((e for e in element if _get_tag(e) == name), None)


def _find_first(element: Any, name: str) -> Any:
    return next((e for e in element.iter() if _get_tag(e) == name), None)


def _get_text(element: Any) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())
