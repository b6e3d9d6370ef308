"""Load evaluation settings: YAML file -> EvaluationSpec, or one RequestError."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.data_contracts.evaluation import EvaluationSpec, IncomeColumns, MgdSpec
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.evaluation.coded_tables import compare_by_mgd, encode_table
from privsyn.specs.messages import describe_refused, describe_wrong_value, format_place, get_model_at, suggest_name
from privsyn.specs.yaml_file import Document, read_yaml
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codec

EXAMPLE = "an evaluation's fields as YAML, such as `k: 2`"
"""An example of settings, for cures."""


def load_evaluation_spec(path: Path | None, labels: Sequence[str] | Literal["auto"] = ()) -> EvaluationSpec:
    """Return the settings in the YAML file ``path`` (None: the defaults); ``labels`` replace the file's.

    Raises RequestError that names the field, its line and the cure.  Reads only this file.
    """
    try:
        document = Document({}, {}) if path is None else read_yaml(path, EXAMPLE)
    except RequestError as error:
        raise error.about("evaluate.settings") from None
    content: dict[str, Any] = dict(document.content)
    if labels:
        content["labels"] = labels if labels == "auto" else list(labels)
    try:
        return EvaluationSpec.model_validate(content)
    except ValidationError as error:
        refusal = _make_refusal(error, document)
        raise (refusal.about("evaluate.labels") if labels and refusal.field == "labels" else refusal) from None


def _make_refusal(error: ValidationError, document: Document) -> RequestError:
    first = error.errors(include_url=False)[0]
    place = _locate(first["loc"])
    line = document.line_of(place)
    where = format_place(place)
    if first["type"] == "extra_forbidden":
        fields = list(get_model_at(EvaluationSpec, place).model_fields)
        inside = "the evaluation's settings" if len(place) == 1 else f"`{format_place(place[:-1])}`"
        return RequestError(
            f"is not a field of {inside}",
            suggest_name(str(place[-1]), fields) or f"Known are {', '.join(fields)}",
            where,
            line,
        )
    if first["type"] == "missing":
        return RequestError("is missing", f"Add it, or leave out `{format_place(place[:-1])}`", where, line)
    if first["type"] == "value_error":
        problem, cure = describe_refused(first["ctx"]["error"])
    else:
        problem, cure = describe_wrong_value(first, _describe_rule(first["type"], place))
    return RequestError(problem, f"{cure or 'Correct it'}, or leave it out for its default", where, line)


def _locate(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a field's place in the file, without pydantic's names of types."""
    parts = loc[:-1] if "weights" in loc[:-2] and loc[-1] == "float" else loc
    return tuple(p for p in parts if not str(p).startswith(("tuple[", "literal[", "dict[", "list[")))


def _describe_rule(type_: str, place: tuple[int | str, ...]) -> str:
    """Return what a value with several types must be; empty for other fields."""
    if place == ("labels",):
        return "`auto` or a list of columns, such as [sex, region]"
    if place[:2] == ("mgd", "hierarchies") and len(place) > 2:
        return "a list of labels, or named groups of labels"
    return "a number or `infinite`" if "weights" in place[:-1] and type_.startswith("float") else ""


def check_settings(spec: EvaluationSpec, encoding: EncodingPlan, unmeasured: Collection[str]) -> None:
    """Raise RequestError that names the field if the settings do not fit the released columns; needs no rows.

    ``encoding``: of the compared columns; ``unmeasured``: released columns that are not compared.
    """
    codecs = {c.attribute: c for c in encoding.codecs}
    named = [("groups", c) for c in spec.groups]
    named += [("labels", c) for c in (spec.labels if spec.labels != "auto" else ())]
    if spec.pie is not None:
        named += [(f"pie.{n}", c) for n, c in spec.pie.model_dump().items()]
    if spec.income is not None:
        named += [(f"income.{n}", c) for n, c in spec.income.model_dump(exclude={"sexes"}).items()]
    mgd_names = [*spec.mgd.hierarchies, *spec.mgd.bins_of_bins, *(c for m in spec.mgd.marginals for c in m.attributes)]
    for place, column in [*named, *(("mgd", name) for name in mgd_names)]:
        if column in unmeasured:
            raise RequestError(f"the column {column!r} {NOT_MEASURED}", "Name one that was measured", place)
    for place, column in named:
        if column not in codecs:
            cure = suggest_name(column, list(codecs)) or "Name one of its columns"
            raise RequestError(f"the release has no column {column!r}", cure, place)
    for section in ("pie", "income"):
        columns = [c for place, c in named if place.startswith(section)]
        if len(set(columns)) < len(columns):
            raise RequestError("names one column twice", "Name three different columns", section)
    if spec.income is not None:
        _check_income(spec.income, codecs)
    if spec.mgd != MgdSpec():
        nothing = encode_table([], encoding).bins
        compare_by_mgd(nothing, nothing, spec.mgd, encoding)  # fails if the settings do not fit the columns


def _check_income(columns: IncomeColumns, codecs: Mapping[str, Codec]) -> None:
    wages = codecs[columns.wage].values(fine=True)
    if wages is None or np.nanmin(wages) < 0:
        raise RequestError("must be numeric and not below zero", "Name another column", "income.wage")
    labels = codecs[columns.sex].bin_labels()
    if columns.sexes is None and len(labels) < 2:
        raise RequestError("has fewer than two public values", "Name another column", "income.sex")
    for sex in columns.sexes or ():
        if sex not in labels:
            raise RequestError(f"{sex!r} is not a value of {columns.sex!r}", "Name two of its values", "income.sexes")
    if columns.sexes is not None and columns.sexes[0] == columns.sexes[1]:
        raise RequestError("names one value twice", "Name two different values", "income.sexes")
