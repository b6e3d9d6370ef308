"""The operator's policy, enforced: the one place for the command line, Python, worker and schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from privsyn.base.calendar_periods import parse_period
from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl, is_url
from privsyn.base.settings import Settings
from privsyn.base.wording import Text, mention
from privsyn.data_contracts.promise import LENGTHS, DatasetPolicy, Policy
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.proposal import Proposal
from privsyn.specs.messages import describe_refused, describe_wrong_value, format_place, get_model_at, suggest_name
from privsyn.specs.yaml_file import Document, read_yaml
from privsyn.storage.table_files import list_folder_entries


def check_policy(proposal: Proposal) -> None:
    """Raise RequestError that names the rule if the operator's policy does not allow this release.

    Reads only the policy's file; without one, everything is allowed.
    """
    plan, spec = proposal.plan, proposal.spec
    policy = _list_rules(spec.dataset, proposal.settings)
    if policy is None:
        return
    rules, section = policy
    field, places = ("tables", spec.place.values()) if isinstance(spec.place, dict) else ("data", [spec.place])
    for place in places:
        _check_path(rules, section, place or None, field)
    _check_public_inputs(rules, section, spec)
    for field, value, most in (
        ("budget.epsilon", spec.budget.epsilon, rules.budget.epsilon),
        ("budget.delta", spec.budget.delta, rules.budget.delta),
        ("privacy.epsilon", spec.privacy.epsilon, rules.epsilon),
        ("privacy.delta", spec.privacy.delta, rules.delta),
    ):
        if value > most:
            rule = field.removeprefix("privacy.")
            raise _make_refusal(f"is {value:g}, and the policy's {section}.{rule} allows at most {most:g}", field)
    if rules.unit is not None and spec.unit != rules.unit:
        raise _make_refusal(f"is not the unit of the policy's {section}.unit, which is {rules.unit.describe()}", "unit")
    if plan.output is not None:
        _check_output(rules, section, plan.output, {"figures": "evaluate.epsilon_report"}.get(plan.output, "dataset"))
    else:
        for output in spec.formats:
            _check_output(rules, section, output, "formats")
    if plan.output != "figures":
        _check_period(rules, section, plan.period)
    if proposal.early is not None and not rules.early:
        raise _make_refusal(f"is not allowed by the policy's {section}.early", "release.early")


def check_formats(dataset: str, formats: Iterable[str], settings: Settings) -> None:
    """Raise RequestError that names the rule if the policy does not allow these formats for the data set."""
    policy = _list_rules(dataset, settings)
    if policy is not None:
        for output in formats:
            _check_output(*policy, output, "add_formats.formats")


def check_table(dataset: str, table: object, settings: Settings, field: str) -> None:
    """Raise RequestError that names the rule if the policy does not allow looks at ``table`` for the data set.

    ``table``: a path, or a table in memory; ``field``: the argument that names it.
    """
    policy = _list_rules(dataset, settings)
    if policy is not None:
        for one in table.values() if isinstance(table, Mapping) else (table,):
            _check_path(*policy, str(one) if isinstance(one, str | Path) else None, field)


def check_public_inputs(spec: ReleaseSpec, settings: Settings) -> None:
    """Raise RequestError that names the rule if the policy does not allow the place of a public input of the spec."""
    policy = _list_rules(spec.dataset, settings) if spec.public_inputs else None
    if policy is not None:
        _check_public_inputs(*policy, spec)


def check_dictionary(dataset: str, dictionary: Path, settings: Settings) -> None:
    """Raise RequestError that names the rule if the policy does not allow the place of a draft's dictionary."""
    policy = _list_rules(dataset, settings)
    if policy is not None:
        _check_public_place(*policy, dictionary, "draft_spec.dictionary")


def _check_public_inputs(rules: DatasetPolicy, section: str, spec: ReleaseSpec) -> None:
    for stated in spec.public_inputs:
        _check_public_place(rules, section, Path(stated.path), stated.field)


def _check_public_place(rules: DatasetPolicy, section: str, place: Path, field: str) -> None:
    is_prior = field.startswith("prior.")
    if not _is_within(place.resolve(), (*rules.public, *(rules.priors if is_prior else ()))):
        which = f"{section}.public or {section}.priors" if is_prior else f"{section}.public"
        raise _make_refusal(f"is not among the policy's {which}", field)


def _list_rules(dataset: str, settings: Settings) -> tuple[DatasetPolicy, str] | None:
    """Return the data set's rules and their place in the file; None without a policy."""
    if settings.policy is None:
        return None
    policy: Policy = load_policy(settings.policy)
    rules = policy.of(dataset)
    if rules is None:
        raise _make_refusal(
            f"{dataset!r} is not among the policy's datasets, and its `others` allows nothing", "dataset"
        )
    return rules, policy.place_of(dataset)


def _check_path(rules: DatasetPolicy, section: str, path: str | None, field: str) -> None:
    if path is None:
        if not rules.in_memory:
            raise _make_refusal(f"is a table in memory, which the policy's {section}.in_memory does not allow", field)
        return
    if is_url(path) and not DataUrl.parse(path, field).is_file:
        if not DataUrl.parse(path, field).is_within(rules.paths):
            raise _make_refusal(f"is not among the policy's {section}.paths", field)
        return
    place = (DataUrl.parse(path, field).file if is_url(path) else Path(path)).resolve()
    if not _is_within(place, rules.paths):
        raise _make_refusal(f"is not among the policy's {section}.paths", field)
    with suppress(OSError):  # a folder that cannot be listed cannot be read either; the source reports it
        for entry in list_folder_entries(place) if place.is_dir() else ():
            if not _is_within(entry.resolve(), rules.paths):
                raise _make_refusal(
                    f"holds the link {entry.name!r}, which leads outside the policy's {section}.paths", field
                )


def _is_within(place: Path, allowed: Iterable[str]) -> bool:
    """Return whether a path without links is one of the allowed ones, or inside one."""
    return any(place.is_relative_to(root) for root in allowed)


def _check_output(rules: DatasetPolicy, section: str, output: str, field: str) -> None:
    if output not in rules.outputs:
        raise _make_refusal(f"{output!r} is not among the policy's {section}.outputs", field)


def _check_period(rules: DatasetPolicy, section: str, period: str | None) -> None:
    if rules.period is None:
        return
    rule = f"the policy's {section}.period allows releases of one {rules.period} or longer"
    if period is None:
        raise _make_refusal(f"is missing, and {rule}", "release.period")
    length, _ = parse_period(period)
    if LENGTHS.index(length) < LENGTHS.index(rules.period):
        raise _make_refusal(f"{period!r} is one {length}, and {rule}", "release.period")


def _make_refusal(problem: str, field: str) -> RequestError:
    cure: Text = "Ask for what it allows, or ask the operator, who keeps the policy file (" + mention("settings.policy")
    return RequestError(problem, cure + "); nothing was read, nothing was spent", field)


EXAMPLE = "deployments/policy.yaml"
"""A policy to start from."""


def load_policy(path: Path) -> Policy:
    """Return the policy in the YAML file ``path``, its paths absolute and without links.

    Raises RequestError about the setting for a missing or invalid file: then nothing may be released.
    """
    try:
        document = read_yaml(path, EXAMPLE)
    except RequestError as error:
        raise error.about("settings.policy") from None
    try:
        policy = Policy.model_validate(document.content)
    except ValidationError as error:
        raise _refuse_file(error, document, path) from None
    folder = path.absolute().parent
    return Policy(
        datasets={name: _resolve_paths(rules, folder) for name, rules in policy.datasets.items()},
        others=None if policy.others is None else _resolve_paths(policy.others, folder),
    )


def _resolve_paths(rules: DatasetPolicy, folder: Path) -> DatasetPolicy:
    places = {
        name: tuple(p if is_url(p) else str((folder / p).resolve()) for p in getattr(rules, name))
        for name in ("paths", "public", "priors")
    }
    return DatasetPolicy(**{**dict(rules), **places})


def _refuse_file(error: ValidationError, document: Document, path: Path) -> RequestError:
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
