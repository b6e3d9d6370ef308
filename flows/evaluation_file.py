"""Loading evaluation settings: YAML file -> EvaluationSpec, or one clear RequestError.

Belongs here: the way from a file and the command line's options to valid settings.  Does not belong here: YAML
itself (flows/yaml_file.py), the fields (data_contracts/evaluation_spec.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_contracts.evaluation_spec import EvaluationSpec
from flows.errors import RequestError
from flows.spec_messages import dotted, suggestion
from flows.yaml_file import Document, read_yaml


def load_evaluation_spec(path: Path | None, labels: Sequence[str] = ()) -> EvaluationSpec:
    """The settings in the YAML file ``path`` (None: the defaults), with the command line's ``labels``.

    Raises RequestError that names the field, its line and the cure.  Reads nothing but this one file.
    """
    document = Document({}, {}) if path is None else read_yaml(path)
    content: dict[str, Any] = dict(document.content)
    if labels:
        content["labels"] = list(labels)
    try:
        return EvaluationSpec.model_validate(content)
    except ValidationError as error:
        raise _in_words(error, document) from None


def _in_words(error: ValidationError, document: Document) -> RequestError:
    first = error.errors(include_url=False)[0]
    place = tuple(p for p in first["loc"] if p not in ("tuple[str, ...]", "literal['auto']"))
    line = next((document.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in document.lines), None)
    where = dotted(place) + (f" (line {line})" if line else "")
    if first["type"] == "extra_forbidden":
        known = list(EvaluationSpec.model_fields)
        return RequestError(
            "is not a field of the evaluation's settings",
            suggestion(str(place[-1]), known) or f"Known are {', '.join(known)}",
            where,
        )
    message = str(first["msg"]).removeprefix("Value error, ")
    return RequestError(message[:1].lower() + message[1:], "Correct it, or leave it out for its default", where)
