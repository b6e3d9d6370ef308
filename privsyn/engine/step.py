"""The declaration of a step, and how declared steps become the steps of one release.

A declaration has inputs, outputs, the spec's fields that it reads, a function and facts.

A mechanism declares every step that some release has (``privsyn/pipelines/one_shot.py``).  Four functions turn them
into the steps of one release, in this order:

1. :func:`privsyn.pipelines.budget.split_budget` chooses the release's looks and their shares.
2. :func:`fund` gives the steps these shares; it drops looks without one, and the steps that serve them.
3. :func:`connect` adds the tables of the earlier looks that a step wants to its inputs.
4. :func:`privsyn.pipelines.rung_steps.follow_cuts` lets later steps read the codes of the chosen cells.

:func:`check_shares` compares the shares with the whole budget, and :func:`run_steps` runs the steps in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from privsyn.counting.engine import Make, PartFile, RowWork, Shape, read_parts
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.columns import DatetimeColumn
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.publication import COLUMN_WORDS, COLUMN_WRITING
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import TableContract, ValueRange
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.encode_rows import build_number_domain
from privsyn.tasks.kernels.blocks import read_ahead
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps.decode import build_released_schema

ENCODED_COLUMNS, DECODED_COLUMNS = "columns as they are encoded", "columns as they are decoded"
COLUMN_ORDER, ENCODED_ORDER = "the order of columns", "the order of columns that are read"
CODES, RECORD = "codes", "what makes a record of a person"


def _describe_columns(request: Request, unused: AbstractSet[str]) -> dict[str, Any]:
    """Return the released columns without the fields ``unused``; a moment's zone only if it is not UTC."""
    described = {}
    for name, column in request.spec.released_columns.items():
        utc = {"zone"} if isinstance(column, DatetimeColumn) and column.zone == "UTC" else set()
        described[name] = column.model_dump(mode="json", exclude={*unused, *utc})
    return described


def _describe_encoded(request: Request) -> dict[str, Any]:
    """Return the measured columns, since unread columns change no code."""
    unmeasured = request.spec.unmeasured_columns
    columns = _describe_columns(request, COLUMN_WORDS | COLUMN_WRITING)
    return {name: column for name, column in columns.items() if name not in unmeasured}


def _describe_record(request: Request) -> dict[str, Any] | None:
    """Return the columns that turn a person's rows into one record; None if each row is a record."""
    panel = request.spec.panel
    return None if panel is None else {"by": panel.order, "above": panel.constant if panel.above else None}


def _describe_codes(request: Request) -> dict[str, Any]:
    """Return the public facts about the codes, with the cells of an earlier release if the spec takes them."""
    cells = request.spec.cells
    taken = {} if cells is None else {"cells": cells.model_dump(mode="json", include={"columns"})["columns"]}
    return {**request.encoding.describe_codes(), **taken}


VIEWS: dict[str, Callable[[Request], Any]] = {
    ENCODED_COLUMNS: _describe_encoded,
    DECODED_COLUMNS: lambda request: _describe_columns(request, COLUMN_WORDS),
    COLUMN_ORDER: lambda request: request.column_order,
    ENCODED_ORDER: lambda request: [n for n in request.column_order if n not in request.spec.unmeasured_columns],
    CODES: _describe_codes,
    RECORD: _describe_record,
}
"""Parts of fields, and values derived from several fields."""


def read_fields(request: Request, names: Iterable[str]) -> dict[str, Any]:
    """Return the value of every declared field, JSON-ready, without fields that the request's mechanism lacks.

    ``names``: a view, or a dotted path in the spec.
    """
    values = {name: VIEWS[name](request) if name in VIEWS else _read_path(request, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _read_path(request: Request, path: str) -> Any:
    value: Any = request.spec
    for name in path.split("."):
        value = getattr(value, name, None)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


Batches = Iterable[pa.RecordBatch]
Progress = Callable[[int, int], None]
"""Called with (done, total)."""


@dataclass(frozen=True)
class RowStream:
    """A wide output: its schema, its rows as a stream, and the profile for its contract check.

    ``parts``: rows of each file, for a table that is written as a folder of files; empty: one file.  ``made``: finished
    files, with their profiles; ``batches`` reads them.
    """

    schema: pa.Schema
    batches: Batches
    profile: Callable[[Batches], pa.Table]
    parts: tuple[int, ...] = ()
    made: tuple[PartFile, ...] = ()

    @classmethod
    def of_codes(cls, batches: Batches, domain: Domain, *, padded: bool = False) -> RowStream:
        """Return a table of codes."""
        profile = partial(tables.make_code_profile, domain=domain, padded=padded)
        return cls(tables.build_code_schema(domain, padded=padded), batches, profile)

    @classmethod
    def of_numbers(cls, batches: Batches, encoding: EncodingPlan) -> RowStream:
        """Return a table of values, as whole multiples of their columns' resolution."""
        domain = build_number_domain(encoding)
        profile = partial(tables.make_code_profile, domain=domain, nullable=True)
        return cls(tables.build_code_schema(domain, nullable=True), batches, profile)

    @classmethod
    def of_values(cls, batches: Batches, ranges: Mapping[str, ValueRange], parts: tuple[int, ...] = ()) -> RowStream:
        """Return a table of released values; ``ranges``: column, in order -> its possible values."""
        return cls(build_released_schema(ranges), batches, partial(tables.make_value_profile, ranges=ranges), parts)

    def read(self, files: Iterable[PartFile]) -> RowStream:
        """Return this table with the rows of its finished parts."""
        made = tuple(files)
        return replace(self, batches=read_parts(made), made=made)

    def make(self, work: RowWork, make: Make, tasks: Sequence[Any], threads: int, progress: Progress) -> RowStream:
        """Return this table, made task by task: as a stream if there is one task, else in files."""
        if len(tasks) == 1:
            return replace(self, batches=read_ahead(make(tasks[0], threads).batches, threads))
        return self.read(work.make(make, self.profile, self.schema, tasks, progress))


def write_together(streams: Mapping[str, RowStream], batches: Iterable[Any], work: RowWork) -> dict[str, RowStream]:
    """Write several tables in one pass and return them; each item of ``batches`` has one batch per table."""
    files = work.write_together(batches, [Shape(stream.schema, stream.profile) for stream in streams.values()])
    return {n: stream.read([file]) for (n, stream), file in zip(streams.items(), files, strict=True)}


Output: TypeAlias = pa.Table | RowStream | Callable[[], pa.Table]
"""An output of a step: a long table, a wide one, or a table known only after the wide one has streamed."""


Words: TypeAlias = str | Callable[[Request], str]
"""A text about a step, fixed or by the public request."""


def say(words: Words, request: Request) -> str:
    """Return the text for this request."""
    return words(request) if callable(words) else words


class PublishedFile(NamedTuple):
    """A table's file in the released folder, and its content as the end of a sentence (empty: not described)."""

    name: str
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The declaration of one step.

    Attributes:
        name: Its name, unique in a run.
        title: Its name for people.
        kind: What it may read and make.
        encodes: Whether it reads the private table; all such steps come before the first look.
        only_with_look: The look that it depends on: the step exists only with that look; empty: always.
        replacements: Look -> the step that replaces this one in releases with the look.
        about: What it does, for the list of steps in the docs.
        paper: Its section in the PrivSyn paper; empty: none.
        when: Which releases have the step, for the docs; empty: all.
        inputs: Names ``step.table`` of earlier outputs; it can read no other table.
        may_read: The same for tables that only some mechanisms make.
        look_kinds: Kinds of looks whose released tables it reads, if earlier steps have taken such looks.
        looks: Kind -> the names of these looks, in order (:func:`connect`).
        outputs: Table -> its contract.
        only_after: Output -> the kind of look that it depends on.
        shares: Look -> its share of the request's budget (:func:`fund`).
        budgets: The looks whose budget its result depends on; their price enters the cache key.
        fields: The spec's fields that it reads (VIEWS); they enter the cache key.
        settings: Other dependencies, by name, for the cache key.
        reads: Parts of public knowledge that it reads; they enter the cache key.
        inherits: Parts that it reads and that are in the key of an earlier step.  Its function gets no other parts.
        run: Its function; None for a release step.
        version: Raised by hand if the same inputs and settings give another output.  It enters the cache key, so that
            an upgrade re-runs only changed steps.
        published: Table -> its file in the released folder.
        transient: Private tables among its outputs that are deleted when the run is published.
        words: What it does with released counts, for the release's descriptions; empty: not described.
        limit: What the release cannot show because of this step, for its note.
        cuts: The table of cells that a look cut into parts; the step's request follows it.
        finer_inputs: For releases with cut cells, input -> its replacement, with codes for the parts.
    """

    name: str
    title: str
    kind: StepKind
    only_with_look: str = ""
    replacements: Mapping[str, Step] = field(default_factory=dict, repr=False)
    about: str = ""
    paper: str = ""
    when: str = ""
    encodes: bool = False
    inputs: tuple[str, ...]
    may_read: tuple[str, ...] = ()
    look_kinds: tuple[LookKind, ...] = ()
    looks: Mapping[LookKind, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, TableContract]
    only_after: Mapping[str, LookKind] = field(default_factory=dict)
    shares: Mapping[str, Fraction] = field(default_factory=dict, repr=False)
    budgets: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    settings: Callable[[Request], dict[str, Any]] = field(default=lambda request: {}, repr=False)
    reads: tuple[KnowledgePart, ...] = ()
    inherits: tuple[KnowledgePart, ...] = ()
    run: Callable[[Request, Inputs, Progress], Mapping[str, Output]] | None = field(default=None, repr=False)
    version: int = 1
    published: Mapping[str, PublishedFile] = field(default_factory=dict)
    transient: tuple[str, ...] = ()
    words: Words = field(default="", repr=False)
    limit: str = ""
    cuts: str = ""
    finer_inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Title and kind, for people: "Encode (transform)"."""
        return f"{self.title} ({self.kind})"

    @property
    def producers(self) -> tuple[str, ...]:
        """The steps whose tables it reads, once each, in declared order."""
        return tuple(dict.fromkeys(name.split(".")[0] for name in self.inputs))

    def restrict(self, request: Request) -> Request:
        """Return the part of ``request`` that the step may know."""
        return request.restrict((*self.reads, *self.inherits))

    def open(self, request: Request, inputs: Inputs) -> tuple[Request, Inputs]:
        """Return the request that the step may know, with the cells that an earlier look cut, and its inputs."""
        restricted, cuts = self.restrict(request), inputs.cuts(self.cuts)
        if cuts:
            restricted, inputs = restricted.cut_cells(cuts), inputs.replace_tables(self.finer_inputs)
        return restricted, self.lend(request, inputs)

    def lend(self, request: Request, inputs: Inputs) -> Inputs:
        """Return the inputs with the earlier looks that the step wants, its own budget, and those that it declares."""
        looks = (*self.budgets, *({self.name} & self.shares.keys()))
        return inputs.with_looks(self.looks, {n: request.total_rho * self.shares.get(n, Fraction(0)) for n in looks})

    def build_key(self, request: Request) -> dict[str, Any]:
        """Return the step's own part of its cache key, JSON-ready: the fields and the public knowledge it reads."""
        taken = [look for look in self.budgets if look in self.shares]
        price = self.price(taken, request) if taken else {}
        declared = {**read_fields(request, self.fields), **self.settings(request)}
        return {**price, **declared, **request.public.key(self.reads)}

    def price(self, looks: Iterable[str], request: Request) -> dict[str, Any]:
        """Return the factors of the looks' noise, JSON-ready: their budget, and the records of one person."""
        rho = sum((request.total_rho * self.shares[look] for look in looks), Fraction(0))
        return {"rho": str(rho), "records": request.records}

    def key_json(self, request: Request) -> str:
        """Return :meth:`build_key` as canonical JSON."""
        return json.dumps(self.build_key(request), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class LookDescription:
    """A look at private rows, described for the note and the certificate.

    Attributes:
        counted: What is counted.
        reason: Why its queries have their sensitivity, by the public request.
        noise_of: What the noise is added to.
        round: The number of its round of measuring, from 1; None: there is only one.
        counted_alone: What is counted if no relation was measured, where it differs from ``counted``.
    """

    counted: str
    reason: Words = field(repr=False)
    noise_of: str = "a count"
    round: int | None = None
    counted_alone: str = ""

    @property
    def words(self) -> str:
        """The name of the look, with the number of its round if there are several."""
        return self.counted if self.round is None else f"{self.counted}, round {self.round}"

    def describe(self, *, related: bool) -> str:
        """Return :attr:`words`, for a release with measured relations (``related``) or without."""
        return self.words if related or not self.counted_alone else replace(self, counted=self.counted_alone).words


@dataclass(frozen=True, kw_only=True)
class ReleaseStep(Step):
    """A release step never sees noise: it plans its queries (``plan``, public) and counts them (``exact``).

    ``plan`` gets the request, released tables and the step's exact budget rho.  The run gives each planned query the
    noise that its price buys under the release's pricing (``Query.under``), draws it before the look, adds it, and
    publishes only sums.

    ``measures``: the kind of its measurements; ``read_with``: the released tables needed to interpret its answers.
    """

    kind: StepKind = StepKind.RELEASE
    measures: LookKind
    read_with: tuple[str, ...] = ()
    plan: Callable[[Request, Inputs, Fraction], list[Query]] = field(repr=False)
    exact: Callable[[Request, Inputs, Countable, list[Query]], Iterator[NDArray[np.int64]]] = field(repr=False)
    look: LookDescription = field(repr=False)
    rows: str
    rows_domain: Callable[[Request, Inputs], Domain] = field(
        default=lambda request, inputs: inputs.domain(), repr=False
    )
    padded: bool = False

    @property
    def released_tables(self) -> tuple[str, ...]:
        """The tables with its noisy answers and their interpretation."""
        return (*(f"{self.name}.{table}" for table in self.outputs), *self.read_with)

    def build_key(self, request: Request) -> dict[str, Any]:
        """Return the key with the factors of every release step: its budget, and the records of one person."""
        return {**self.price([self.name], request), **super().build_key(request)}

    @property
    def share(self) -> Fraction:
        """The step's share of the request's budget; the shares of a release's looks sum to 1."""
        return self.shares[self.name]

    def rho(self, request: Request) -> Fraction:
        """Return the step's exact budget."""
        return request.total_rho * self.share

    def read_rows(self, request: Request, inputs: Inputs) -> Countable:
        """Return the private rows for counting: the look at the data."""
        return inputs.countable(self.rows, self.rows_domain(request, inputs), padded=self.padded)


def release_steps(steps: Iterable[Step]) -> tuple[ReleaseStep, ...]:
    """Return the release steps among ``steps``, which turn private data into released data and cost budget."""
    return tuple(step for step in steps if isinstance(step, ReleaseStep))


AnyStep = TypeVar("AnyStep", bound=Step)


def get_step(steps: Iterable[AnyStep], name: str) -> AnyStep:
    """Return the step with this name.  Raises LookupError if there is none."""
    for step in steps:
        if step.name == name:
            return step
    raise LookupError(f"there is no step {name!r}")


def list_published_files(steps: Iterable[Step]) -> dict[str, str]:
    """Return released file -> table (``step.table``), for a run of these steps."""
    return {file.name: f"{step.name}.{table}" for step in steps for table, file in step.published.items()}


def fund(steps: Iterable[Step], budget: Mapping[str, Fraction]) -> tuple[Step, ...]:
    """Return the steps of releases with this budget, each with all shares; ``budget``: look -> its share.

    Looks without a share are dropped, with the steps that serve them.
    """
    funded = []
    for declared in steps:
        step = next((other for look, other in declared.replacements.items() if look in budget), declared)
        needed = step.name if isinstance(step, ReleaseStep) else step.only_with_look
        if needed in budget or not needed:
            funded.append(replace(step, shares=budget, replacements={}))
    return tuple(funded)


def connect(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps, each with the tables of the earlier looks that it wants among its inputs.

    A step also gets the tables of ``may_read`` that an earlier step makes, and loses the outputs of looks that are not
    taken.
    """
    connected: list[Step] = []
    for step in steps:
        made = {f"{s.name}.{table}" for s in connected for table in s.outputs}
        looks = {kind: list_looks(connected, kind) for kind in step.look_kinds}
        read = [table for kind in step.look_kinds for look in looks[kind] for table in look.released_tables]
        dropped = {table for table, kind in step.only_after.items() if not list_looks(connected, kind)}
        connected.append(
            replace(
                step,
                inputs=tuple(dict.fromkeys((*step.inputs, *(t for t in step.may_read if t in made), *read))),
                looks={kind: tuple(look.name for look in looks[kind]) for kind in looks} or step.looks,
                outputs={table: contract for table, contract in step.outputs.items() if table not in dropped},
                published={table: file for table, file in step.published.items() if table not in dropped},
                may_read=(),
                look_kinds=(),
                only_after={},
            )
        )
    return tuple(connected)


def check_shares(steps: Sequence[Step]) -> None:
    """Raise ValueError unless the shares of the release steps are positive and sum to exactly 1."""
    shares = [step.share for step in release_steps(steps)]
    if sum(shares) != 1 or min(shares, default=Fraction(0)) <= 0:
        raise ValueError(f"the shares of the release steps are {', '.join(map(str, shares))}: they must sum to 1")


def list_looks(steps: Iterable[Step], kind: LookKind) -> tuple[ReleaseStep, ...]:
    """Return the release steps among ``steps`` whose measurements are of this kind, in order."""
    return tuple(step for step in release_steps(steps) if step.measures is kind)


def repeat(step: ReleaseStep, n: int, files: Mapping[str, PublishedFile]) -> ReleaseStep:
    """Return the same look, repeated for release ``n`` of several; ``files``: its published files."""
    return replace(
        step,
        name=f"{step.name}_{n}",
        title=f"{step.title}, release {n}",
        look=replace(step.look, round=n),
        published=files,
    )


Outputs = TypeVar("Outputs")


def run_steps(steps: Iterable[Step], run: Callable[[Step, Mapping[str, Outputs]], Outputs]) -> dict[str, Outputs]:
    """Run every step in order on the results of its producers, by their names; returns step name -> its own result.

    Raises LookupError for an input that no step made.
    """
    outputs: dict[str, Outputs] = {}
    for step in steps:
        outputs[step.name] = run(step, {name: outputs[name] for name in step.producers})
    return outputs
