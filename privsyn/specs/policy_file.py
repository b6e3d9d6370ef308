"""Loading the operator's policy: YAML file -> Policy, or one clear RequestError."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from privsyn.base.data_url import is_url
from privsyn.base.errors import RequestError
from privsyn.data_contracts.policy import DatasetPolicy, Policy
from privsyn.specs.messages import describe_refused, describe_wrong_value, suggest_name
from privsyn.specs.places import format_place, get_model_at
from privsyn.specs.yaml_file import Document, read_yaml

EXAMPLE = "deployments/policy.yaml"
"""What a policy can be made from."""


def load_policy(path: Path) -> Policy:
    """Return the policy in the YAML file ``path``, its paths absolute and without links.

    Raises RequestError about the setting for a file that is missing or wrong: then nothing may be released.
    """
    try:
        document = read_yaml(path, EXAMPLE)
    except RequestError as error:
        raise error.about("settings.policy") from None
    try:
        policy = Policy.model_validate(document.content)
    except ValidationError as error:
        raise _make_refusal(error, document, path) from None
    folder = path.absolute().parent
    return policy.model_copy(
        update={
            "datasets": {name: _resolve_paths(rules, folder) for name, rules in policy.datasets.items()},
            "others": None if policy.others is None else _resolve_paths(policy.others, folder),
        }
    )


def _resolve_paths(rules: DatasetPolicy, folder: Path) -> DatasetPolicy:
    places = {
        name: tuple(p if is_url(p) else str((folder / p).resolve()) for p in getattr(rules, name))
        for name in ("paths", "public", "priors")
    }
    return rules.model_copy(update=places)


def _make_refusal(error: ValidationError, document: Document, path: Path) -> RequestError:
    first = error.errors(include_url=False)[0]
    place = first["loc"]
    line = document.line_of(place)
    where = f"{format_place(place)}{f' (line {line})' if line else ''} of {path.name}"
    if first["type"] == "extra_forbidden":
        known = list(get_model_at(Policy, place).model_fields)
        cure = suggest_name(str(place[-1]), known) or f"Known are {', '.join(known)}"
        return RequestError(f"{where} is not a rule", cure, "settings.policy")
    if first["type"] == "missing":
        return RequestError(f"{where} is missing", "Add it: it has no default", "settings.policy")
    problem, cure = (
        describe_refused(first["ctx"]["error"]) if first["type"] == "value_error" else describe_wrong_value(first)
    )
    return RequestError(f"{where} {problem}", cure or "Correct it", "settings.policy")
