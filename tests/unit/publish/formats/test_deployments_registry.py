"""The registry entry against the registry's form, as written down here from its published schema.

FORM is this project's own reading of ``schemas/deployments-schema.yaml`` of opendp/deployments-registry-data: names,
types, choices and what is required, no wording.  PRIVSYN_REGISTRY_SCHEMA names a copy of the schema itself, where one
is at hand; then the entries are checked by that too.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml as yaml_1_1
from ruamel.yaml import YAML

from privsyn.publish.formats.deployments_registry import (
    NEEDED,
    build_registry_entry,
    format_registry_yaml,
    list_missing,
)
from privsyn.publish.formats.tables import DescribedRelease
from tests.support.described import ABOUT, CERTIFICATE, awkward, described
from tests.support.specs import make_spec

jsonschema = pytest.importorskip("jsonschema", reason="install privsyn-flows[formats-check]")

TEXT = {"type": "string"}
ANY: dict[str, Any] = {}


def one_of(*choices: str) -> dict[str, Any]:
    return {**TEXT, "enum": list(choices)}


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


CURATOR = {
    "type": "object",
    "required": ["data_curator_name", "data_curator_type"],
    "properties": {
        "data_curator_name": TEXT,
        "data_curator_type": one_of("Government", "Industry", "Nonprofit"),
    },
}
TEXT_OR_NUMBER = {"type": ["string", "number"]}
CITED = closed(
    **dict.fromkeys(("author", "title", "booktitle", "organization", "url", "doi", "publisher", "note"), TEXT),
    **dict.fromkeys(("year", "month", "number", "volume", "pages", "edition"), TEXT_OR_NUMBER),
)
"""Of the form's BibTeX fields those that this project might use; the form has more."""

EVIDENCE = one_of(
    "Peer-reviewed publication",
    "Formal publication by the deploying organization",
    "Authorized organizational attestation",
    "Other public source",
)
BASIC = closed(
    "name data_curators description intended_use data_product_type data_product_region publication_date",
    name=TEXT,
    data_curators={"type": "array", "items": CURATOR, "minItems": 1},
    description=TEXT,
    intended_use=TEXT,
    data_product_type=one_of(
        "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"
    ),
    data_product_region=TEXT,
    data_product_sector=one_of("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    publication_date={**TEXT, "format": "date"},
)
FORM = closed(
    "url_slug deployment",
    url_slug=TEXT,
    deployment=closed(
        "basic administrative",
        basic=BASIC,
        dp_variant=closed(
            variant_name=one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=closed(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=closed(epsilon={"type": "number"}, delta=TEXT_OR_NUMBER, rho={"type": "number"}),
            privacy_parameters_details=ANY,
        ),
        deployment_model=closed(
            model_name=one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            model_name_details=TEXT,
            trust_assumptions=TEXT,
            actors=ANY,
            release_type=one_of("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=one_of("Static", "Dynamic"),
            data_source_type_details=TEXT,
            access_type=one_of("Interactive", "Non-interactive"),
            access_type_details=TEXT,
        ),
        implementation=closed(
            preprocessing_and_hyperparameter_tuning=TEXT,
            mechanisms=TEXT,
            composition=TEXT,
            post_processing=TEXT,
            justification=TEXT,
            utility=ANY,
            additional_information=ANY,
        ),
        administrative=closed(
            "status registry_authors tier",
            evidence_sources={
                "type": "object",
                "patternProperties": {
                    r"^\w+$": {
                        "oneOf": [
                            closed(evidence_source_type=EVIDENCE, **{kind: CITED})
                            for kind in ("article", "book", "inproceedings", "manual", "misc", "techreport")
                        ]
                    }
                },
            },
            status=one_of(
                *("Converted", "Draft", "Pending", "Changes Required", "Approved"),
                *("Approved (Update Requested)", "Approved (Pending)"),
            ),
            registry_authors={"type": "array", "items": TEXT, "minItems": 1},
            tier={"type": "integer", "enum": [1, 2, 3]},
        ),
    ),
)
TIER_3 = {
    "dp_variant": "data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name trust_assumptions actors release_type access_type",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification",
}
"""What tier 3 adds, by the registry's own marks."""


def errors(text: str) -> list[str]:
    """What the form says of the entry, read as the registry reads it: YAML 1.1, JSON Schema draft 7, dates checked."""
    schemas = [FORM]
    given = os.environ.get("PRIVSYN_REGISTRY_SCHEMA")
    if given:
        schemas.append(yaml_1_1.safe_load(Path(given).read_text(encoding="utf-8")))
    entry = yaml_1_1.safe_load(text)
    check = jsonschema.Draft7Validator
    return [
        f"{'.'.join(map(str, e.path))}: {e.message}"
        for schema in schemas
        for e in check(schema, format_checker=check.FORMAT_CHECKER).iter_errors(entry)
    ]


@pytest.fixture
def release(tmp_path: Path) -> DescribedRelease:
    return described(awkward(), tmp_path)


def test_a_complete_entry_keeps_the_form_at_tier_3(release: DescribedRelease) -> None:
    assert errors(format_registry_yaml(release)) == []
    assert list_missing(release) == []
    deployment = build_registry_entry(release)["deployment"]
    for part, names in TIER_3.items():
        assert set(names.split()) <= set(deployment[part])
    assert deployment["administrative"]["tier"] == 3


@pytest.mark.parametrize("absent", NEEDED)
def test_what_only_the_publisher_knows_is_asked_for_and_not_made_up(absent: str, tmp_path: Path) -> None:
    about = {k: v for k, v in ABOUT.items() if k != absent}
    text = format_registry_yaml(described(make_spec(about=about), tmp_path))
    assert f"about.{absent}" in text.split("\nurl_slug")[0]
    found = errors(text)
    assert found
    assert all("is a required property" in e for e in found)


def test_without_anything_only_required_fields_are_missing(tmp_path: Path) -> None:
    found = errors(format_registry_yaml(described(make_spec(), tmp_path)))
    named = {e.partition(": ")[2].split("'")[1] for e in found}
    assert named == {"data_curators", "intended_use", "data_product_region", "publication_date", "registry_authors"}


def test_the_figures_are_the_certificates(release: DescribedRelease) -> None:
    loss = build_registry_entry(release)["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": CERTIFICATE.epsilon, "delta": CERTIFICATE.delta}
    words = build_registry_entry(release)["deployment"]["implementation"]
    for stage in CERTIFICATE.stages:
        assert stage.reason in words["mechanisms"]
        for group in stage.groups:
            assert f"{group.sensitivity}" in words["mechanisms"]
    total = CERTIFICATE.dataset_total
    assert f"epsilon {total.epsilon_cap:g} at delta {total.delta:g}" in words["composition"]
    assert CERTIFICATE.composition in words["composition"]
    assert CERTIFICATE.unit_of_protection in loss["privacy_unit_details"]


def test_further_rounds_are_told_apart(tmp_path: Path) -> None:
    release = described(make_spec(adaptive={"rounds": 2}), tmp_path)
    last = CERTIFICATE.stages[-1]
    again = [last.model_copy(update={"step": f"measure_again_{i}"}) for i in (2, 3)]
    certificate = CERTIFICATE.model_copy(update={"stages": [*CERTIFICATE.stages, *again]})
    words = build_registry_entry(replace(release, certificate=certificate))["deployment"]["implementation"]
    for number in (2, 3):
        assert f"joint counts where these rows were far from the table, round {number}: " in words["mechanisms"]
        assert f"joint counts where these rows were far from the table, round {number}: budget" in words["composition"]
    assert "say where to ask again" in words["post_processing"]


def test_numbers_and_texts_are_the_same_in_both_versions_of_yaml(tmp_path: Path) -> None:
    awkward_texts = {
        "title": "no",
        "region": "2026-11-21",
        "intended_use": "1e-9: yes\n  - # not a comment\n\ttab {a: b}",
        "justification": "ends in spaces   \nand 'quotes' \"both\"\\n\x7f",
        "description": "\n\n- begins empty\nü \u2028 \ud7ff 𝔸\n",
    }
    release = described(make_spec(about={**ABOUT, **awkward_texts}), tmp_path)
    text, entry = format_registry_yaml(release), build_registry_entry(release)
    assert yaml_1_1.safe_load(text) == YAML(typ="safe").load(text) == entry
    assert isinstance(yaml_1_1.safe_load(text)["deployment"]["privacy_loss"]["privacy_parameters"]["delta"], float)
    assert errors(text) == []


def test_no_scalar_is_folded(release: DescribedRelease) -> None:
    styles = {t.style for t in yaml_1_1.scan(format_registry_yaml(release)) if isinstance(t, yaml_1_1.ScalarToken)}
    assert styles <= {None, '"', "'", "|"}


def test_the_number_of_people_is_the_noisy_one_or_absent(tmp_path: Path) -> None:
    def units(name: str, **changes: Any) -> int | None:
        entry = build_registry_entry(described(make_spec(**changes), tmp_path / name, rows=40))
        return entry["deployment"]["privacy_loss"].get("number_of_privacy_units")

    assert units("estimated") == 40
    assert units("asked", synthesis={"rows": 40}) is None


def test_a_slug_is_never_empty(tmp_path: Path) -> None:
    about = {"title": "数据", "publisher": "統計"}
    assert build_registry_entry(described(make_spec(about=about), tmp_path))["url_slug"] == CERTIFICATE.run
