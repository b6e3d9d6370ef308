"""The longer texts of the registry entry: unit, mechanisms, composition, post-processing, from certificate and spec.

Belongs here: sentences with the certificate's own figures.  Does not belong here: the entry's form
(flows/formats/registry.py), any figure that the certificate or the public spec does not hold.
"""

from __future__ import annotations

from fractions import Fraction

from data_contracts.certificate import StageCost
from flows.formats.described import Described
from flows.note import NOISY_THINGS, stage_words
from flows.step import base_name

NAMED_COLUMNS = 100
"""Columns that are named one by one; longer lists are cut and counted."""

_METHODS = {
    "sweep": "rows drawn along a tree of related columns, then moved value by value towards all counts at once",
    "gum": "rows updated gradually towards the counts (PrivSyn, section 5)",
}


def unit_details(release: Described) -> str:
    """What neighbouring tables are."""
    c = release.certificate
    k = c.records_per_person
    return (
        f"Two tables are adjacent if one is the other with {c.unit_of_protection} added or removed: their symmetric "
        f"difference has at most {k} record{'' if k == 1 else 's'}. The number of records is not public; a number of "
        "privacy units beside this, if any, is a noisy estimate."
    )


def data_domain(release: Described) -> str:
    """Which tables are protected."""
    names = list(release.ranges)
    shown = ", ".join(names[:NAMED_COLUMNS])
    more = f" and {len(names) - NAMED_COLUMNS:,} more" if len(names) > NAMED_COLUMNS else ""
    return (
        f"Tables of any number of records with {len(names):,} column{'' if len(names) == 1 else 's'} ({shown}{more}), "
        "each with the domain that the public request states (manifest.json)."
    )


def preprocessing(release: Described) -> str:
    """What happens before any noise, and what was tuned."""
    unit = release.spec.unit
    kept = "All rows are taken as they are; how many a person has is the publisher's statement."
    if unit.person_id is not None:
        kept = f"At most {unit.records} rows a person are kept, by the column {unit.person_id}, and none without it."
    return (
        "Domains, bounds and bins come from the public request, never from the private table. Values outside are "
        f"clamped, or go where the request says; so does null where it is not wanted. {kept} Settings are constants of "
        "the program or public choices in the request; the program tunes none on the private table. What the publisher "
        "did before writing the request is not known to it."
    )


def mechanisms(release: Described) -> str:
    """Every look at the private table: how many queries, their sensitivity, their noise."""
    c = release.certificate
    versions = {name: release.versions.get(name, "") for name in ("opendp", "privsyn-flows")}
    looks = "\n".join(f"- {_look(stage)}" for stage in c.stages)
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


def composition(release: Described) -> str:
    """From prices to the promise, and the promise of the data set's whole life."""
    c, total = release.certificate, release.certificate.dataset_total
    costs = "\n".join(
        f"- {stage_words(s.step)}: budget rho {rho(s.rho_budget)}, spent {rho(s.rho_spent)}" for s in c.stages
    )
    return (
        f"Accountant {c.accountant}: {c.composition}.\n{costs}\n"
        f"- Sum of this release: budget rho {rho(c.rho_budget)}, spent {rho(c.rho_spent)}; later queries depend on "
        "earlier noisy answers, the budgets do not.\n"
        f"- Lifetime of the data set: cap rho {rho(total.rho_cap)} (epsilon {total.epsilon_cap:g} at delta "
        f"{total.delta:g}, accountant {total.accountant}), of which rho {rho(total.rho)} (epsilon {total.epsilon:.6g}) "
        "is used with this release; an append-only ledger reserves every cost before anything is counted and refuses "
        "what would pass the cap."
    )


def post_processing(release: Described) -> str:
    """What is done to the noisy answers, none of which looks at the private table again."""
    spec = release.spec
    auto = spec.synthesis.rows == "auto"
    rows = "as many as the noisy counts say" if auto else f"{spec.synthesis.rows:,}, as the request asks"
    steps = [
        "rare values are combined, by their noisy counts" if spec.compression.enabled else "",
        f"pairs of columns are chosen by their noisy scores ({spec.selection.choice.replace('_', ' ')})",
        "rows made from what was measured so far say where to ask again" if spec.adaptive.rounds else "",
        "all noisy counts are brought into agreement and to one total, without negative ones",
        f"synthetic rows: {_METHODS[spec.synthesis.method]}; {rows}",
        "codes become values; inside a bin values are drawn evenly; rows come in random order",
    ]
    return "\n".join(f"- {step}" for step in steps if step)


def utility(release: Described) -> str:
    """The noise, which is public; no comparison with the private table is."""
    spans = "; ".join(f"{stage_words(s.step)}: {_noise(s)}" for s in release.certificate.stages)
    return (
        f"Standard deviation of the noise. {spans[:1].upper()}{spans[1:]}. marginals/ holds every noisy count with its "
        "noise. Nothing that compares the rows with the private table is in these files."
    )


def rho(exact: str) -> str:
    """A fraction of the certificate to six digits; the certificate has it exactly."""
    return f"{float(Fraction(exact)):.6g}"


def _look(stage: StageCost) -> str:
    queries, cells = (sum(getattr(g, name) for g in stage.groups) for name in ("queries", "cells"))
    sensitivities = " to ".join(f"{s:g}" for s in sorted({g.sensitivity for g in stage.groups})) or "none"
    asked = f"{_many(queries, 'query', 'queries')}, {_many(cells, 'cell', 'cells')}"
    noise = f"standard deviation {_noise(stage)}"
    return f"{stage_words(stage.step)}: {asked}, sensitivity {sensitivities} ({stage.reason}), {noise}"


def _many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _noise(stage: StageCost) -> str:
    sigmas = [g.sigma for g in stage.groups]
    if not sigmas:
        return "none: nothing was asked"
    of = NOISY_THINGS.get(base_name(stage.step), " of a count")
    return " to ".join(dict.fromkeys(f"{s:,.4g}" for s in (min(sigmas), max(sigmas)))) + of
