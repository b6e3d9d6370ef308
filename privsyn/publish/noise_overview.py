"""An overview of a release from its released tables: the noise of its marginals, and the error of synthesis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.counting.engine import LocalEngine
from privsyn.data_contracts.artifacts import ArtifactRef, LookKind, Zone
from privsyn.data_contracts.certificate import explain_missing_relations
from privsyn.data_contracts.receipts import Query
from privsyn.engine.execute import Run
from privsyn.engine.step import get_step, list_looks
from privsyn.engine.step_tables import StepRefs
from privsyn.publish.markdown import render_note
from privsyn.publish.overview_chart import MarginalOverview, OneWayOverview
from privsyn.storage.released_root import ZoneError
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.noisy import list_all_measured
from privsyn.tasks.estimation.recode import (
    AttributeRecode,
    Recode,
    build_coarse_domain,
    estimate_total,
    pool_one_ways,
    recode_from_table,
)
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.metrics.error_sources import compute_expected_l1

Floats = NDArray[np.float64]

WORST = 5
"""Number of measured marginals named in the text."""


@dataclass(frozen=True)
class ReleasedInputs:
    """The inputs of an overview, all released or public.

    ``codes``: the synthetic rows in the compressed domain, which are not copied; ``measured``: the receipts of the
    measured marginals.
    """

    encoding: EncodingPlan
    recode: Recode
    measured: tuple[Query, ...]
    consistent: tuple[Marginal, ...]
    codes: Countable

    @classmethod
    def of_run(cls, run: Run, refs: Mapping[str, StepRefs]) -> ReleasedInputs:
        """Return the inputs from a run's tables.  Raises ZoneError if one of them is not released."""

        def ref(name: str) -> ArtifactRef:
            step, table = name.split(".")
            artifact = refs[step].tables[table]
            if artifact.zone is not Zone.RELEASED:
                raise ZoneError(f"{name} is private")
            return artifact

        read = run.store.read_table
        again = list_looks(run.steps, LookKind.ONE_WAYS)[1:]
        rounds = [look.name for look in (*list_looks(run.steps, LookKind.MARGINALS), *again)]
        # Marginals count records, one per person or household, from which linked rows are made.
        last_step = next((s for s in run.steps if s.name == "link_rows"), get_step(run.steps, "decode"))
        return cls.of(
            run.cut_request(refs).encoding,
            read(ref("compress_domain.recode")),
            [read(ref(f"{step}.receipts")) for step in rounds],
            [read(ref(f"{step}.noisy")) for step in rounds],
            read(ref("make_consistent.marginals")),
            run.store.stored(ref(last_step.inputs[0])),
        )

    @classmethod
    def of(
        cls,
        encoding: EncodingPlan,
        recode: pa.Table,
        receipts: Sequence[pa.Table],
        answers: Sequence[pa.Table],
        consistent: pa.Table,
        codes: StoredTable | Sequence[pa.RecordBatch],
    ) -> ReleasedInputs:
        """Return the inputs from released tables: the recode, each round's receipts and answers, marginals and codes.

        A stored table of codes is read block by block in every pass, so memory does not grow with its rows.
        """
        queries, measured = list_all_measured(receipts, answers)
        pooled = pool_one_ways(recode_from_table(recode), queries, measured, encoding.binning)
        domain = build_coarse_domain(pooled)
        return cls(
            encoding,
            pooled,
            tuple(q for q in queries if len(q.attributes) > 1),
            tuple(marginals.from_table(consistent, domain)),
            LocalEngine().rows(codes, domain)
            if isinstance(codes, StoredTable)
            else CodeTable.from_arrow(codes, domain),
        )


@dataclass(frozen=True)
class Column:
    """One column: its bins after compression, the noise sd of a bin's share, and the error of synthesis (L1)."""

    column: str
    bins: int
    noise_sd: float
    synthesis_l1: float


@dataclass(frozen=True)
class Overview:
    """Columns in table order, measured marginals in order, and the number of pairs inside a measured marginal."""

    one_ways: tuple[OneWayOverview, ...]
    columns: tuple[Column, ...]
    marginals: tuple[MarginalOverview, ...]
    pairs_measured: int
    pairs: int

    def column_rows(self) -> list[dict[str, object]]:
        """Return the columns as rows of a table for display."""
        return [
            {
                "column": c.column,
                "bins": c.bins,
                "noise: sd of a bin's share": f"{c.noise_sd:.2g}",
                "synthesis: L1 to the consistent counts": f"{c.synthesis_l1:.2g}",
            }
            for c in self.columns
        ]


def build_overview(released: ReleasedInputs, threads: int = 0) -> Overview:
    """Count the synthetic codes and compare them with the noisy counts, from released tables only."""
    total = max(estimate_total(released.recode), 1.0)
    consistent = {m.attributes: m.counts / max(float(m.counts.sum()), 1.0) for m in released.consistent}
    one_ways, columns = [], []
    attributes, rows = released.codes.domain.attributes, 1
    one_way_counts = released.codes.counts([(attribute,) for attribute in attributes], threads=threads)
    for attribute, counts in zip(attributes, one_way_counts, strict=True):
        rows = max(int(counts.sum()), 1)
        shares = counts / rows
        one_ways.append(_build_one_way(released.encoding, attribute, released.recode[attribute], total, shares))
        lost = float(np.abs(shares - consistent[(attribute,)]).sum())
        columns.append(Column(attribute, len(shares), float(np.sqrt(np.mean(np.square(one_ways[-1].noise_sd)))), lost))
    counted = released.codes.counts([q.attributes for q in released.measured], threads=threads)
    measured = tuple(
        MarginalOverview(
            q.attributes,
            q.cells,
            compute_expected_l1(np.full(q.cells, q.sigma / total)),
            float(np.abs(counts / rows - consistent[q.attributes]).sum()),
        )
        for q, counts in zip(released.measured, counted, strict=True)
    )
    inside = {pair for q in released.measured for pair in combinations(q.attributes, 2)}
    related = len(one_ways) - len(list_counted_alone(released.encoding.binning))
    return Overview(tuple(one_ways), tuple(columns), measured, len(inside), comb(related, 2))


def _build_one_way(
    encoding: EncodingPlan, attribute: str, recode: AttributeRecode, total: float, synthetic: Floats
) -> OneWayOverview:
    """Return one column by coarse code; filtered values are a further bin without synthetic rows."""
    filtered = not recode.kept.all()
    bins = recode.size + int(filtered)
    noisy = np.bincount(recode.coarse, weights=recode.estimate, minlength=bins) / total
    sd = np.sqrt(np.bincount(recode.coarse, weights=recode.variance, minlength=bins)) / total
    order = sort_bins(recode, bins)
    labels, shares = _list_labels(encoding, attribute, recode), (*map(float, synthetic), *(0.0,) * int(filtered))
    return OneWayOverview(
        attribute,
        tuple(labels[i] for i in order),
        tuple(float(noisy[i]) for i in order),
        tuple(float(sd[i]) for i in order),
        tuple(shares[i] for i in order),
    )


def sort_bins(recode: AttributeRecode, bins: int) -> list[int]:
    """Return coarse codes in the order of their fine codes.

    Codes of scattered fine codes come after the others, and filtered values come last.
    """

    def place(code: int) -> tuple[bool, bool, int]:
        inside = np.flatnonzero(recode.coarse == code)
        scattered = len(inside) > 0 and int(inside[-1] - inside[0]) >= len(inside)
        return code == recode.size, scattered, int(inside[0]) if len(inside) else len(recode.coarse)

    return sorted(range(bins), key=place)


def _list_labels(encoding: EncodingPlan, attribute: str, recode: AttributeRecode) -> list[str]:
    """Return the labels of the coarse codes: one bin's label, a range of neighbours, or a remark on combined bins."""
    codec = next(c for c in encoding.codecs if c.attribute == attribute)
    names, labels = codec.bin_labels(), []
    for code in range(int(recode.coarse.max()) + 1):
        inside = np.unique(codec.groups[recode.coarse == code])
        if code == recode.size:
            labels.append(f"left out: {_list_few(names, inside)}")
        elif len(inside) == 1:
            labels.append(names[inside[0]])
        elif any(a <= inside[0] and inside[-1] < b for a, b in codec.in_order) and (
            inside[-1] - inside[0] + 1 == len(inside)
        ):
            labels.append(f"{names[inside[0]]} to {names[inside[-1]]}")
        else:
            labels.append(f"together: {_list_few(names, inside)}")
    return labels


def _list_few(names: Sequence[str], bins: NDArray[np.int32]) -> str:
    return names[bins[0]] if len(bins) == 1 else f"{len(bins)} rare"


def write_overview(figures: Overview, *, prior: bool = False, trends: bool = False) -> str:
    """Return Markdown: how much was measured, where noise is worst, and the error of synthesis.

    ``prior``: whether the release has a public prior; ``trends``: whether it asked trends.
    """
    return render_note(
        "overview.md.j2",
        figures=figures,
        missing=explain_missing_relations(prior=prior, trends=trends),
        others="the public prior's" if prior else "independent or related by trend only" if trends else "independent",
        lost=_average(m.synthesis_l1 for m in figures.marginals),
        noise=_average(m.expected_noise_l1 for m in figures.marginals),
        worst=sorted(figures.marginals, key=lambda m: (-m.expected_noise_l1, m.attributes))[:WORST],
    )


def _average(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return float(np.mean(values)) if values else 0.0
