"""``registry.yaml``: an entry for the OpenDP Deployments Registry, with the fields of its tier 3.

The schema is in https://github.com/opendp/deployments-registry-data (schemas/deployments-schema.yaml, fields ``basic``
to ``administrative``).

Required facts that only the publisher knows come from the spec's ``about``.  A missing fact is left out, and the first
lines of the file say so: an invented curator or date would be a false statement.
"""

from __future__ import annotations

import io
import re
from typing import Any

from privsyn.data_contracts.certificate import StageCost
from privsyn.engine.step import LookDescription, say
from privsyn.publish.formats.tables import DescribedRelease
from privsyn.publish.markdown import format_rho

NAME = "registry.yaml"
NEEDED = ("publisher", "publisher_type", "intended_use", "region", "published")
"""Fields of ``about`` that the schema requires."""

_HEAD = (
    "Entry for the OpenDP Deployments Registry, https://registry.opendp.org: check it, then send it as a pull request",
    "to https://github.com/opendp/deployments-registry-data.",
)
_PAPER = {
    "author": "Z. Zhang, T. Wang, N. Li, J. Honorio, M. Backes, S. He, J. Chen, Y. Zhang",
    "title": "PrivSyn: Differentially Private Data Synthesis",
    "booktitle": "30th USENIX Security Symposium",
    "year": 2021,
}


def build_registry_entry(release: DescribedRelease) -> dict[str, Any]:
    """Return the entry as a mapping without empty fields."""
    about = release.about
    words = (release.title, about.publisher, str(about.published.year) if about.published else "")
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    return _fill(
        {
            "url_slug": slug or release.certificate.run,
            "deployment": {
                "basic": _describe_basics(release),
                "dp_variant": _describe_variant(release),
                "privacy_loss": _describe_privacy_loss(release),
                "deployment_model": _describe_model(release),
                "implementation": _describe_implementation(release),
                "administrative": _describe_administration(release),
            },
        }
    )


def list_missing(release: DescribedRelease) -> list[str]:
    """Return the empty fields of the spec that the schema requires."""
    return [f"about.{name}" for name in NEEDED if not getattr(release.about, name)]


def format_registry_yaml(release: DescribedRelease) -> str:
    """Return the entry as YAML that means the same in versions 1.1 and 1.2: text quoted, no folding, no anchors."""
    from ruamel.yaml import YAML  # here: only publishing writes it

    yaml = YAML()
    yaml.width, yaml.allow_unicode, yaml.default_flow_style = 1_000_000, True, False
    yaml.representer.add_representer(float, _represent_float)
    text = io.StringIO()
    yaml.dump(_quote(build_registry_entry(release)), text)
    lines = list(_HEAD)
    absent = list_missing(release)
    if absent:
        lines.append(f"NOT COMPLETE: the registry also requires fields that the spec lacks: {', '.join(absent)}.")
        lines.append("Fill them in and run the release again: that costs nothing.")
    return "".join(f"# {line}\n" for line in lines) + text.getvalue()


def _describe_basics(release: DescribedRelease) -> dict[str, Any]:
    about = release.about
    curator = {"data_curator_name": about.publisher, "data_curator_type": about.publisher_type}
    return {
        "name": release.title,
        "data_curators": [curator] if all(curator.values()) else [],
        "description": release.description,
        "intended_use": about.intended_use,
        "data_product_type": "Synthetic data",
        "data_product_region": about.region,
        "data_product_sector": about.sector,
        "publication_date": about.published.isoformat() if about.published else "",
    }


def _describe_variant(release: DescribedRelease) -> dict[str, Any]:
    return {
        "variant_name": "Approximate DP",
        "data_domain": describe_domain(release),
        "unprotected_quantities": "None is computed from the private table. Public by the publisher's choice are the "
        "request (columns, their order and types, domains, bins, settings), the data set's name, and the sums of the "
        "privacy ledger.",
    }


def _describe_privacy_loss(release: DescribedRelease) -> dict[str, Any]:
    c = release.certificate
    estimated = release.spec.mechanism.synthesis.rows == "auto" and release.certificate.records_per_person == 1
    return {
        "privacy_unit": "Person-level",
        "privacy_unit_details": describe_unit(release),
        "number_of_privacy_units": release.rows if estimated else None,
        "privacy_parameters": {"epsilon": c.epsilon, "delta": c.delta},
        "privacy_parameters_details": f"The release may cost rho {format_rho(c.rho_budget)} and spent "
        f"{format_rho(c.rho_spent)} of "
        f"it, in the price that its accountant ({c.accountant}) adds up: {c.price}.",
    }


def _describe_model(release: DescribedRelease) -> dict[str, Any]:
    total = release.certificate.dataset_total
    return {
        "model_name": "Central",
        "model_name_details": "The publisher holds the private table and runs the program on it; only files made from "
        "noisy counts leave.",
        "trust_assumptions": "People in the table trust the publisher, the machine and the program with their records. "
        "Where the number of records of a person is declared and not enforced, they also trust that statement. Nobody "
        "else is trusted: the promise holds against everyone who reads the released files, whatever else they know.",
        "actors": "- The publisher, who holds the private table and its ledger.\n"
        "- Everyone who receives the released files.",
        "release_type": "One release",
        "release_type_details": "This entry is about one release, published once. All releases of the data set, "
        f"future ones included, keep its lifetime cap of epsilon {total.epsilon_cap:g} at delta {total.delta:g}. With "
        f"this one, epsilon {total.epsilon:.6g} is used, counted at that delta. A ledger refuses what would pass "
        "the cap.",
        "access_type": "Non-interactive",
        "access_type_details": "Recipients get files; they cannot query the private table.",
    }


def _describe_implementation(release: DescribedRelease) -> dict[str, Any]:
    return {
        "preprocessing_and_hyperparameter_tuning": describe_preprocessing(release),
        "mechanisms": describe_mechanisms(release),
        "composition": describe_composition(release),
        "post_processing": post_processing(release),
        "justification": release.about.justification
        or "The publisher's public request sets epsilon, delta and the unit of protection, and does not say why.",
        "utility": describe_utility(release),
        "additional_information": f"Release {release.certificate.run}. certificate.json holds the exact figures and "
        "the argument, manifest.json the request, the versions and the SHA-256 of every file.",
    }


def _describe_administration(release: DescribedRelease) -> dict[str, Any]:
    about = release.about
    homepage = {"title": release.title, "url": about.homepage, "organization": about.publisher}
    formal = {"evidence_source_type": "Formal publication by the deploying organization", "misc": homepage}
    return {
        "evidence_sources": {
            "method": {"evidence_source_type": "Peer-reviewed publication", "inproceedings": _PAPER},
            "release": formal if about.homepage else {},
        },
        "status": "Draft",
        "registry_authors": [about.publisher] if about.publisher else [],
        "tier": 3,
    }


def _fill(value: Any) -> Any:
    """Return the value without its empty parts: texts, lists, mappings and null."""
    if isinstance(value, dict):
        inner = {key: _fill(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in ("", None, [], {})}
    return value


def _quote(value: Any) -> Any:
    """Return the value with its texts quoted, so that no reader takes one for a date, a number or a boolean."""
    if isinstance(value, dict):
        return {key: _quote(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quote(item) for item in value]
    if not isinstance(value, str):
        return value
    lines = value.split("\n")
    plain = all(line == line.rstrip() and line.isprintable() for line in lines)
    as_block = len(lines) > 1 and plain and lines[0] and not lines[0].startswith(" ") and lines[-1]
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    return LiteralScalarString(value) if as_block else DoubleQuotedScalarString(value)


def _represent_float(representer: Any, value: float) -> Any:
    """Write 1.0e-09, since YAML 1.1 reads 1e-09 as text."""
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return representer.represent_scalar("tag:yaml.org,2002:float", text)


NAMED_COLUMNS = 100
"""Largest number of columns that are named; the rest are counted."""


def describe_unit(release: DescribedRelease) -> str:
    """Return the definition of neighbouring tables."""
    c = release.certificate
    k = c.records_per_person
    return (
        f"Two tables are adjacent if one is the other with {c.unit_of_protection} added or removed: their symmetric "
        f"difference has at most {k} record{'' if k == 1 else 's'}. The number of records is not public; any number of "
        "privacy units given here is a noisy estimate."
    )


def describe_domain(release: DescribedRelease) -> str:
    """Return the domain of the protected tables."""
    names = list(release.ranges)
    shown = ", ".join(names[:NAMED_COLUMNS])
    more = f" and {len(names) - NAMED_COLUMNS:,} more" if len(names) > NAMED_COLUMNS else ""
    unread = ", ".join(release.spec.unmeasured_columns)
    unread = f" Not looked at, and drawn at random from the request alone: {unread}." if unread else ""
    return (
        f"Tables of any number of records with {len(names):,} column{'' if len(names) == 1 else 's'} ({shown}{more}), "
        f"each with the domain that the public request states (manifest.json).{unread}"
    )


def describe_preprocessing(release: DescribedRelease) -> str:
    """Return the processing before any noise, and the tuning."""
    unit = release.spec.unit
    words = "All rows are used; the publisher states how many a person has at most."
    if unit.identifier is not None:
        words = f"At most {unit.records} rows per {unit.one} are kept, by the column {unit.identifier}; rows without "
        words += "it are dropped."
        words += "" if release.spec.panel is None else " One record is made from them before anything is counted."
    return (
        "Domains, bounds and bins come from the public request, never from the private table. Values outside, and "
        f"unwanted nulls, are clamped or replaced as the request says. {words} Settings are "
        "constants of the program or public choices in the request. None is tuned on the private table. "
        "It does not know what the publisher did before writing the request."
    )


def describe_mechanisms(release: DescribedRelease) -> str:
    """Return every look at the private table: number of queries, sensitivity and noise."""
    c = release.certificate
    versions = {name: release.versions.get(name, "") for name in ("opendp", "privsyn-flows")}
    looks = "\n".join(f"- {_describe_look(stage, release.find_look(stage))}" for stage in c.stages)
    return (
        "The discrete Gaussian mechanism on vectors of integer counts, with sensitivity in the "
        f"{c.sensitivity}; {sum(g.queries for s in c.stages for g in s.groups):,} queries in {len(c.stages)} looks:\n"
        f"{looks}\n"
        f"- Noise is drawn by OpenDP {versions['opendp']}".rstrip()
        + " as exact integers, without floating-point numbers, "
        "and seeded by the system's randomness only.\n"
        "- Side channels (running time, memory) are not covered; no running times are published.\n"
        "- What the program itself writes of private rows (encoded rows, intermediate results, noise not yet settled) "
        "stays in folders that it makes for the publisher's account alone. The publisher decides where the private "
        "table is and who can read it.\n"
        f"- Software: privsyn-flows {versions['privsyn-flows']}".rstrip()
        + " (PrivSyn, Zhang et al., USENIX Security 2021)."
    )


def describe_composition(release: DescribedRelease) -> str:
    """Return the composition of prices to the promise, and the data set's lifetime cap."""
    c, total = release.certificate, release.certificate.dataset_total
    costs = "\n".join(
        f"- {release.find_look(s).words}: budget rho {format_rho(s.rho_budget)}, spent {format_rho(s.rho_spent)}"
        for s in c.stages
    )
    return (
        f"Accountant {c.accountant}: {c.composition}.\n{costs}\n"
        f"- Sum of this release: budget rho {format_rho(c.rho_budget)}, spent {format_rho(c.rho_spent)}; later "
        "queries depend on earlier noisy answers, the budgets do not.\n"
        f"- Lifetime of the data set: cap rho {format_rho(total.rho_cap)} (epsilon {total.epsilon_cap:g} at delta "
        f"{total.delta:g}, accountant {total.accountant}). Used so far, with this release: rho "
        f"{format_rho(total.rho)} (epsilon {total.epsilon:.6g}). An append-only ledger reserves every cost before "
        "anything is counted, and refuses a release that would exceed the cap."
    )


def post_processing(release: DescribedRelease) -> str:
    """Return the steps on the noisy answers; no such step looks at the private table."""
    plan = release.plan
    words = dict.fromkeys(say(step.words, plan.request) for step in plan.steps)
    return "\n".join(f"- {each}" for each in words if each)


def describe_utility(release: DescribedRelease) -> str:
    """Return the noise, which is public, as the measure of utility; no comparison with the private table is."""
    spans = "; ".join(
        f"{release.find_look(s).words}: {_describe_noise(s, release.find_look(s))}" for s in release.certificate.stages
    )
    return (
        f"Standard deviation of the noise. {spans[:1].upper()}{spans[1:]}. marginals/ holds every noisy count with its "
        "noise. Nothing that compares the rows with the private table is in these files."
    )


def _describe_look(stage: StageCost, look: LookDescription) -> str:
    queries, cells = (sum(getattr(g, name) for g in stage.groups) for name in ("queries", "cells"))
    sensitivities = " to ".join(f"{s:g}" for s in sorted({g.sensitivity for g in stage.groups})) or "none"
    counted = f"{_format_number(queries, 'query', 'queries')}, {_format_number(cells, 'cell', 'cells')}"
    noise = f"standard deviation {_describe_noise(stage, look)}"
    return f"{look.words}: {counted}, sensitivity {sensitivities} ({stage.reason}), {noise}"


def _format_number(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def _describe_noise(stage: StageCost, look: LookDescription) -> str:
    sigmas = [g.sigma for g in stage.groups]
    if not sigmas:
        return "none, since there were no queries"
    return " to ".join(dict.fromkeys(f"{s:,.4g}" for s in (min(sigmas), max(sigmas)))) + f" of {look.noise_of}"
