"""The first steps of every mechanism over noisy marginals: encode, one-way marginals, compression.

The last ones, from consistency to the synthetic table, are in privsyn/pipelines/synthesis_steps.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import Any, TypeVar

from privsyn.base.errors import RequestError
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.columns import CategoricalColumn, DatetimeColumn
from privsyn.data_contracts.csv_options import USUAL_NULLS, CsvOptions
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Mechanism
from privsyn.data_contracts.publication import WORDS, WRITTEN
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Batches, Look, Output, Progress, PublishedFile, ReleaseStep, Step, Wide
from privsyn.tasks.codecs.level_codecs import LevelCodec
from privsyn.tasks.codecs.one_hot import OneHotCodec
from privsyn.tasks.codecs.split import SplitCodec
from privsyn.tasks.estimation.recode import recode_to_table
from privsyn.tasks.steps import compress_domain, encode, one_way_marginals

RELEASED = {"noisy": tables.NOISY, "receipts": tables.RECEIPTS}
"""The outputs of every release step."""

ENCODED = "encode.encoded_rows"
RECODE = "compress_domain.recode"

Options = TypeVar("Options", bound=Mechanism)

ONE_CELL = "k, the records a person may have: all k may fall into one cell"
"""Why a marginal has its sensitivity."""


def get_options_as(request: Request, kind: type[Options]) -> Options:
    """Return the request's options, which are of this kind.  Raises TypeError if it asks for another mechanism."""
    options = request.spec.mechanism
    if not isinstance(options, kind):
        raise TypeError(f"the request asks for the mechanism {options.name!r}")
    return options


def read_one_way_counts(stages: Sequence[str]) -> tuple[str, ...]:
    """Return the released tables of these release steps."""
    return tuple(f"{stage}.{table}" for stage in stages for table in RELEASED)


def publish_noisy(name: str, words: str = "") -> dict[str, PublishedFile]:
    """Return the released files of a release step's tables; ``words``: what the noisy one holds."""
    return {
        "noisy": PublishedFile(f"marginals/{name}.parquet", words),
        "receipts": PublishedFile(f"marginals/{name}_receipts.parquet"),
    }


def list_wide_codes(batches: Batches, domain: Domain, *, padded: bool = False) -> Wide:
    """Return a table of codes as a step's output."""
    profile = lambda b: tables.make_code_examples(b, domain, padded=padded)  # noqa: E731
    return Wide(tables.build_code_schema(domain, padded=padded), batches, profile)


def key_columns(request: Request, unused: AbstractSet[str] = WORDS) -> dict[str, Any]:
    """Return the released columns without the fields ``unused``; ``zone: UTC`` is what moments meant before zones."""
    found = {}
    for name, column in request.spec.released_columns.items():
        found[name] = column.model_dump(mode="json", exclude=set(unused))
        if isinstance(column, DatetimeColumn) and column.zone == "UTC":
            found[name].pop("zone")
    return found


def _keep_measured(request: Request, by_column: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part that is about columns that are measured: what is never read changes no code."""
    unmeasured = request.spec.unmeasured_columns
    return {name: value for name, value in by_column.items() if name not in unmeasured}


def _key_code_rules(request: Request) -> dict[str, Any]:
    """Return what rules change of the codes: edges, columns without a code, dummies; nothing without rules.

    Other changes of rules count no private row again.
    """
    plan = request.encoding
    if plan.rules is None:
        return {}
    groups = [[*c.sources, len(c.groups)] for c in plan.codecs if isinstance(c, OneHotCodec)]
    splits = {c.attribute: c.digest for c in plan.codecs if isinstance(c, SplitCodec)}
    found = {"thresholds": plan.rules.thresholds, "computed": list(plan.rules.order), "one_of": groups}
    levels = {c.attribute: c.digest for c in plan.codecs if isinstance(c, LevelCodec)}
    return {**found, **({"split": splits} if splits else {}), **({"levels": levels} if levels else {})}


def _key_wide_codes(request: Request) -> dict[str, Any]:
    """Return the cells of columns with wide bins; nothing where no bin is wide: their codes are those of before."""
    wide = request.encoding.wide
    return {"wide": {name: request.encoding.domain.size(name) for name in wide}} if wide else {}


def _key_null_values(spec: ReleaseSpec) -> tuple[str, ...]:
    """Return the texts that mean null, as far as any code depends on them.

    By default they were the empty text alone once.  The other usual ones had the same codes then as now, being
    unparseable or unlisted, unless a column has both null and another place for what it does not list.
    """
    if spec.null_values != USUAL_NULLS:
        return spec.null_values
    lists = (c for c in spec.measured_columns.values() if isinstance(c, CategoricalColumn))
    return USUAL_NULLS if any(c.nullable and c.goes_to != "null" for c in lists) else ("",)


def _encode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    encoding, repairs = request.encoding, encode.Repairs()
    rows = omit_default(encode.encode(inputs.private.rows, encoding, request.spec.unit, repairs), inputs)
    domain = encoding.domain
    profile = lambda batches: tables.make_code_examples(batches, domain)  # noqa: E731
    return {"encoded_rows": Wide(tables.build_code_schema(domain), rows, profile), "repairs": repairs.to_table}


def omit_default(batches: Batches, inputs: Inputs) -> Batches:
    """Pass batches through; RequestError at the end, before anything is kept, if the data changed meanwhile."""
    yield from batches
    if not inputs.private.unchanged():
        raise RequestError(
            "the private table changed while it was read", "Run again once it is complete", "release.data"
        )


ENCODE = Step(
    "encode",
    "Encode",
    Kind.TRANSFORM,
    (),
    {"encoded_rows": tables.ENCODED_ROWS, "repairs": tables.REPAIRS},
    lambda r: {
        "columns": _keep_measured(r, key_columns(r, WORDS | WRITTEN)),
        "unit": r.spec.unit.model_dump(),
        "null_values": _key_null_values(r.spec),
        "order": tuple(_keep_measured(r, dict.fromkeys(r.column_order))),
        **_key_code_rules(r),
        **_key_wide_codes(r),
        **({"csv": r.spec.csv.model_dump()} if r.spec.csv != CsvOptions() else {}),  # keys of before know no such field
    },
    _encode,
    version=2,
)


def key_known_totals(request: Request) -> dict[str, Any]:
    """Return the attributes whose counts are known and not measured; nothing without any."""
    known = () if request.totals is None else request.totals.one_way
    return {"known": sorted(known)} if known else {}


def list_codes_of_totals(request: Request) -> dict[str, Any]:
    """Return the known counts of single attributes, which their codes follow from; nothing without any."""
    totals = request.totals
    return {} if totals is None or not totals.one_way else {"totals": totals.key_of_codes()}


def key_totals(request: Request) -> dict[str, Any]:
    """Return all known totals by the name that they have in keys; nothing without any."""
    return {} if request.totals is None else {"totals": request.totals.key()}


def build_one_way_step(share: Fraction, division: str) -> ReleaseStep:
    """Return the one-way marginals with this share of the budget, divided among them by ``division``.

    "cells" or "equal".
    """

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        return one_way_marginals.plan_queries(request.measured_alone, rho, request.records, equal=division == "equal")

    return ReleaseStep(
        "one_way_marginals",
        "One-way marginals",
        Kind.RELEASE,
        (ENCODED,),
        RELEASED,
        lambda r: {"one_ways": division, **key_known_totals(r)},
        plan=plan,
        exact=lambda r, i, rows, queries: one_way_marginals.count_exactly(rows, queries, r.threads),
        share=lambda r: share,
        look=Look("counts of every column on its own", lambda r: ONE_CELL),
        rows=ENCODED,
        rows_domain=lambda r, i: r.encoding.domain,
        published=publish_noisy("one_way", "has a count for every fine code of every column"),
    )


def _compress(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    queries, answers = inputs.noisy("one_way_marginals")
    encoding, settings = request.encoding, request.spec.mechanism.compression
    how = (encoding.groups, settings, encoding.in_order, encoding.added, encoding.levels)
    if request.prior is None:
        recode = compress_domain.compress_domain(answers, queries, *how)
    else:
        recode = compress_domain.compress_towards(request.prior, answers, queries, *how)
    if request.totals is not None:
        recode = request.totals.with_recode(recode, encoding.domain.attributes)
    return {"recode": recode_to_table(recode, request.encoding.labels())}


COMPRESS_DOMAIN = Step(
    "compress_domain",
    "Compress domain",
    Kind.POSTPROCESS,
    read_one_way_counts(["one_way_marginals"]),
    {"recode": tables.RECODE},
    lambda r: {**r.spec.mechanism.compression.key(), **r.spec.prior_key(), **list_codes_of_totals(r)},
    _compress,
    version=3,
    published={
        "recode": PublishedFile(
            "marginals/recode.parquet",
            "says what each code means (`label`) and which coarser code (`coarse`) it became in the joint counts",
        )
    },
    words=lambda r: "rare values are combined, by their noisy counts" if r.spec.mechanism.compression.enabled else "",
)
