"""The longer texts of the registry entry: unit, mechanisms, composition, post-processing, from certificate and spec."""

from __future__ import annotations

from fractions import Fraction

from privsyn.data_contracts.certificate import StageCost
from privsyn.engine.step import Look
from privsyn.publish.formats.described import Described

NAMED_COLUMNS = 100
"""Columns that are named one by one; longer lists are cut and counted."""


def describe_unit(release: Described) -> str:
    """Return what neighbouring tables are."""
    c = release.certificate
    k = c.records_per_person
    return (
        f"Two tables are adjacent if one is the other with {c.unit_of_protection} added or removed: their symmetric "
        f"difference has at most {k} record{'' if k == 1 else 's'}. The number of records is not public; a number of "
        "privacy units beside this, if any, is a noisy estimate."
    )


def describe_domain(release: Described) -> str:
    """Return which tables are protected."""
    names = list(release.ranges)
    shown = ", ".join(names[:NAMED_COLUMNS])
    more = f" and {len(names) - NAMED_COLUMNS:,} more" if len(names) > NAMED_COLUMNS else ""
    return (
        f"Tables of any number of records with {len(names):,} column{'' if len(names) == 1 else 's'} ({shown}{more}), "
        f"each with the domain that the public request states (manifest.json).{_describe_unread(release)}"
    )


def _describe_unread(release: Described) -> str:
    """Return which columns no look asks about; nothing without any."""
    names = ", ".join(release.spec.unmeasured_columns)
    return f" Not looked at, and drawn at random from the request alone: {names}." if names else ""


def describe_preprocessing(release: Described) -> str:
    """Return what happens before any noise, and what was tuned."""
    unit = release.spec.unit
    kept = "All rows are taken as they are; how many a person has is the publisher's statement."
    if unit.identifier is not None:
        kept = (
            f"At most {unit.records} rows a {unit.one} are kept, by the column {unit.identifier}, and none without it."
        )
        kept += "" if release.spec.panel is None else " One record is made of them before anything is counted."
    return (
        "Domains, bounds and bins come from the public request, never from the private table. Values outside are "
        f"clamped, or go where the request says; so does null where it is not wanted. {kept} Settings are constants of "
        "the program or public choices in the request; the program tunes none on the private table. What the publisher "
        "did before writing the request is not known to it."
    )


def describe_mechanisms(release: Described) -> str:
    """Return every look at the private table: how many queries, their sensitivity, their noise."""
    c = release.certificate
    versions = {name: release.versions.get(name, "") for name in ("opendp", "privsyn-flows")}
    looks = "\n".join(f"- {_look(stage, release.look(stage))}" for stage in c.stages)
    return (
        "The discrete Gaussian mechanism on vectors of integer counts, with sensitivity in the "
        f"{c.sensitivity}; {sum(g.queries for s in c.stages for g in s.groups):,} queries in {len(c.stages)} looks:\n"
        f"{looks}\n"
        f"- Noise is drawn by OpenDP {versions['opendp']}".rstrip()
        + " as exact integers, so no floating-point number "
        "is released by it, and is seeded by the system's randomness only.\n"
        "- Side channels (running time, memory) are not covered; no running times are published.\n"
        "- What the program itself writes of private rows (encoded rows, intermediate results, noise not yet settled) "
        "stays in folders that it makes for the publisher's account alone; where the private table lies, and who can "
        "read it, is the publisher's affair.\n"
        f"- Software: privsyn-flows {versions['privsyn-flows']}".rstrip()
        + " (PrivSyn, Zhang et al., USENIX Security 2021)."
    )


def describe_composition(release: Described) -> str:
    """From prices to the promise, and the promise of the data set's whole life."""
    c, total = release.certificate, release.certificate.dataset_total
    costs = "\n".join(
        f"- {release.look(s).words}: budget rho {format_rho(s.rho_budget)}, spent {format_rho(s.rho_spent)}"
        for s in c.stages
    )
    return (
        f"Accountant {c.accountant}: {c.composition}.\n{costs}\n"
        f"- Sum of this release: budget rho {format_rho(c.rho_budget)}, spent {format_rho(c.rho_spent)}; later "
        f"queries depend on "
        "earlier noisy answers, the budgets do not.\n"
        f"- Lifetime of the data set: cap rho {format_rho(total.rho_cap)} (epsilon {total.epsilon_cap:g} at delta "
        f"{total.delta:g}, accountant {total.accountant}), of which rho {format_rho(total.rho)} (epsilon "
        f"{total.epsilon:.6g}) "
        "is used with this release; an append-only ledger reserves every cost before anything is counted and refuses "
        "what would pass the cap."
    )


def post_processing(release: Described) -> str:
    """Return what is done to the noisy answers, none of which looks at the private table again."""
    plan = release.plan
    words = dict.fromkeys(step.words(plan.request) for step in plan.steps)
    return "\n".join(f"- {each}" for each in words if each)


def describe_utility(release: Described) -> str:
    """Return the noise, which is public; no comparison with the private table is."""
    spans = "; ".join(
        f"{release.look(s).words}: {_describe_noise(s, release.look(s))}" for s in release.certificate.stages
    )
    return (
        f"Standard deviation of the noise. {spans[:1].upper()}{spans[1:]}. marginals/ holds every noisy count with its "
        "noise. Nothing that compares the rows with the private table is in these files."
    )


def format_rho(exact: str) -> str:
    """Return a fraction of the certificate to six digits; the certificate has it exactly."""
    return f"{float(Fraction(exact)):.6g}"


def _look(stage: StageCost, look: Look) -> str:
    queries, cells = (sum(getattr(g, name) for g in stage.groups) for name in ("queries", "cells"))
    sensitivities = " to ".join(f"{s:g}" for s in sorted({g.sensitivity for g in stage.groups})) or "none"
    asked = f"{_format_number(queries, 'query', 'queries')}, {_format_number(cells, 'cell', 'cells')}"
    noise = f"standard deviation {_describe_noise(stage, look)}"
    return f"{look.words}: {asked}, sensitivity {sensitivities} ({stage.reason}), {noise}"


def _format_number(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _describe_noise(stage: StageCost, look: Look) -> str:
    sigmas = [g.sigma for g in stage.groups]
    if not sigmas:
        return "none: nothing was asked"
    return " to ".join(dict.fromkeys(f"{s:,.4g}" for s in (min(sigmas), max(sigmas)))) + f" of {look.noise_of}"
