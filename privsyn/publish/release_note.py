"""The data-release note: README.md beside the released table, in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
)
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Derive, LookupRule, Never, OneOf
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Look, ReleaseStep, Step, release_steps
from privsyn.publish.formats.csv_file import CsvStyle, choose_style, find_formulas, name_csv
from privsyn.publish.formats.described import list_ranges
from privsyn.publish.markdown import escape_text, format_code, format_paragraph
from privsyn.publish.prior_note import write_prior_note
from privsyn.publish.related_pairs import RelatedPair
from privsyn.publish.relations_note import list_measured_relations, write_loading, write_relations
from privsyn.publish.relations_picture import NAME
from privsyn.publish.scored_pairs import ScoredPair
from privsyn.publish.totals_note import write_totals_note
from privsyn.publish.unmeasured_note import write_unmeasured_note
from privsyn.tasks.synthesis.shards import plan_shards

SHOWN_VALUES = 12
"""Categories named one by one in the schema table; longer lists are cut and counted."""


def release_note(
    plan: Plan,
    certificate: Certificate,
    rows: int,
    pairs: Sequence[RelatedPair],
    unmeasured: Sequence[ScoredPair] = (),
    *,
    private: bool,
) -> str:
    """Markdown: what the table is, what is promised, its columns, its cost, how to use it and how not.

    ``pairs``: the measured pairs of columns, the strongest first; ``unmeasured``: those that were only scored.
    """
    request = plan.request
    parts = [
        _write_heading(request, certificate, rows, private=private),
        write_promise(certificate),
        _write_schema(request),
        write_unmeasured_note(request.spec),
        write_rules_note(request.spec),
        write_together_note(request.spec),
        write_targets_note(request.spec),
        write_prior_note(request.spec),
        write_totals_note(request.spec),
        describe_cost(certificate, list_looks(plan.steps)),
        write_relations(plan, certificate, pairs, unmeasured),
        _write_files(plan, rows, private=private, picture=bool(pairs)),
        write_loading(
            name_table(request.spec, rows),
            joint=bool(list_measured_relations(plan, certificate)),
            style=choose_style(request.spec, list_ranges(request)),
        ),
        _write_limits(plan),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _write_heading(request: Request, certificate: Certificate, rows: int, *, private: bool) -> str:
    warning = "" if private else "\n\n**NOT PRIVATE: made with test noise. Do not publish this folder.**"
    estimated = request.spec.mechanism.synthesis.rows == "auto"
    where = name_table(request.spec, rows)
    size = "is an estimate too" if estimated else "was asked for and says nothing of the private table's size"
    size = "is that of the known totals" if estimated and request.spec.totals else size
    return (
        f"# Synthetic table `{certificate.dataset}`, release `{certificate.run}`{warning}\n\n"
        f"{rows:,} synthetic rows in `{where}`. No row belongs to a person: the rows were drawn from noisy "
        "counts of a private table, so that statistics of the two agree as far as the noise allows. The number of rows "
        f"{size}.{_write_kept_rows(request.spec.unit)} {_write_links(request.spec)}; and what a few hundred rows say "
        "is mostly noise."
        f"{_write_about(request)}"
    )


def _write_kept_rows(unit: Unit) -> str:
    """Return what a cap on the rows of a person did to the counts; nothing where every row was counted."""
    if unit.identifier is None:
        return ""
    return (
        f" **A{unit.describe_kept()[1:]}**, and every count, share and mean here is of "
        "the kept rows, not of the whole private table; how many rows were not kept is not said."
    )


def _write_links(spec: ReleaseSpec) -> str:
    """Return whether rows are linked, and what must not be read into that."""
    panel = spec.panel
    if panel is None:
        return "It is not for following people: no row is linked to another, nor to rows of other tables"
    one = spec.unit.one
    return (
        f"Rows with the same {format_code(panel.person)} are one synthetic {one}'s, in the order of "
        f"{format_code(panel.order)}: {one}s are made up like rows, and none stands for a real one; no row is linked "
        "to rows of other tables"
    )


def _write_about(request: Request) -> str:
    """Return what the publisher says of it."""
    about = request.spec.about
    facts = {
        "Licence": about.licence,
        "Published by": ", ".join(p for p in (about.publisher, about.contact) if p),
        "Made from": ", ".join(p for p in (about.source, about.source_url) if p),
        "Meant for": about.intended_use,
    }
    listed = "\n".join(f"- {name}: {escape_text(text)}" for name, text in facts.items() if text)
    parts = [format_paragraph(about.description), listed]
    return "".join(f"\n\n{part}" for part in parts if part)


def write_promise(c: Certificate) -> str:
    """Return what is promised of the run and of the data set's whole life, from the certificate."""
    total = c.dataset_total
    one = "household" if c.unit_of_protection.startswith("one household") else "person"
    other = (
        f" The last two stand at the cap's delta of {total.delta:g}, so their epsilon is another than at this "
        f"release's {c.delta:g}; the noise is the same."
        if total.delta != c.delta
        else ""
    )
    beyond = "" if c.prior is None else ", beyond what the public prior says already"
    others = "" if c.by_published_theorems is None else ", other releases included"  # as certificates of before say it
    return (
        "## What is promised\n\n"
        f"Whatever is done with these files, and whatever else is known, they say almost the same as if any one {one} "
        f"had not been in the private table{beyond}: ({c.epsilon:g}, {c.delta:g})-differential privacy, where "
        f"neighbouring tables differ by adding or removing {escape_text(c.unit_of_protection)}. The promise holds "
        f"for this "
        f"release. All releases of this data set, whatever comes, together keep its lifetime cap of "
        f"({total.epsilon_cap:g}, {total.delta:g}), of which ({total.epsilon:.4g}, {total.delta:g}) is used so far"
        f"{others}.{other}"
        f"{_write_improved(c)}{_list_published_theorems(c)}"
    )


def _write_improved(c: Certificate) -> str:
    """Return what the promise covers, where earlier releases are pooled."""
    if not c.improves:
        return ""
    return (
        f"\n\nThis release improves {', '.join(map(format_code, c.improves))}: it was made from their noisy counts "
        f"and new "
        "ones of the same unchanged table, pooled. The figure above is of all these looks together, so it holds for "
        "whoever has these earlier releases too. Where what they showed decided how much more was asked, the lifetime "
        "cap is what is proved."
    )


def _list_published_theorems(c: Certificate) -> str:
    """Return the second figure, where the first one rests on an argument of this project's own."""
    figure = c.by_published_theorems
    if figure is None or c.accountant != "gaussian":
        return ""
    return (
        "\n\nThat figure rests on a proof of this project's own, which nobody outside it has reviewed. The same noise "
        f"keeps ({round_up(figure.epsilon)}, {figure.delta:g})-differential privacy by published theorems alone "
        "(zero-concentrated differential privacy and its optimal conversion)."
    )


def round_up(epsilon: float) -> str:
    """Four significant digits, never less than ``epsilon``."""
    exact = Decimal(epsilon)
    return format(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding=ROUND_CEILING).normalize(), "f")


def _write_schema(request: Request) -> str:
    lines = ["## Columns", "", "| column | meaning | type | null | possible values |", "|---|---|---|---|---|"]
    ranges = request.encoding.list_table_ranges(request.column_order)
    for name in ranges:
        column: Any = request.spec.get_published_column(name)
        cells = (
            escape_text(name),
            " ".join(filter(None, ("" if column.measured else "**not measured**", escape_text(column.description)))),
            escape_text(str(ranges[name].type)),
            "yes" if ranges[name].nullable else "no",
            _describe_domain(column),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _describe_domain(column: Any) -> str:
    match column:
        case IntegerColumn() | NumberColumn():
            exact = f", exactly {', '.join(f'{v:,}' for v in column.exact)}" if column.exact else ""
            return f"{column.min:,} to {column.max:,}{exact} {escape_text(column.unit)}".strip()
        case TimeColumn():
            return f"a time of day ({column.format})"
        case DatetimeColumn() | DateColumn():
            exact = f", exactly {', '.join(map(str, column.exact))}" if column.exact else ""
            return f"{column.min} to {column.max}{exact} {escape_text(column.unit)}".strip()
        case BooleanColumn():
            return "true, false"
        case CategoricalColumn():
            shown = ", ".join(format_code(str(v)) for v in column.values[:SHOWN_VALUES])
            more = len(column.values) - SHOWN_VALUES
            adds_other = column.measured and column.goes_to == "other" and "other" not in column.values
            other = ", `other`" if adds_other else ""
            return shown + (f" ... and {more:,} more" if more > 0 else "") + other
    return ""


Looks = Mapping[str, Look]
"""Release step -> the facts of its look."""


def list_looks(steps: Iterable[Step]) -> Looks:
    """Return the looks at the private table of these steps, by the step's name."""
    return {step.name: step.look for step in release_steps(steps)}


def describe_cost(c: Certificate, looks: Looks) -> str:
    """Return the table of what was asked of the private table, at what price and noise."""
    lines = [
        "## What it cost",
        "",
        "| look at the private table | queries | rho (its price) | noise: standard deviation |",
        "|---|---|---|---|",
    ]
    for stage in c.stages:
        sigmas = [g.sigma for g in stage.groups]
        span = " to ".join(f"{s:,.1f}" for s in sorted({min(sigmas), max(sigmas)})) if sigmas else "none asked"
        look = looks[stage.step]
        of = f" of {look.noise_of}" if sigmas else ""
        queries = sum(g.queries for g in stage.groups)
        words = look.words_of(related=c.relations is None)
        lines.append(f"| {words} | {queries:,} | {float(Fraction(stage.rho_spent)):.6g} | {span}{of} |")
    lines += ["", "`certificate.json` holds the exact figures and the argument from them to the promise."]
    return "\n".join(lines)


def name_table(spec: ReleaseSpec, rows: int) -> str:
    """Return where a synthetic table of so many rows lies in its released folder: a file, or all files of a pattern."""
    return "synthetic.parquet" if len(plan_shards(rows, spec.mechanism.synthesis)) == 1 else "synthetic/part-*.parquet"


def _write_files(plan: Plan, rows: int, *, private: bool, picture: bool) -> str:
    request = plan.request
    described = (
        "- `datapackage.json`, `croissant.json`: the table, its columns and files for programs (Frictionless Data "
        "Package, Croissant).\n"
        "- `registry.yaml`: an entry for the OpenDP Deployments Registry.\n"
    )
    return (
        "## Files\n\n"
        f"- `{name_table(request.spec, rows)}`: the table.\n"
        f"{_write_csv(request, rows) if 'csv' in request.spec.formats else ''}"
        f"{_write_marginals(plan.steps)}"
        f"{f'- `{NAME}`: a picture of the measured relations.{chr(10)}' if picture else ''}"
        "- `certificate.json`: budget, noise, neighbours, composition.\n"
        f"{described if private else ''}"
        "- `manifest.json`: the public request, versions, seeds, and the SHA-256 of every file here."
    )


def _write_marginals(steps: Sequence[Step]) -> str:
    """Return what lies in ``marginals/``: counts first, then the other tables."""
    counts_first = sorted(steps, key=lambda s: isinstance(s, ReleaseStep) and s.look.noise_of != "a count")
    files = [file for step in counts_first for file in step.published.values() if file.words]
    described = "; ".join(f"`{Path(file.name).name}` {file.words}" for file in files)
    return (
        "- `marginals/`: the noisy counts it was made from. For a single statistic with an error bar, use these rather "
        f"than the rows. {described}. `*_receipts.parquet` says for each `query` which attributes it is about and its "
        "noise (`sigma`). `consistent.parquet` has the counts after everything was brought into agreement.\n"
    )


def _write_csv(request: Request, rows: int) -> str:
    ranges = list_ranges(request)
    style = choose_style(request.spec, ranges)
    null = style.null
    stands = f"{format_code(null)} without quotation marks" if null else "Nothing between two delimiters"
    if not style.like_source and not null:
        stands = "Nothing between two commas"
    risky = find_formulas(ranges)
    more = f" and {len(risky) - SHOWN_VALUES:,} more" if len(risky) > SHOWN_VALUES else ""
    names = ", ".join(format_code(name) for name in risky[:SHOWN_VALUES]) + more
    warning = (
        f" Spreadsheets may take names or categories of {names} for formulas: import these columns as text."
        if risky
        else ""
    )
    if style.like_source:
        return (
            f"- `{name_csv(name_table(request.spec, rows))}`: the same table written as the source's files are: "
            f"{_describe_style(style)}. {stands} is null.{warning}\n"
        )
    return (
        f"- `{name_csv(name_table(request.spec, rows))}`: the same table as comma-separated values "
        f"(RFC 4180, UTF-8). {stands} is null; texts stand in quotation marks, dates are ISO 8601.{warning}\n"
    )


def _describe_style(style: CsvStyle) -> str:
    """Return the marks, the encoding and the formats of dates of CSV files, in words."""
    formats = ", ".join(f"{format_code(name)} as {format_code(written)}" for name, written in style.formats.items())
    mark = "a tab" if style.delimiter == "\t" else format_code(style.delimiter)
    quote = f"quotation mark {format_code(style.quote)}" if style.quote else "no quotation marks"
    written = f"; {formats}" if formats else ""
    return f"{mark} between fields, decimal mark {format_code(style.decimal)}, {quote}, {style.encoding}{written}"


def _write_limits(plan: Plan) -> str:
    merged = "; rare values were merged or left out" if plan.request.spec.mechanism.compression.enabled else ""
    return (
        "## Limits\n\n"
        f"- Small groups are blurred: a count below about three times its noise is not told from zero{merged}.\n"
        f"{''.join(f'- {step.limit}{chr(10)}' for step in plan.steps if step.limit)}"
        f"{_write_unlinked(plan.request.spec)}"
        "- Do not treat the rows as a sample for confidence intervals: add the noise's variance.\n"
        "- Do not look up a person here: a matching row is chance."
    )


def _write_unlinked(spec: ReleaseSpec) -> str:
    """Return what the table cannot say of persons, where a person may have several records."""
    unit, panel = spec.unit, spec.panel
    if panel is not None and panel.household:
        return (
            f"- Counts in `marginals/` are of households, each by one of its members, drawn at random; "
            f"{format_code(panel.composition)} is how many members of each role it has. A household with many members "
            "counts there as much as one with few.\n"
            "- A member follows from its neighbour in the order of roles and the household's columns: what members "
            "further apart have in common was not measured.\n"
        )
    if panel is not None:
        figures = ", ".join(map(format_code, panel.figures))
        return (
            f"- Counts in `marginals/` are of persons, each by one of its rows, drawn at random; {figures} are the "
            "number of a person's kept rows, how many lie before the drawn one, and how far the next one lies. A "
            "person with many rows counts there as much as one with few.\n"
            "- How alike rows of a person are that lie further apart than neighbours was not measured.\n"
        )
    if unit.records == 1 and unit.identifier is None:
        return ""
    many = f"A person may have up to {unit.records:,} records in the private table"
    if unit.identifier is not None:
        many = f"Of the records of a person at most {unit.records:,} were kept"
    return (
        f"- Rows of one person are not linked. {many}; here "
        "every row was drawn by itself and none says whose it is. Records per person, their order and changes over "
        "time cannot be computed from this table, and it counts records, not people.\n"
    )


def write_rules_note(spec: ReleaseSpec) -> str:
    """Markdown: every rule, in the spec's order; empty without rules."""
    if not spec.rules:
        return ""
    lines = ["## Rules", "", "Public statements that every row keeps. A column that they compute was not measured.", ""]
    for rule in spec.rules:
        match rule:
            case Never():
                lines.append(f"- never {format_code(rule.never)}")
            case Derive():
                lines += [f"- {escape_text(name)} is {format_code(text)}" for name, text in rule.derive.items()]
            case LookupRule(lookup=lookup):
                lines.append(
                    f"- {_join_names(lookup.to)} by {_join_names(lookup.from_)}: a public table of "
                    f"{len(lookup.rows):,} rows"
                )
            case OneOf():
                many = "at most one" if rule.or_none else "exactly one"
                lines.append(f"- {many} of {_join_names(rule.one_of)} is 1")
    return "\n".join(lines)


def _join_names(columns: tuple[str, ...]) -> str:
    return ", ".join(map(escape_text, columns))


def write_targets_note(spec: ReleaseSpec) -> str:
    """Markdown: the columns and sets of columns that counted more; empty without targets."""
    lines = []
    if spec.focus is not None:
        names = ", ".join(map(escape_text, spec.focus.columns))
        lines.append(f"- relations with {names}: {spec.focus.weight:g} times")
    for marginal in spec.workload:
        names = ", ".join(map(escape_text, marginal.columns))
        together = "; counted together, see `marginals/sets.parquet`" if marginal in spec.measured_sets else ""
        lines.append(f"- relations between {names}: {marginal.weight:g} times{together}")
    if not lines:
        return ""
    told = (
        "The request, which is public, wanted some relations to be kept better than others: an error there counted "
        "more where relations were chosen and the privacy budget was shared. It changes nothing of what is promised."
    )
    return "\n".join(["## Targets", "", told, "", *lines])


def write_together_note(spec: ReleaseSpec) -> str:
    """Markdown: the groups, in the spec's order, and what they say of differences; empty without groups."""
    if not spec.together:
        return ""
    groups = "\n".join(f"- {', '.join(map(escape_text, group))}" for group in spec.together)
    return (
        "## Columns that move together\n\n"
        "It is a public statement that the values of these columns lie close together in every row. In the synthetic "
        "table they lie at one place of their bins, and what noise put more than a bin apart was brought together. How "
        "far apart they are inside bins was not measured.\n\n"
        f"{groups}"
    )
