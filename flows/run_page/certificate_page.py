"""The certificate and the files of a release as pages to read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from privsyn.data_contracts.certificate import Certificate, Manifest, ManifestFile, StageCost
from privsyn.engine.step import Look
from privsyn.publish.release_note import Looks, describe_cost, round_up, write_promise

SHOWN_HASH = 16
"""Characters of a file's SHA-256 on the page; the manifest has all 64."""


def format_certificate_page(c: Certificate, looks: Looks) -> str:
    """Markdown: what is promised, what it cost, and how the one follows from the other."""
    reasons = "\n".join(_format_reason(stage, looks[stage.step]) for stage in c.stages)
    budget, spent = (float(Fraction(rho)) for rho in (c.rho_budget, c.rho_spent))
    return (
        f"# Certificate of `{c.run}`\n\n{_format_relations(c)}{write_promise(c)}\n\n{describe_cost(c, looks)}\n\n"
        "## Why it holds\n\n"
        f"- The prices above sum to {spent:.6g}, at most this release's budget of {budget:.6g}, which is what "
        f"({c.epsilon:g}, {c.delta:g}) allows under the accountant `{c.accountant}`.\n"
        f"- A query's price: {c.price}.\n"
        f"- Together: {c.composition}.\n"
        f"{_format_published_theorems(c)}"
        f"- One person has at most k = {c.records_per_person} of the records.\n"
        f"{reasons}\n"
    )


def _format_relations(c: Certificate) -> str:
    """Return what the certificate says where no relation was measured."""
    return "" if c.relations is None else f"**{c.relations[0].upper()}{c.relations[1:]}.**\n\n"


def _format_published_theorems(c: Certificate) -> str:
    """Return the figure that rests on published theorems only; nothing in certificates of earlier versions."""
    figure = c.by_published_theorems
    return (
        ""
        if figure is None
        else f"- The same noise keeps ({round_up(figure.epsilon)}, {figure.delta:g}), which {figure.reason}.\n"
    )


def _format_reason(stage: StageCost, look: Look) -> str:
    """Return why a stage's queries have their sensitivity."""
    name = look.words.capitalize()
    found = " or ".join(map(str, sorted({group.sensitivity for group in stage.groups})))
    return f"- {name}: " + (f"sensitivity {found}, that is {stage.reason}." if found else "not asked.")


def format_files_page(manifest: Manifest, folder: Path, private: Path, report: Path, web: str) -> str:
    """Markdown: the released files with links, sizes and hashes, and where the private ones lie.

    ``web``: the web address of the released root, empty if it has none; then the links name files, which browsers open
    from their address bar only.
    """
    root = f"{web.rstrip('/')}/{folder.name}" if web else folder.as_uri()
    how = "" if web else " Browsers follow no link from a web page to a file: copy it, or set `PRIVSYN_RELEASED_URL`."
    state = "is there" if report.exists() else f"is not there yet: `privsyn evaluate {manifest.run}` makes it"
    away = "give away" if manifest.differentially_private else "NOT PRIVATE: do not give away"
    return "\n".join(
        [
            f"# Files of `{manifest.run}`",
            "",
            f"## Released: {away}",
            "",
            f"`{folder}` on the machine of the worker.{how}",
            "",
            "| file | bytes | SHA-256, its beginning |",
            "|---|---|---|",
            *(_format_row(root, name, file) for name, file in manifest.files.items()),
            f"| [manifest.json]({root}/manifest.json) | | has all of this in full |",
            "",
            "## Private: keep",
            "",
            f"- `{private}`: repair counts, and where the stored tables are.",
            f"- `{report}`: the private report, which {state}.",
            "",
        ]
    )


def _format_row(root: str, name: str, file: ManifestFile) -> str:
    return f"| [{name}]({root}/{name}) | {file.bytes:,} | `{file.sha256[:SHOWN_HASH]}…` |"
