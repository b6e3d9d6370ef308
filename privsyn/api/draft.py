"""A draft of a release spec: a mapping of the YAML file's form, with ``TODO`` for unknown values."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from privsyn.base.arguments import check_arguments
from privsyn.base.settings import Settings, load_settings
from privsyn.engine.progress import format_html_table, format_paragraph
from privsyn.sources.private_table import SupportsArrowStream
from privsyn.specs.draft import LOOKED, TODO
from privsyn.specs.draft_tables import CONFIRM, draft_any
from privsyn.specs.messages import format_place, group_todos
from privsyn.specs.spec_file import find_todos, to_plain_values
from privsyn.specs.yaml_file import parse_yaml


class SpecDraft(dict[str, Any]):
    """A release spec with open values: a mapping of the YAML file's form, with ``TODO`` for each missing value.

    Assign to it as to any mapping: ``draft["columns"]["age"]["min"] = 18``, ``draft["unit"] =
    {"records_per_person": 1}``.  Then hand it to ``privsyn.release``, which refuses it until no ``TODO`` is left.

    Privacy: a draft has the names and types of the columns and what a public dictionary says, nothing from rows.  Fill
    it from public sources only: a bound or a category read off the private table is a leak.
    """

    looked: bool = False
    """Whether rows were looked at, so that the draft is PRIVATE."""

    guesses: tuple[str, ...] = ()
    """Of two tables: the fields that are guessed from names and types (``tables.visits.order``); confirm each."""

    @property
    def todos(self) -> tuple[str, ...]:
        """The fields that still say ``TODO``, dotted (``columns.age.min``), in order."""
        return tuple(format_place(place) for place in find_todos(self))

    def to_yaml(self) -> str:
        """Return the draft as the text of a spec's file; reading it back gives the same spec."""
        text = io.StringIO()
        yaml = YAML(typ="safe", pure=True)
        yaml.version, yaml.width, yaml.allow_unicode = (1, 2), 110, True
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # columns keep their order
        yaml.dump(to_plain_values(self), text)
        head = f"# {LOOKED}\n" if self.looked else ""
        head += f"# {CONFIRM}, guessed from names and types: {', '.join(self.guesses)}\n" if self.guesses else ""
        return head + text.getvalue().removeprefix("%YAML 1.2\n---\n")

    @check_arguments
    def save(self, path: str | Path) -> Path:
        """Write ``to_yaml`` to the new file ``path`` and return the path; FileExistsError if the file exists."""
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(self.to_yaml())
        return Path(path)

    def __repr__(self) -> str:
        return f"{self.to_yaml()}# {self._list_left()}"

    def _repr_html_(self) -> str:
        """Return a table of the columns for notebooks, with every TODO marked."""
        settings = [[name, _format_flow(value)] for name, value in self.items() if name != "columns"]
        columns = self.get("columns")
        described = columns.items() if isinstance(columns, Mapping) else ()
        rows = [[name, str(c.get("kind", "")), _format_flow(_drop_kind(c))] for name, c in described]
        return (
            "<h4>Draft of a release spec</h4>"
            + format_paragraph(self._list_left())
            + format_html_table(("field", "value"), settings, TODO)
            + format_html_table(("column", "kind", "what is known of it"), rows, TODO)
        )

    def _list_left(self) -> str:
        todos = self.todos
        if not todos:
            text = "No TODO is left."
        else:
            groups = group_todos(list(find_todos(self)))
            text = f"{len(todos)} TODO{'s' if len(todos) > 1 else ''} left: {'; '.join(groups)}"
        return f"{text}; guessed, to be confirmed: {', '.join(self.guesses)}" if self.guesses else text


@check_arguments
def draft_spec(
    data: str | Path | SupportsArrowStream | Mapping[str, Any],
    *,
    dictionary: str | Path | None = None,
    dataset: str | None = None,
    csv: Mapping[str, Any] | None = None,
    header: bool = False,
    look: bool = False,
    key: str | None = None,
    of: str | None = None,
) -> SpecDraft:
    """Draft a spec for a private table from its column names and types, and from a public dictionary.

    Args:
        data: The path of a table (CSV or Parquet, a file or a folder), or a table in memory. Several tables: a mapping
            from their names, the table with one row per person or household first.
        dictionary: A file of public facts on the columns.  It is JSON (Frictionless, Croissant, SDV, or a data set's
            own), a DDI codebook, a Stata, SPSS or SAS file, an SQL schema, or a table of columns (CSV, Excel).
        dataset: The ledger's name for the data set; default: made from the file's name.
        csv: How a CSV file is written, in the form of the spec's ``csv``: ``{"delimiter": ";", "encoding": "cp1252"}``.
        header: The first line of a CSV file is its header, even if it looks like a record.
        look: PRIVATE: guess kinds of CSV columns from their values, and list the values of a Categorical; bounds stay
            open.  The first line of ``to_yaml`` then says so.
        key: Two tables: the column in both that identifies the owner of a row; default: guessed from names.
        of: Two tables: the name of the table with one row per person or household; default: the first.

    Returns:
        The draft.  Facts that neither names, types nor the dictionary give are ``TODO``.  For two tables, confirm its
        ``guesses``.

    Raises:
        RequestError: The table or the dictionary cannot be read, ``dataset`` or ``csv`` is not valid, or names do not
            show the key of two tables.

    Privacy: column names and types are read, and no value (unless ``look``); bounds and categories must come from a
    public source.
    """
    public = None if dictionary is None else Path(dictionary)
    draft = draft_any(data, public, dataset, csv=csv, header=header, look=look, key=key, of=of)
    if public is not None:
        check_dictionary(draft.text, public, load_settings())
    drafted = SpecDraft(parse_yaml(draft.text, "the draft").content)
    drafted.looked, drafted.guesses = look, draft.guesses
    return drafted


def check_dictionary(text: str, dictionary: Path, settings: Settings) -> None:
    """Raise RequestError if the operator's policy does not allow the dictionary of this draft, by its data set."""
    from privsyn.engine.policy_checks import check_dictionary as check_place

    if settings.policy is not None:
        check_place(str(parse_yaml(text, "the draft").content.get("dataset")), dictionary, settings)


def _drop_kind(column: Any) -> Any:
    return {k: v for k, v in column.items() if k != "kind"} if isinstance(column, Mapping) else column


def _format_flow(value: Any) -> str:
    """Return a value on one line, as people read it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_format_flow(inner)}" for name, inner in value.items())
    return ", ".join(map(_format_flow, value)) if isinstance(value, list | tuple) else str(value)
