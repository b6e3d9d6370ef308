"""What the note says of the relations that were measured, and how to load and join the noisy counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from privsyn.data_contracts.certificate import Certificate, explain_missing_relations
from privsyn.data_contracts.domain import Clique
from privsyn.engine.plan import Plan
from privsyn.engine.step import release_steps
from privsyn.pipelines.trend_steps import list_trends
from privsyn.publish.formats.csv_file import CsvStyle, name_csv
from privsyn.publish.markdown import escape_text
from privsyn.publish.related_pairs import RelatedPair
from privsyn.publish.relations_picture import NAME
from privsyn.publish.scored_pairs import ScoredPair
from privsyn.tasks.codecs.binning import list_counted_alone

LISTED = 30
"""Measured pairs of columns that are listed one by one, the strongest first."""


class Relation(NamedTuple):
    """Columns that were counted together, and the standard deviation of the noise of a count."""

    columns: Clique
    sigma: float


def list_measured_relations(plan: Plan, certificate: Certificate) -> list[Relation] | None:
    """Return every set of two columns and more that was counted together, the least noise first.

    None where the certificate does not list them, because they are very many.
    """
    counted = {step.name for step in release_steps(plan.steps) if step.look.noise_of == "a count"}
    best: dict[Clique, float] = {}
    for stage in certificate.stages:
        for group in stage.groups if stage.step in counted else ():
            if group.attributes is None:
                return None
            for names in group.attributes:
                if len(names) > 1:
                    best[tuple(names)] = min(group.sigma, best.get(tuple(names), group.sigma))
    return sorted((Relation(columns, sigma) for columns, sigma in best.items()), key=lambda r: (r.sigma, r.columns))


def write_relations(
    plan: Plan, certificate: Certificate, pairs: Sequence[RelatedPair], unmeasured: Sequence[ScoredPair] = ()
) -> str:
    """Markdown: which columns were counted together, how strongly they are related, and the picture; or that none were.

    ``pairs``: by their strength, the strongest first; ``unmeasured``: the scored pairs without joint counts.
    """
    found = list_measured_relations(plan, certificate)
    columns = len(plan.domain.attributes) - len(list_counted_alone(plan.request.encoding.binning))
    head = "## Relations\n\n"
    if found == []:
        trends = bool(list_trends(plan.request))
        words = explain_missing_relations(prior=certificate.prior is not None, trends=trends)
        alone = "" if trends else " Only single columns can be read from this table."
        told = f"{head}**{words[0].upper()}{words[1:]}.**{alone}"
        return told + _write_unmeasured(unmeasured)
    if not pairs:
        return ""
    others = "are independent in the rows" if certificate.prior is None else "are the public prior's"
    if list_trends(plan.request):
        others = "have, of numbers and moments, the trend in `marginals/trends.parquet`, or are independent in the rows"
    lines = [
        f"{len(pairs):,} of {comb(columns, 2):,} pairs of columns were counted together. Other pairs follow from these "
        f"or {others}. Strength is the share of rows that would have to change for two columns to be "
        "independent, from `marginals/consistent.parquet`: 0 % for independent columns; noise adds a little to it.",
        "",
        f"![The measured relations: a line for each pair, broader where stronger]({NAME})",
        "",
        "| counted together | strength | noise of a count: standard deviation |",
        "|---|---|---|",
        *(
            f"| {escape_text(' × '.join(p.columns))} | {100 * p.strength:.1f} % | {p.sigma:,.1f} |"
            for p in pairs[:LISTED]
        ),
    ]
    if len(pairs) > LISTED:
        weakest = f"{100 * pairs[-1].strength:.1f} % and more"
        lines.append(f"| ... and {len(pairs) - LISTED:,} more | {weakest} | up to {_find_most_noise(pairs):,.1f} |")
    return head + "\n".join(lines) + _write_unmeasured(unmeasured)


def _write_unmeasured(pairs: Sequence[ScoredPair]) -> str:
    """Return the scored pairs without joint counts, those that are farthest above chance first; nothing without any."""
    if not pairs:
        return ""
    lines = [
        f"{len(pairs):,} pairs of columns were scored and not counted together: a relation between them shows in the "
        "rows only as far as others imply it. The score is half the noisy distance of the private table from "
        "independence, as a share of the rows; columns that are not related have about what stands under chance, give "
        "or take the noise. A pair that is above chance by more than three times its noise is related, and this table "
        "keeps little of that.",
        "",
        "| not counted together | score | chance | noise of the score: standard deviation |",
        "|---|---|---|---|",
        *(
            f"| {escape_text(' × '.join(p.columns))} | {100 * p.score:.1f} % | {100 * p.chance:.1f} % | "
            f"{100 * p.noise:.1f} % |"
            for p in pairs[:LISTED]
        ),
    ]
    if len(pairs) > LISTED:
        lines.append(f"| ... and {len(pairs) - LISTED:,} more, nearer to chance, in `marginals/scores.parquet` | | | |")
    return "\n\n" + "\n".join(lines)


def _find_most_noise(pairs: Sequence[RelatedPair]) -> float:
    return max(pair.sigma for pair in pairs[LISTED:])


def write_loading(table: str, *, joint: bool, style: CsvStyle) -> str:
    """Markdown: the rows in four programs, and the noisy counts with their noise.

    ``table``: where the synthetic table lies in the folder, a file or all files of a pattern; ``joint``: whether
    columns were counted together; ``style``: how CSV files are written.
    """
    folder = table.partition("/")[0]
    r, without = (
        f'arrow::read_parquet("{table}")',
        _WITHOUT_ARROW.format(csv=name_csv(table), null=style.null, more=_list_r_arguments(style)),
    )
    if folder != table:
        r, without = f'dplyr::collect(arrow::open_dataset("{folder}"))', ""
    return _LOADING.format(table=table, folder=folder, r=r, without=without) + (_JOINT if joint else "")


def _list_r_arguments(style: CsvStyle) -> str:
    """Return what R's ``read.csv`` must be told of a CSV file that is not of the standard style."""
    if not style.like_source:
        return ""
    marks = {"sep": style.delimiter.replace("\t", "\\t"), "dec": style.decimal}
    quote = {"quote": style.quote.replace('"', '\\"'), "fileEncoding": style.encoding}
    return "".join(f', {name} = "{value}"' for name, value in (marks | quote).items())


_WITHOUT_ARROW = """
R without arrow reads the CSV file, where the release has one:

```r
rows <- read.csv("{csv}", check.names = FALSE, na.strings = "{null}"{more})
```
"""

_LOADING = """## Use it

In pandas, DuckDB, R (with the package arrow) and Stata (17 and later, with Python):

```python
import pandas as pd
rows = pd.read_parquet("{folder}")
```
```sql
SELECT * FROM '{table}' LIMIT 5;
```
```r
rows <- {r}
```
```stata
python: import pandas as pd; pd.read_parquet("{folder}").to_stata("rows.dta", version=118)
use rows.dta
```
{without}
Statistics with error bars: `privsyn.open_release(".").count("column")` in Python, `privsyn query . "column"` in a
terminal. By hand: `marginals/recode.parquet` has, for every code of every column, the noisy count as `estimate` and the
variance of its noise as `variance`; the interval of 95 % is estimate ± 1.96 sqrt(variance):

```sql
SELECT attribute, label, estimate, sqrt(variance) AS std_error FROM 'marginals/recode.parquet' ORDER BY attribute, code;
```"""

_JOINT = """

Joint counts are in coarser codes (`coarse`): several of a column's codes together where these are rare. A cell is
numbered with the last attribute running fastest: of two columns, cell = first code × (codes of the second) + second
code. This is the pair that was asked first, with labels:

```sql
WITH asked AS (SELECT * FROM 'marginals/measured_receipts.parquet' WHERE len(attributes) = 2 ORDER BY query LIMIT 1),
codes AS (
  SELECT attribute, coarse, string_agg(label, ' | ' ORDER BY code) AS label
  FROM 'marginals/recode.parquet' WHERE kept GROUP BY attribute, coarse),
second AS (SELECT count(*) AS size FROM codes, asked WHERE attribute = attributes[2])
SELECT a.label AS first, b.label AS second, m.count, asked.sigma AS std_error
FROM 'marginals/measured.parquet' m JOIN asked USING (query), second, codes a, codes b
WHERE a.attribute = attributes[1] AND a.coarse = m.cell // size
  AND b.attribute = attributes[2] AND b.coarse = m.cell % size
ORDER BY m.cell;
```"""
