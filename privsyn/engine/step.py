"""The declaration of a step: its inputs, outputs, settings, function and facts, and the output types it may return."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.counting.part_files import PartFile
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import TableContract
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.spec_fields import read_fields
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart

Batches = Iterable[pa.RecordBatch]
Progress = Callable[[int, int], None]
"""Called with (done, total)."""


@dataclass(frozen=True)
class RowStream:
    """A wide output: its schema, its rows as a stream, and the profile its contract is checked on.

    ``parts``: rows of each file of a table that is written as a folder of files; empty: it is one file.  ``made``:
    these files where they are made already, with their profiles; ``batches`` reads them.
    """

    schema: pa.Schema
    batches: Batches
    profile: Callable[[Batches], pa.Table]
    parts: tuple[int, ...] = ()
    made: tuple[PartFile, ...] = ()


Output: TypeAlias = pa.Table | RowStream | Callable[[], pa.Table]
"""What a step makes: a long table, a wide one, or a table known only after the wide one has streamed."""


Words: TypeAlias = str | Callable[[Request], str]
"""What is said of a step: the same of every release, or by the public request."""


def say(words: Words, request: Request) -> str:
    """Return the words for this request."""
    return words(request) if callable(words) else words


class PublishedFile(NamedTuple):
    """Where a table lies in the released folder, and what it holds, as the end of a sentence; empty: not described."""

    name: str
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The declaration of one step.

    Attributes:
        name: Its name, unique in a run.
        title: Its name for people.
        kind: What it may read and make.
        encodes: Whether it reads the private table, as no other step does: all of these come before the first look.
        serves: The look without which there is no such step; empty: there always is.
        instead: Look -> the step that takes this one's place in releases that take the look.
        about: What it does, for the docs' list of steps.
        paper: Where it stands in the PrivSyn paper; empty: not there.
        when: Which releases have the step, as words of the docs; empty: all.
        inputs: Names ``step.table`` of earlier outputs; no other table can be read.
        may_read: The same of tables that some mechanisms make and others do not.
        wants: Kinds of looks whose released tables it reads, as far as earlier steps have taken such looks.
        looks: Kind -> the names of these looks, in order (:func:`connect`).
        outputs: Table -> its contract.
        only_after: Output -> the kind of look without which there is no such output.
        shares: Look -> its share of the request's budget (:func:`fund`).
        divides: The look whose budget the step's result divides; its price enters the cache key.
        fields: The spec's fields that it reads (:mod:`privsyn.engine.spec_fields`); they enter the cache key.
        settings: What else it depends on, by name, for the cache key.
        reads: Parts of public knowledge that it reads; they enter the cache key.
        inherits: Parts that it reads and that are in the key of an earlier step.  Its function is handed no others.
        run: Its function; None for a release step.
        version: Raised by hand when the same inputs and settings would give another output.  It enters the cache key,
            so that an upgrade re-runs what changed and nothing else.
        published: Table -> its file in the released folder.
        transient: Private tables among its outputs that are deleted when the run is published.
        words: What it does with released counts, for the release's descriptions; empty: nothing worth telling.
        limit: What the release cannot show because of this step, for its note.
        cuts: The table of cells that a look cut into parts; the step's request follows it.
        finer: Where cells were cut, input -> the input in its place, whose codes are of the parts.
    """

    name: str
    title: str
    kind: StepKind
    serves: str = ""
    instead: Mapping[str, Step] = field(default_factory=dict, repr=False)
    about: str = ""
    paper: str = ""
    when: str = ""
    encodes: bool = False
    inputs: tuple[str, ...]
    may_read: tuple[str, ...] = ()
    wants: tuple[LookKind, ...] = ()
    looks: Mapping[LookKind, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, TableContract]
    only_after: Mapping[str, LookKind] = field(default_factory=dict)
    shares: Mapping[str, Fraction] = field(default_factory=dict, repr=False)
    divides: str = ""
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
    finer: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Title and kind, as people read them: "Encode (transform)"."""
        return f"{self.title} ({self.kind})"

    @property
    def producers(self) -> tuple[str, ...]:
        """The steps whose tables it reads, once each, in declared order."""
        return tuple(dict.fromkeys(name.split(".")[0] for name in self.inputs))

    def restrict(self, request: Request) -> Request:
        """Return what the step may know of ``request``."""
        return request.restrict((*self.reads, *self.inherits))

    def open(self, request: Request, inputs: Inputs) -> tuple[Request, Inputs]:
        """Return what the step may know of ``request``, with the cells that an earlier look cut, and its inputs."""
        restricted, cuts = self.restrict(request), inputs.cuts(self.cuts)
        if cuts:
            restricted, inputs = restricted.cut_cells(cuts), inputs.replace_tables(self.finer)
        return restricted, self.lend(request, inputs)

    def lend(self, request: Request, inputs: Inputs) -> Inputs:
        """Return the inputs with the earlier looks that the step wanted, and the budget of every look."""
        return inputs.with_looks(self.looks, {look: request.total_rho * share for look, share in self.shares.items()})

    def build_key(self, request: Request) -> dict[str, Any]:
        """Return the step's own part of its cache key, JSON-ready: the fields and the public knowledge it reads."""
        price = self.price(self.divides, request) if self.divides in self.shares else {}
        declared = {**read_fields(request, self.fields), **self.settings(request)}
        return {**price, **declared, **request.public.key(self.reads)}

    def price(self, look: str, request: Request) -> dict[str, Any]:
        """Return what the noise of ``look`` depends on, JSON-ready: its budget, and the records of one person."""
        return {"rho": str(request.total_rho * self.shares[look]), "records": request.records}

    def settings_json(self, request: Request) -> str:
        """Return :meth:`build_key` as canonical JSON."""
        return json.dumps(self.build_key(request), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Look:
    """A look at private rows, in words for the note and the certificate.

    Attributes:
        what: What is counted.
        reason: Why its queries have their sensitivity, by the public request.
        noise_of: What the noise is added to.
        round: Which round of measuring it is, from 1; None: there is one only.
        alone: What is counted where no relation was measured, if that is something else than ``what``.
    """

    what: str
    reason: Words = field(repr=False)
    noise_of: str = "a count"
    round: int | None = None
    alone: str = ""

    @property
    def words(self) -> str:
        """The name of the look, with the number of its round where there are several."""
        return self.what if self.round is None else f"{self.what}, round {self.round}"

    def words_of(self, *, related: bool) -> str:
        """Return :attr:`words`, for a release that measured relations (``related``) or for one that did not."""
        return self.words if related or not self.alone else replace(self, what=self.alone).words


@dataclass(frozen=True, kw_only=True)
class ReleaseStep(Step):
    """A release step never sees noise: it says what to ask (``plan``, public) and counts it (``exact``).

    ``plan`` gets the request, released tables and the step's exact budget rho. The run gives each planned query the
    noise that its price buys under the release's pricing (``Query.under``), draws it before the look, adds it, and
    publishes sums only.

    ``measures``: what kind of measurement it is; ``read_with``: the released tables that say what its answers are of.
    """

    kind: StepKind = StepKind.RELEASE
    measures: LookKind
    read_with: tuple[str, ...] = ()
    plan: Callable[[Request, Inputs, Fraction], list[Query]] = field(repr=False)
    exact: Callable[[Request, Inputs, Countable, list[Query]], Iterator[NDArray[np.int64]]] = field(repr=False)
    look: Look = field(repr=False)
    rows: str
    rows_domain: Callable[[Request, Inputs], Domain] = field(
        default=lambda request, inputs: inputs.domain(), repr=False
    )
    padded: bool = False

    @property
    def released_tables(self) -> tuple[str, ...]:
        """The tables from which its noisy answers are read."""
        return (*(f"{self.name}.{table}" for table in self.outputs), *self.read_with)

    def build_key(self, request: Request) -> dict[str, Any]:
        """Return the key with what every release step depends on: its budget, and the records of one person."""
        return {**self.price(self.name, request), **super().build_key(request)}

    @property
    def share(self) -> Fraction:
        """The step's share of the request's budget; the shares of a release's looks sum to 1."""
        return self.shares[self.name]

    def rho(self, request: Request) -> Fraction:
        """Return the step's exact budget."""
        return request.total_rho * self.share

    def read_rows(self, request: Request, inputs: Inputs) -> Countable:
        """Return the private rows, to be counted: the look at the data."""
        return inputs.countable(self.rows, self.rows_domain(request, inputs), padded=self.padded)


def release_steps(steps: Iterable[Step]) -> tuple[ReleaseStep, ...]:
    """Return the release steps among ``steps``: they turn private into released and cost budget."""
    return tuple(step for step in steps if isinstance(step, ReleaseStep))


AnyStep = TypeVar("AnyStep", bound=Step)


def get_step(steps: Iterable[AnyStep], name: str) -> AnyStep:
    """Return the step of that name.  Raises LookupError if there is none."""
    for step in steps:
        if step.name == name:
            return step
    raise LookupError(f"there is no step {name!r}")


def list_published_files(steps: Iterable[Step]) -> dict[str, str]:
    """Return released file -> table (``step.table``) of a run of these steps.

    All that the synthetic table was made from.
    """
    return {file.name: f"{step.name}.{table}" for step in steps for table, file in step.published.items()}
