"""The release spec: one frozen model that is the YAML file, the CLI's request and the flow's parameter.

If a default differs from the paper's value, the field's description says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from privsyn.data_contracts.columns import CategoryValue, Column, DropColumn
from privsyn.data_contracts.columns.ordered_columns import name_heap_attribute
from privsyn.data_contracts.csv_options import USUAL_NULLS, CsvOptions, check_csv_texts
from privsyn.data_contracts.focus import Focus, NamedMarginal, check_targets
from privsyn.data_contracts.frozen_model import (
    FieldError,
    FrozenModel,
    Schema,
    leave_options,
    leave_to_ledger,
    leave_to_preset,
    merge_into_one_object,
)
from privsyn.data_contracts.linked_tables import (
    OF_FURTHER,
    LinkedTable,
    build_first_table_pair,
    build_table_pair,
    check_further_table,
    check_tables,
    fold_tables,
    get_above,
    get_below,
    join_columns,
    list_constant_columns,
)
from privsyn.data_contracts.mechanism_options import Aim, AnyMechanism, PrivSyn, Synthesis
from privsyn.data_contracts.panels import Panel, check_panel, describe_identifier, describe_row_key
from privsyn.data_contracts.presets import (
    DEFAULT_ACCOUNTANT,
    EARLIER_SECTIONS,
    PAPER,
    PAPER_ACCOUNTANT,
    RELATIONS,
    fill_options,
    fill_targets,
    keep_declined,
    translate_to_current,
)
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.public_counts import (
    EarlierCells,
    Improvement,
    KnownTotal,
    Prior,
    PublicFile,
    check_poolable,
    check_prior,
    check_totals,
)
from privsyn.data_contracts.publication import About, Format, check_known_formats
from privsyn.data_contracts.question_language import (
    MeasuredSummary,
    check_summaries,
    list_measured_summaries,
    list_summary_columns,
)
from privsyn.data_contracts.rule_language import NEIGHBOURS, RowWords
from privsyn.data_contracts.rules import (
    LookupRule,
    OneOf,
    Rule,
    check_rules,
    list_computed_columns,
    map_computed_columns,
    map_continued_columns,
)
from privsyn.data_contracts.spec_checks import (
    check_compared,
    check_levels,
    check_together,
    check_unmeasured,
    list_named_columns,
)


class EngineChoice(FrozenModel):
    """Where private rows are counted.  Every engine gives the same integers, noise and result."""

    kind: Literal["local", "dask"] = Field(
        default="local",
        description="`local`: in this process, on all its cores. `dask`: by the workers of a Dask cluster. A "
        "change repeats nothing.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=1_024,
        description="`dask`: worker processes on this machine for this run. 0: one per core, or the operator's "
        "cluster.",
    )

    @model_validator(mode="after")
    def _check_kind(self) -> EngineChoice:
        if self.kind == "local" and self.workers:
            raise FieldError("`workers` is for `kind: dask`")
        return self


MAX_COLUMNS = 5_000

DATASET = r"^[a-z0-9][a-z0-9_-]{0,47}$"
"""Pattern of data set names in the ledger."""


def _check_table_pair(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, if a further table does not fit its parent table."""
    name, table = get_below(spec.tables)
    for i, rule in enumerate(spec.rules):
        computed = (*map_computed_columns(rule), *map_continued_columns(rule), *getattr(rule, "one_of", ()))
        other = next((column for column in computed if column not in table.columns), None)
        if other is not None:
            problem = f"makes {other!r}, which is not a column of {name}; rows above are made first"
            raise FieldError(problem, f"Make columns of {name} alone", ("rules", i))
    check_tables(spec)
    check_panel(spec)
    check_rules(spec.rules, spec.released_columns, spec.row_words)
    check_unmeasured(spec)
    check_levels(spec.released_columns, spec.rules, spec.row_words)
    _check_targets(spec)
    summary_columns = dict(list_summary_columns(spec.workload, spec.released_columns))
    for place, named in list_named_columns(spec, spec.released_columns, spec.row_words):
        if place[0] in OF_FURTHER and {*table.columns}.isdisjoint((*named, *summary_columns.get(place, ()))):
            problem = f"names no column of {name}, but rows above are made first"
            raise FieldError(problem, f"Add a column of {name}, or write it in `{place[0]}` of the spec", place)
    for i, rule in enumerate(spec.rules):
        if isinstance(rule, LookupRule) and rule.lookup.table:
            raise FieldError("names a file", "Give the table itself as `rows`", ("rules", i, "lookup", "table"))


def _check_targets(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, for targets unknown to the spec's columns or mechanism."""
    if spec.focus is None and not spec.workload:
        return
    check_summaries(spec)
    check_targets(spec.focus, spec.workload, spec.released_columns, list_computed_columns(spec.rules))
    field = "workload" if spec.focus is None else "focus"
    if not isinstance(spec.mechanism, PrivSyn | Aim):
        raise FieldError(
            f"the mechanism {spec.mechanism.name!r} does not support targets",
            "Take the field out, or choose the mechanism privsyn or aim",
            (field,),
        )
    if isinstance(spec.mechanism, PrivSyn) and spec.mechanism.selection.criterion != "expected_error":
        raise FieldError(
            f"pairs are chosen by {spec.mechanism.selection.criterion!r}, which does not support targets",
            "Take the field out, or write `mechanism: {selection: {criterion: expected_error}}`",
            (field,),
        )
    if len(spec.measured_sets) < sum(marginal.measured for marginal in spec.workload):
        raise FieldError(
            "sets of columns can be measured only for rows made by sweeps",
            "Write `measured: false`, or `mechanism: {synthesis: {method: sweep}}`",
            ("workload",),
        )


def _check_first_tables(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, if a field about the first two tables names a column of a further table."""
    further = spec.further_tables
    if not further:
        return
    every = {name: dict(c) for name in further if isinstance(c := spec.tables[name].columns, Mapping)}
    table_of = {column: name for name, columns in every.items() for column in columns if column not in spec.columns}
    released = {n: c for columns in every.values() for n, c in columns.items() if not isinstance(c, DropColumn)}
    released |= spec.released_columns
    words = replace(spec.row_words, tables={name: tuple(table.columns) for name, table in spec.tables.items()})
    summary_columns = list_summary_columns(spec.workload, released)
    for place, named in (*list_named_columns(spec, released, words), *summary_columns):
        other = next((column for column in named if column in table_of), None)
        if other is not None:
            problem = f"names {other!r}, a column of {table_of[other]}, but is about the first two tables"
            cure = (
                f"Write it in `tables.{table_of[other]}.{place[0]}`"
                if place[0] in OF_FURTHER
                else "Name columns of those"
            )
            raise FieldError(problem, cure, place)


class ReleaseSpec(FrozenModel):
    """Everything a release depends on, except the private table itself."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset(
        {
            "accountant",
            "query",
            "focus",
            "workload",
            "improves",
            "prior",
            "cells",
            "totals",
            "together",
            "like",
            "public_files",
            "order",
            "constant",
            "with_order",
            "once",
            "compare",
            "tables",
        }
    )

    dataset: str = Field(
        pattern=DATASET,
        description="Name in the ledger: lower-case letters, digits, - and _, at most 48 characters.",
    )
    data: str = Field(
        default="",
        description="The private table: a file, a folder of CSV or Parquet files, or a URL such as "
        "`postgresql://host/db?table=people` (docs/operations/sources.md). Empty: a program hands it over.",
    )
    query: str = Field(
        default="",
        max_length=20_000,
        description="One SQL SELECT whose rows are the table, if `data` is a database's URL without a table.",
    )
    unit: Unit = Field(
        description="Whom the promise protects: a person (`records_per_person`, or `person_id` with `max_records`), "
        "or a household (`household_id` with `max_records`)."
    )
    privacy: Guarantee = Field(description="Epsilon and delta of this release: the most it may cost.")
    budget: Guarantee = Field(description="Lifetime cap on all releases of this data set, set for good by the first.")
    columns: dict[str, Column] = Field(
        description="Every column, with its domain from a public source. Kinds: `integer`, `number`, "
        "`datetime`, `date`, `time`, `categorical`, `boolean`, `drop`. As JSON (`privsyn spec json SPEC` writes "
        'it): `{"age": {"kind": "integer", "min": 18, "max": 89}, "caseid": {"kind": "drop"}}`'
    )
    tables: dict[str, LinkedTable] = Field(
        default={},
        description="Two or more linked tables in place of `data` and `columns` (docs/tables.md): `{persons: "
        "{data: persons.parquet, key: pid, columns: {...}}, visits: {data: visits.parquet, of: persons, order: "
        "date, max: 20, columns: {...}}}`. In a form, `columns` is then `{}`.",
    )
    order: str | None = Field(
        default=None,
        description="Column that orders a person's rows, such as `year`: new persons then have linked rows; "
        "needs `person_id`. With `household_id`: the `categorical` column of roles, such as `[head, partner, "
        "child]` (docs/panels.md).",
    )
    constant: tuple[str, ...] = Field(
        default=(),
        description="Columns that are the same in every row of a person, such as `[sex, birth_year]`.",
    )
    with_order: tuple[str, ...] = Field(
        default=(),
        description="Columns of whole numbers that grow from row to row exactly as `order` does, such as `[age]`.",
    )
    once: tuple[CategoryValue, ...] = Field(
        default=(),
        description="Roles that at most one member of a household has, such as `[head, partner]`.",
    )
    null_values: tuple[str, ...] = Field(
        default=USUAL_NULLS,
        description="CSV only: texts that mean null. Default: the texts of R and pandas, except in columns whose "
        "`values` list one.",
    )
    csv: CsvOptions = Field(default=CsvOptions(), description="CSV only: how the files are written.")
    rules: tuple[Rule, ...] = Field(
        default=(),
        description="Public statements that every released row keeps (docs/rules.md): `never`, `derive`, `lookup`, "
        "`one_of`.",
    )
    preset: Literal["0.4", "0.3", "paper"] = Field(
        default="0.4",
        description="Defaults for the fields below: `0.4` (this project's), `0.3` (earlier ones) or `paper` (the "
        "paper's method and settings).",
    )
    accountant: Literal["gaussian", "tight", "paper"] | None = Field(
        default=None,
        description="How (epsilon, delta) becomes noise (docs/privacy.md): `tight`, `gaussian` (this project's own "
        "proof, a tenth more rho) or `paper`. A cap begun with `gaussian` takes no other. Empty: the cap's own, "
        "`tight` for a new data set, or `paper` with that preset.",
    )
    mechanism: AnyMechanism = Field(
        default=PrivSyn(),
        description="How counts are chosen and rows made (docs/mechanisms.md). `independent`, `privbayes` and "
        "`prior` take only `rows`, `seed` and `shard_rows` of `synthesis`.",
    )
    focus: Focus | None = Field(
        default=None,
        description='Columns whose relations count more: `{"columns": ["income"]}`. Not given: all count alike.',
    )
    workload: tuple[NamedMarginal, ...] = Field(
        default=(),
        description='Sets of columns whose joint counts matter more: `[{"columns": ["age", "sex", "income"], '
        '"weight": 10}]`, or questions: `[{"question": "sex, region where age < 30"}]`. A pair in several sets '
        "has the largest weight.",
    )
    improves: Improvement | None = Field(
        default=None,
        description="Written by `privsyn improve RUN`: earlier releases of the same data whose counts are "
        "pooled with the new ones. `privacy` is then the promise of all of them together.",
    )
    prior: Prior | None = Field(
        default=None,
        description='Public table of similar rows that noisy counts are drawn towards: `{"table": '
        '"last_year.parquet", "statement": "whose data, and why public"}`. Its statistics show.',
    )
    cells: EarlierCells | None = Field(
        default=None,
        description='Reuse the cells of an earlier release for numbers, dates and moments, at no cost: `{"release": '
        '"../released/visits-1a2b3c4d"}`. No first look is then taken (docs/algorithm.md).',
    )
    totals: tuple[KnownTotal, ...] = Field(
        default=(),
        description='Published counts of this table, kept at no cost: `[{"columns": ["region"], "counts": '
        '[{"region": "north", "count": 812}, ...], "statement": "who publishes them"}]`.',
    )
    together: tuple[tuple[str, ...], ...] = Field(
        default=(),
        description='Groups of columns whose values lie close together in every row: `[["received", "sent", '
        '"arrived"]]`. Drawn at one place inside their bins, at no cost.',
    )
    compare: tuple[tuple[str, ...], ...] = Field(
        default=(),
        description="Pairs of columns whose order and approximate difference matter: `[[wages, income]]` "
        "(docs/columns.md).",
    )
    public_files: tuple[PublicFile, ...] = Field(
        default=(),
        max_length=1_000,
        description="Filled in when the spec is read: the files of lookups and totals, checked against copies "
        "of the private table. Never published.",
    )
    engine: EngineChoice = Field(
        default=EngineChoice(), description="Where private rows are counted; the result is the same."
    )
    formats: tuple[Format, ...] = Field(
        default=("parquet",),
        description="File formats of the synthetic table.",
    )
    like: Literal["standard", "source"] = Field(
        default="standard",
        description="How CSV files are written: `standard` (RFC 4180, UTF-8, ISO dates) or `source` (by `csv` and "
        "`format`).",
    )
    about: About = Field(default=About(), description="Title, licence, contact and more, for catalogues.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema, without defaults for what a preset decides (form.py)."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        resolved = handler.resolve_ref_schema(schema)
        resolved["patternProperties"] = {f"^({'|'.join(EARLIER_SECTIONS)})$": {"type": "object"}}
        fields = resolved["properties"]
        leave_to_ledger(fields["accountant"])
        focus = fields["focus"]["anyOf"][0]
        targets = (focus, "triples"), (focus, "scores"), (fields["workload"]["items"], "measured")
        for target, name in targets:
            leave_to_preset(handler.resolve_ref_schema(target)["properties"][name], False, "0.4", True)
        for choice in fields["mechanism"]["oneOf"]:
            leave_options(
                handler.resolve_ref_schema(choice)["properties"], PAPER, RELATIONS, handler.resolve_ref_schema
            )
        merge_into_one_object(fields["mechanism"], handler.resolve_ref_schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _translate_content(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        current = fold_tables(translate_to_current(content))
        preset = current.get("preset", cls.model_fields["preset"].default)
        if preset == "paper" and current.get("accountant") is None:
            current["accountant"] = PAPER_ACCOUNTANT
        options = current["mechanism"]
        if preset == "0.4":
            current |= fill_targets(current)
        if isinstance(options, Mapping):
            current["mechanism"] = fill_options(options, preset, join_columns(current), current.get("focus"))
        return current

    @model_serializer(mode="wrap")
    def _serialize(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        content = self.leave_out_unused(handler)
        if info.exclude_defaults:
            content.setdefault("mechanism", {"name": self.mechanism.name})
        return keep_declined(content, self) if self.preset == "0.4" else content

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, Any]) -> dict[str, Any]:
        if len(columns) > MAX_COLUMNS:
            raise FieldError(f"at most {MAX_COLUMNS} columns")
        if "" in columns:
            raise FieldError("a column needs a name", "The empty name is not one")
        for name, column in columns.items():
            if getattr(column, "heaps", ()) and name_heap_attribute(name) in columns:
                raise FieldError(
                    f"the column {name_heap_attribute(name)!r} has the name that the `heaps` of {name!r} need",
                    "Rename it",
                )
        if all(isinstance(c, DropColumn) for c in columns.values()):
            raise FieldError("at least one column must not be dropped")
        return columns

    @field_validator("query")
    @classmethod
    def _query(cls, query: str, info: ValidationInfo) -> str:
        if query and "://" not in info.data.get("data", "://"):
            raise FieldError("needs the URL of a database in `data`", "Take it out")
        return query

    @field_validator("formats")
    @classmethod
    def _check_formats(cls, formats: tuple[Format, ...]) -> tuple[Format, ...]:
        return check_known_formats(formats)

    @model_validator(mode="after")
    def _check_fields_together(self) -> ReleaseSpec:
        pid = self.unit.identifier
        if pid is not None and not isinstance(self.columns.get(pid), DropColumn):
            raise FieldError(
                f"list the column {pid!r} under `columns` as {{kind: drop}}: an identifier is never released",
                place=("unit", str(self.unit.by)),
            )
        _check_first_tables(self)
        check_tables(self)
        check_panel(self)
        for name in self.further_tables:
            check_further_table(self, name, _check_table_pair)
        if self.rules:
            check_rules(self.rules, self.released_columns, self.row_words)
        check_unmeasured(self)
        check_levels(self.released_columns, self.rules, self.row_words)
        if self.like == "source":
            check_csv_texts(self.csv, self.released_columns)
        _check_targets(self)
        if self.improves is not None:
            check_poolable(self.mechanism.name)
        known = {*self.measured_columns, *(name for table in self.tables.values() for name in table.columns or ())}
        unknown = next((name for name in (self.cells.columns if self.cells else ()) if name not in known), None)
        if unknown is not None:
            place = ("cells", "columns", unknown)
            raise FieldError(f"the spec measures no column {unknown!r}", "Take its cells out", place)
        computed = list_computed_columns(self.rules)
        check_prior(self.mechanism, self.prior, self.measured_columns, computed)
        settled = {*computed, *(name for rule in self.rules if isinstance(rule, OneOf) for name in rule.one_of)}
        if self.totals:
            check_totals(self.totals, self.measured_columns, settled, self.mechanism)
        check_together(self.together, self.released_columns, settled)
        check_compared(self.compare, self.measured_columns, settled)
        if self.compare and self.order is not None:
            raise FieldError(
                "differences of columns are not kept for linked rows",
                "Take it out, or state what holds in `rules`",
                ("compare",),
            )
        return self

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the root table, its first table of rows and the others, parents first; empty for one table."""
        if not self.tables:
            return ()
        first_pair = (get_above(self.tables)[0], get_below(self.tables)[0])
        others = [name for name in self.tables if name not in first_pair]
        return (*first_pair, *sorted(others, key=lambda name: self.tables[name].of in others))  # at most three levels

    @property
    def further_tables(self) -> tuple[str, ...]:
        """The names of further tables of rows, each after its parent table."""
        return self.table_names[2:]

    def get_parent_table(self, table: str) -> tuple[str, str]:
        """Return the name of the table above a table of rows, and the column that names a row of it."""
        above = str(self.tables[table].of)
        return above, str(self.tables[above].key)

    @property
    def released_columns(self) -> dict[str, Any]:
        """The columns that are synthesized, in the spec's order."""
        return {name: c for name, c in self.columns.items() if not isinstance(c, DropColumn)}

    @property
    def measured_columns(self) -> dict[str, Any]:
        """The released columns that are measured, without columns drawn from the spec alone."""
        return {name: c for name, c in self.released_columns.items() if c.measured}

    @property
    def unmeasured_columns(self) -> dict[str, Any]:
        """The released columns that are drawn from the spec alone."""
        return {name: c for name, c in self.released_columns.items() if not c.measured}

    @property
    def panel(self) -> Panel | None:
        """Public facts about the rows of one person, if the release links them."""
        pid, most = self.unit.identifier, self.unit.max_records
        if self.order is None or pid is None or most is None:
            return None
        roles = getattr(self.columns.get(self.order), "values", ())
        once = tuple(roles.index(role) for role in self.once if role in roles)
        household = self.unit.household_id is not None
        constant = list_constant_columns(self) if self.tables else self.constant
        return Panel(pid, most, self.order, constant, self.with_order, household, once, bool(self.tables))

    @property
    def summaries(self) -> tuple[MeasuredSummary, ...]:
        """The person summaries that questions of the workload measure."""
        summaries = [marginal.summary for marginal in self.measured_sets]
        statements = [summary for summary in summaries if summary is not None]
        return list_measured_summaries(statements, self.unit.records) if statements else ()

    @property
    def table_pairs(self) -> dict[str, ReleaseSpec]:
        """The two-table spec of each table of rows and its parent, by name; empty without further tables."""
        further = self.further_tables
        if not further:
            return {}
        first = {get_below(self.tables)[0]: build_first_table_pair(self)}
        return first | {name: build_table_pair(self, name) for name in further}

    @property
    def row_words(self) -> RowWords:
        """The words that rules may use before a point and a column, for other rows of a person and for tables."""
        first_pair = (get_above(self.tables), get_below(self.tables)) if self.tables else ()
        tables = {name: tuple(table.columns) for name, table in first_pair}
        if self.panel is None:
            return RowWords(tables=tables)
        roles = tuple(map(str, getattr(self.columns[self.panel.order], "values", ())))
        return RowWords((*NEIGHBOURS, *(roles[i] for i in self.panel.once)), roles, tables)

    @property
    def records(self) -> int:
        """k: the most records of one person in any count; 1 if a person's rows make one record."""
        return self.unit.records if self.panel is None else 1

    def describe_unit(self) -> str:
        """Return one phrase for the unit of protection."""
        if self.panel is None:
            return self.unit.describe()
        rows = "members" if self.panel.household else "rows"
        return (
            f"one {self.unit.one} with all {rows} (at most {self.panel.most} kept, counted as one record; enforced by "
            f"the column {self.panel.person!r})"
        )

    def get_published_column(self, name: str) -> Column:
        """Return a column of the synthetic table, with new identifiers for linked rows."""
        column = self.columns[name]
        if self.tables and name == get_below(self.tables)[1].key:
            return describe_row_key(column.description)
        if self.panel is None or name != self.panel.person:
            return column
        return describe_identifier(column.description, self.panel)

    @property
    def public_inputs(self) -> tuple[PublicFile, ...]:
        """Every file that the spec calls public, the prior first."""
        prior = self.prior
        if prior is None or not prior.place or not prior.sha256:
            return self.public_files
        field = "prior.table" if prior.table else "prior.release"
        return (PublicFile(field=field, path=prior.place, sha256=prior.sha256), *self.public_files)

    @property
    def has_ladder(self) -> bool:
        """Whether a first look chooses the cells of columns with open bins.

        Not where rows come from a public prior, whose codes the mechanism counts by.
        """
        options = self.mechanism
        return options.compression.enabled and options.compression.ladder and options.name != "prior"

    def without_ladder(self) -> ReleaseSpec:
        """Return the spec with equal cells for columns with open bins."""
        mechanism = self.mechanism.having("compression", ladder=False)
        return self.model_copy(update={"mechanism": mechanism, "cells": None})

    @property
    def looks_for_triples(self) -> bool:
        """Whether triples with the focus are scored, and the strongest measured."""
        options = self.mechanism
        by_sweeps = isinstance(options, PrivSyn) and options.synthesis.method == "sweep"
        if self.panel is not None:  # linked rows: named sets are measured, but triples are not sought
            return False
        return self.focus is not None and self.focus.triples and by_sweeps and len(self.measured_columns) > 2

    @property
    def scores_focus_more(self) -> bool:
        """Whether the pairs with a focus column get half of the scores' budget."""
        return self.focus is not None and self.focus.scores and isinstance(self.mechanism, PrivSyn)

    @property
    def measured_sets(self) -> tuple[NamedMarginal, ...]:
        """The column sets whose joint counts are measured, whatever pairs are chosen."""
        return tuple(marginal for marginal in self.workload if marginal.measured) if self._measures_sets else ()

    @property
    def compared_pairs(self) -> tuple[tuple[str, ...], ...]:
        """The pairs of columns whose joint counts with their difference are measured, whatever pairs are chosen."""
        return self.compare if self._measures_sets else ()

    @property
    def _measures_sets(self) -> bool:
        rows = self.mechanism.synthesis
        return not isinstance(rows, Synthesis) or rows.method == "sweep"

    @property
    def place(self) -> str | dict[str, str]:
        """The place of the private table: ``data``, with ``query`` added to the URL if given.

        With several tables, each table's place by name.
        """
        if self.tables:
            return {name: table.data for name, table in self.tables.items()}
        return f"{self.data}{'&' if '?' in self.data else '?'}query={quote(self.query)}" if self.query else self.data

    @property
    def private_places(self) -> tuple[str, ...]:
        """Every private place that the spec names: its one table's, or each table's."""
        return tuple(table.data for table in self.tables.values() if table.data) or ((self.data,) if self.data else ())

    def targets(self) -> dict[str, Any]:
        """Return the used fields ``focus`` and ``workload`` as JSON, with the fields of further tables."""
        fields = {"focus", "workload"}
        of_tables = {name: table.model_dump(mode="json", include=fields) for name, table in self.tables.items()}
        further = {name: targets for name, targets in of_tables.items() if targets}
        return {**self.model_dump(mode="json", include=fields), **({"tables": further} if further else {})}

    def prior_key(self) -> dict[str, Any]:
        """Return the prior's part of keys: the hash of its content; empty without a prior."""
        return {} if self.prior is None else {"prior": self.prior.key()}

    def nulls_of(self, column: str) -> tuple[str, ...]:
        """Return the texts of a CSV file that mean null in a column.

        By default only the empty text is null in an identifier of persons; rows with any other text, such as NA, are
        one person's.
        """
        if self.null_values != USUAL_NULLS:
            return self.null_values
        if column == self.unit.identifier:
            return ("",)
        listed = {v for v in getattr(self.columns[column], "values", ()) if isinstance(v, str)} - {""}
        return tuple(text for text in USUAL_NULLS if text not in listed)

    @property
    def effective_accountant(self) -> Literal["gaussian", "tight", "paper"]:
        """The accountant; if the spec names none, the default for a new data set."""
        return self.accountant or DEFAULT_ACCOUNTANT

    def with_rows(self, **values: Any) -> ReleaseSpec:
        """Return the same request with other values of ``mechanism.synthesis``, checked by the caller."""
        return self.by(self.mechanism.having("synthesis", **values))

    def by(self, mechanism: AnyMechanism) -> ReleaseSpec:
        """Return the same request with another mechanism or other options."""
        return self.model_copy(update={"mechanism": mechanism})

    def at_price(self, privacy: Guarantee, budget: Guarantee | None = None) -> ReleaseSpec:
        """Return the same request with another promise, and another lifetime cap if given."""
        return self.model_copy(update={"privacy": privacy, "budget": budget or self.budget})

    def read_at(self, place: str | Mapping[str, str]) -> ReleaseSpec:
        """Return the same request with its private table, or each of its tables, at another place; empty: in memory."""
        placed: dict[str, Any] = {"data": place, "query": ""}
        if isinstance(place, Mapping):
            placed = {"tables": {name: table.read_at(place[name]) for name, table in self.tables.items()}}
        return self.model_copy(update=placed)

    def with_prior(self, prior: Prior | None) -> ReleaseSpec:
        """Return the same request with another public prior, or without one."""
        return self.model_copy(update={"prior": prior})

    def with_cells(self, cells: EarlierCells, files: Sequence[PublicFile]) -> ReleaseSpec:
        """Return the same request with these cells, read from released files."""
        return self.model_copy(update={"cells": cells, "public_files": (*self.public_files, *files)})

    def with_columns(
        self, columns: Mapping[str, Column], unit: Unit | None = None, csv: CsvOptions | None = None
    ) -> ReleaseSpec:
        """Return the spec by which these columns of a table are read, with rows of ``unit`` (None: as before).

        ``csv``: how its file is written (None: as before).
        """
        return self.model_copy(update={"columns": dict(columns), "unit": unit or self.unit, "csv": csv or self.csv})

    def with_formats(self, formats: tuple[Format, ...]) -> ReleaseSpec:
        """Return the same request, published in these formats."""
        return self.model_copy(update={"formats": formats})

    def public(self) -> dict[str, Any]:
        """Return the spec as JSON without paths and machines, for a manifest.

        ``csv`` and ``rules`` are left out unless chosen, because earlier manifests do not have these fields.
        """
        unchosen = {name for name, same in (("csv", self.csv == CsvOptions()), ("rules", not self.rules)) if same}
        hidden = dict.fromkeys(("data", "query", "engine", "prior", "public_files", *unchosen), True)
        content = self.model_dump(mode="json", exclude={**hidden, "tables": {"__all__": {"data"}}})
        return content if self.prior is None else {**content, "prior": self.prior.public()}
