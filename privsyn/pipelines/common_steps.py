"""The first steps of every mechanism over noisy marginals: encode, one-way marginals, compression.

The last steps, from consistency to the synthetic table, are in privsyn/pipelines/synthesis_steps.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privsyn.counting.engine import Shape
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.panels import OF_HOUSEHOLD, OF_PERSON
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import (
    CODES,
    ENCODED_COLUMNS,
    ENCODED_ORDER,
    RECORD,
    LookDescription,
    Output,
    Progress,
    PublishedFile,
    ReleaseStep,
    RowStream,
    Step,
    write_together,
)
from privsyn.tasks.codecs import encode_rows
from privsyn.tasks.codecs.cells import list_roundings
from privsyn.tasks.estimation.recode import Recode, recode_to_table
from privsyn.tasks.estimation.rungs import expect_chosen_cells, pool_looks
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import compress_domain, encode, measure_marginals

RELEASED = {"noisy": tables.NOISY, "receipts": tables.RECEIPTS}
"""The outputs of every release step."""

ENCODED, NUMBERS = "encode.encoded_rows", "encode.numbers"
RECODE = "compress_domain.recode"
RECODED = "recode_rows.recoded_rows"

COMPRESSION = tuple(
    f"mechanism.compression.{name}"
    for name in ("enabled", "sigmas", "least_count", "filter", "neighbours", "equal_mass")
)
"""The fields that decide how codes are combined; the other fields of compression decide the cells."""

ONE_CELL = "k, the records a person may have: all k may fall into one cell"
"""The reason for a marginal's sensitivity."""


def explain_one_cell(request: Request) -> str:
    """Return the reason for the sensitivity of the request's marginals."""
    panel = request.spec.panel
    return ONE_CELL if panel is None else OF_HOUSEHOLD if panel.household else OF_PERSON


def list_released_tables(look: str) -> tuple[str, ...]:
    """Return the names of the tables that the release step ``look`` publishes."""
    return tuple(f"{look}.{table}" for table in RELEASED)


def publish_noisy(name: str, words: str = "") -> dict[str, PublishedFile]:
    """Return the released files of a release step's tables; ``words``: a description of the noisy table."""
    return {
        "noisy": PublishedFile(f"marginals/{name}.parquet", words),
        "receipts": PublishedFile(f"marginals/{name}_receipts.parquet"),
    }


def _encode_rows(request: Request, inputs: Inputs, progress: Progress, *, numbers: bool) -> Mapping[str, Output]:
    """Return the private rows as fine codes, the repairs made while reading and, if asked, the rows' numbers."""
    encoding, unit, private = request.encoding, request.spec.unit, inputs.private
    streams = {"encoded_rows": RowStream.of_codes((), encoding.domain)}
    if numbers:
        streams["numbers"] = RowStream.of_numbers((), encoding)
    # bounding records per person needs separate passes over all rows
    parts_to_encode = private.encode_parts(encoding, numbers) if unit.identifier is None else None
    if parts_to_encode is not None:
        make, parts = parts_to_encode
        (schema, profile), *beside = [Shape(stream.schema, stream.profile) for stream in streams.values()]
        files = list(inputs.work.make(make, profile, schema, parts, progress, beside))
        private.refuse_changed()
        repairs = encode_rows.Repairs(sum((part.extra.counts for part in files), Counter()))
        by_table = zip(*((part, *part.beside) for part in files), strict=True)
        made = {n: stream.read(p) for (n, stream), p in zip(streams.items(), by_table, strict=True)}
        return {**made, "repairs": repairs.to_table}
    repairs = encode_rows.Repairs()
    if numbers:
        rows = private.check_unchanged(encode.encode_with_numbers(private.rows, encoding, unit, repairs))
        return {**write_together(streams, rows, inputs.work), "repairs": repairs.to_table}
    batches = private.check_unchanged(encode.encode(private.rows, encoding, unit, repairs))
    return {"encoded_rows": replace(streams["encoded_rows"], batches=batches), "repairs": repairs.to_table}


_ENCODE = Step(
    name="encode",
    title="Encode",
    about="the private rows as codes of the public domain",
    kind=StepKind.TRANSFORM,
    inputs=(),
    outputs={"encoded_rows": tables.ENCODED_ROWS, "repairs": tables.REPAIRS},
    fields=(ENCODED_COLUMNS, ENCODED_ORDER, CODES, RECORD, "unit", "once", "null_values", "csv"),
    reads=(KnowledgePart.CODES,),
    run=partial(_encode_rows, numbers=False),
    encodes=True,
    version=4,
)

ENCODE_WITH_NUMBERS = replace(
    _ENCODE,
    outputs={"encoded_rows": tables.ENCODED_ROWS, "numbers": tables.NUMBERS, "repairs": tables.REPAIRS},
    settings=lambda r: {"numbers": encode_rows.list_numbered(r.encoding)},
    run=partial(_encode_rows, numbers=True),
    transient=("numbers",),
)
"""Encodes the private table for looks that see inside codes and so need the values' numbers."""

ENCODE = replace(_ENCODE, replacements=dict.fromkeys(("rung_counts", "value_counts"), ENCODE_WITH_NUMBERS))
"""Encodes the private table for looks that see only codes."""


def count_cells(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
    """Yield the exact counts of the queries, one count per cell, for looks at columns and sets of columns."""
    return measure_marginals.count_exactly(rows, queries, request.threads)


def plan_one_ways(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    """Plan one query per column; the noise is planned before cells are cut, so it does not depend on the cuts."""
    panel, uncut = request.spec.panel, request.cut_cells(())
    planned = measure_marginals.plan_one_ways(
        expect_chosen_cells(uncut.public.measured_alone, uncut.encoding.on_ladder),
        rho,
        request.records,
        equal=request.division == "equal",
        rounding=list_roundings(request.encoding.binning),
        members=(panel.composition,) if panel is not None and panel.household else (),
    )
    return [replace(q, cells=request.encoding.domain.size(q.attributes[0])) for q in planned]


ONE_WAYS = ReleaseStep(
    name="one_way_marginals",
    title="One-way marginals",
    about="rho1: every column on its own",
    paper="Algorithm 3, line 1",
    measures=LookKind.ONE_WAYS,
    inputs=(ENCODED,),
    outputs=RELEASED,
    settings=lambda r: {"one_ways": r.division},
    reads=(KnowledgePart.KNOWN_COLUMNS,),
    plan=plan_one_ways,
    exact=count_cells,
    look=LookDescription(counted="counts of every column on its own", reason=explain_one_cell),
    rows=ENCODED,
    rows_domain=lambda r, i: r.encoding.domain,
    published=publish_noisy("one_way", "has a count for every fine code of every column"),
)


def compress_by_one_ways(
    request: Request,
    inputs: Inputs,
    settings: Compression,
    least: compress_domain.LeastCodes = compress_domain.NO_LEAST,
) -> Recode:
    """Return the recoding by the noisy one-ways; ``least``: the smallest number of codes per attribute."""
    queries, answers = inputs.noisy("one_way_marginals")
    looks = {q.attributes[0]: (q, y) for q, y in zip(*inputs.all_noisy(LookKind.RUNGS), strict=True)}
    one_ways = [(q.attributes[0], q.sigma, y) for q, y in zip(queries, answers, strict=True)]
    answers = pool_looks(request.encoding, looks, one_ways)
    prior, binning = request.public.prior, request.encoding.binning
    compress = compress_domain.compress_domain if prior is None else partial(compress_domain.compress_towards, prior)
    return request.public.add_known_codes(compress(answers, queries, binning, settings, least))


def _compress(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = compress_by_one_ways(request, inputs, request.spec.mechanism.compression)
    return {"recode": recode_to_table(recode, request.encoding.labels())}


COMPRESS_DOMAIN = Step(
    name="compress_domain",
    title="Compress domain",
    about="rare values are combined, by their noisy counts",
    paper="line 2, section 5.3",
    kind=StepKind.POSTPROCESS,
    inputs=list_released_tables("one_way_marginals"),
    look_kinds=(LookKind.RUNGS,),
    outputs={"recode": tables.RECODE},
    fields=COMPRESSION,
    reads=(KnowledgePart.PRIOR, KnowledgePart.KNOWN_CODES),
    run=_compress,
    version=5,
    published={
        "recode": PublishedFile(
            "marginals/recode.parquet",
            "says what each code means (`label`) and which coarser code (`coarse`) it became in the joint counts",
        )
    },
    words=lambda r: "rare values are combined, by their noisy counts" if r.spec.mechanism.compression.enabled else "",
)
