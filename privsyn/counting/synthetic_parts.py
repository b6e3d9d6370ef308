"""Make one part of a synthetic table: post-processing of released counts, which workers can do too.

Every ``make`` takes one shard, or one shard and its rows, and depends on these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.counting.engine import Made, PartFile, RowWork
from privsyn.data_contracts import tables
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Rows, Synthesis
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge import totals
from privsyn.tasks.knowledge.prior_pairs import PriorGuide
from privsyn.tasks.knowledge.totals import ExactCounts
from privsyn.tasks.steps import decode, synthesize
from privsyn.tasks.synthesis.shards import Residuals, Shard, add_residuals, measure_residuals, plan_shards

ShardCodes: TypeAlias = str | pa.Table
"""Rows of codes: the path of their file, or a table."""


class ShardRows(NamedTuple):
    """A shard, and its rows so far."""

    shard: Shard
    rows: ShardCodes


class Refining(NamedTuple):
    """A shard, its rows so far, and the summed residuals of all shards."""

    shard: Shard
    rows: ShardCodes
    residuals: Residuals


class ExactShard(NamedTuple):
    """A shard, its rows so far, and the public totals that they must match."""

    shard: Shard
    rows: ShardCodes
    exact: tuple[ExactCounts, ...]


@dataclass(frozen=True)
class CoreParts:
    """Makes the core attributes of a shard's rows, and their residuals."""

    marginals: Sequence[Marginal]
    domain: Domain
    settings: Synthesis
    zeros: KnownZeros | None
    prior: PriorGuide | None

    def make(self, shard: Shard, threads: int, progress: synthesize.Progress | None = None) -> Made:
        """Return the rows of one shard, made by itself; ``progress``: of this shard."""
        lacking: Residuals = {}
        made_from = self.marginals, self.domain, self.settings
        codes = synthesize.synthesize(*made_from, shard.rows, threads, progress, shard, lacking, self.zeros, self.prior)
        return Made(codes.to_arrow().to_batches(), lacking)

    def refine(self, task: Refining, threads: int) -> Made:
        """Return the rows of one shard, moved towards the summed residuals of all shards."""
        codes = _read_codes(task.rows, self.domain)
        codes, lacking = synthesize.refine_shard(
            codes, self.marginals, self.settings, task.shard, task.residuals, threads, self.zeros, self.prior
        )
        return Made(codes.to_arrow().to_batches(), lacking)


@dataclass(frozen=True)
class WholeParts:
    """Makes all attributes of a shard's rows from the core attributes."""

    core: Domain
    marginals: Sequence[Marginal]
    domain: Domain
    tied: AbstractSet[str]

    def make(self, task: ExactShard, threads: int) -> Made:
        """Return the rows of one shard with the appended attributes and the public totals."""
        rows, seed = _read_codes(task.rows, self.core), task.shard.own_seed
        codes = synthesize.append_attributes(rows, self.marginals, self.domain, seed, self.tied)
        codes = totals.hold(codes, task.exact, totals.seed_generator(seed))
        return Made(codes.to_arrow().to_batches())


@dataclass(frozen=True)
class DecodedParts:
    """Decodes a shard's codes to values."""

    recode: Recode
    encoding: EncodingPlan
    column_order: Sequence[str]
    exact: Sequence[str]
    related: bool
    asked_pairs: Sequence[Clique] | None = None

    def make(self, task: ShardRows, threads: int) -> Made:
        """Return the values of one shard's rows."""
        codes = _read_codes(task.rows, build_coarse_domain(self.recode))
        seed = task.shard.own_seed
        order, exact = self.column_order, self.exact
        values = decode.decode(
            codes, self.recode, self.encoding, order, seed, exact, related=self.related, asked_pairs=self.asked_pairs
        )
        return Made(values)


def make_core_parts(
    work: RowWork, parts: CoreParts, planned: Sequence[Shard], progress: synthesize.Progress = lambda done, total: None
) -> list[PartFile]:
    """Return the files of the shards: each is made alone, then shards are refined to reduce the joint residuals.

    Refining goes shard by shard, until all shards together are as close to the counts as a single shard was on average.
    """
    schema, profile = tables.build_code_schema(parts.domain), partial(tables.make_code_profile, domain=parts.domain)
    files, residuals, summed_distance = list[PartFile](), Residuals(), 0
    for part in work.make(parts.make, profile, schema, planned, progress):
        summed_distance += measure_residuals(part.extra)
        residuals = add_residuals([residuals, part.extra]) if files else part.extra
        files.append(replace(part, extra=None))  # the residuals of many shards are not held at once
    for i, shard in enumerate(planned):
        if measure_residuals(residuals) <= summed_distance / len(files):
            break
        task = Refining(shard, files[i].path, residuals)
        (files[i],) = work.make(parts.refine, profile, schema, [task])
        residuals = files[i].extra
    return files


def list_shard_rows(work: RowWork, stored: pa.Table | StoredTable, domain: Domain, settings: Rows) -> list[ShardRows]:
    """Return the shards of a stored table of synthetic codes, each with its rows."""
    planned = plan_shards(stored.num_rows, settings)
    sizes = [shard.rows for shard in planned]
    if isinstance(stored, StoredTable) and stored.list_rows() == sizes:
        rows: list[ShardCodes] = [*work.lend(stored.files)]
    elif isinstance(stored, pa.Table) and len(planned) == 1:
        rows = [stored]
    else:  # in one piece, or made by an earlier version
        batches = stored.to_batches() if isinstance(stored, pa.Table) else stored.batches()
        rows = list(work.split(batches, tables.build_code_schema(domain), sizes))
    return [ShardRows(shard, shard_rows) for shard, shard_rows in zip(planned, rows, strict=True)]


def _read_codes(rows: ShardCodes, domain: Domain) -> CodeTable:
    return CodeTable.from_arrow(pq.read_table(rows) if isinstance(rows, str) else rows, domain)
