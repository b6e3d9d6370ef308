"""Panels: tables with several ordered rows per person, and how specs describe them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

from privsyn.data_contracts.columns import CategoricalColumn, DateColumn, DatetimeColumn, IntegerColumn
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rules import OneOf, list_computed_columns, map_continued_columns

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec

ORDERS = (IntegerColumn, DateColumn, DatetimeColumn)
"""The kinds of columns that can order the rows of a person."""

NOT_WITH = {
    "prior": "a prior is a table of single rows",
    "totals": "known totals are counts of rows, and a release of linked rows counts persons",
    "improves": "earlier releases cannot be pooled with it yet",
    "together": "rows of a person are linked column by column",
}
"""Spec field -> why it does not work with linked rows."""


@dataclass(frozen=True)
class Panel:
    """Public facts about the rows of one person.

    ``most``: the most rows of a person that are kept.  ``order``: the column that orders them.  ``constant``: the
    columns that are the same in every row of a person.  ``with_order``: the columns that grow as the order does.
    ``household``: whether the person is a household, the rows its members, and the order the column of their roles;
    ``once``: the places of roles that one member has at most.  ``above``: whether persons are rows of a table of their
    own, so that some have no row.
    """

    person: str
    most: int
    order: str
    constant: tuple[str, ...] = ()
    with_order: tuple[str, ...] = ()
    household: bool = False
    once: tuple[int, ...] = ()
    above: bool = False

    @property
    def rows(self) -> str:
        """The attribute with a person's number of kept rows."""
        return f"{self.person} (rows)"

    @property
    def before(self) -> str:
        """The attribute with the number of kept rows before the drawn one."""
        return f"{self.person} (rows before)"

    @property
    def gap(self) -> str:
        """The attribute with the gap from the drawn row to the next."""
        return f"{self.order} (to the next row)"

    @property
    def composition(self) -> str:
        """The attribute with a household's number of members of each role."""
        return f"{self.person} (members by role)"

    @property
    def kind_of_pair(self) -> str:
        """The attribute with the role of the second of a pair of members, and whether the first has it too."""
        return f"{self.order} (of the pair)"

    @property
    def kind_beside_first(self) -> str:
        """The attribute with a later member's role, and whether the household's first member has it too."""
        return f"{self.order} (beside the first)"

    @property
    def counts_later(self) -> bool:
        """Whether a household may have three members, so that a later member is counted with the first."""
        return self.household and self.most > 2

    @property
    def figures(self) -> tuple[str, ...]:
        """The attributes of a person's record that are not columns of the table."""
        if self.household:
            return (self.composition,)
        return self.rows, self.before, self.gap

    @property
    def carried(self) -> frozenset[str]:
        """The columns whose value in one row follows from the order and another row of the person."""
        return frozenset({self.order, *self.constant, *self.with_order})


def count_compositions(roles: int, limited_roles: int, limit: int) -> int:
    """Return the number of compositions of households of 1 to ``limit`` members; ``limited_roles``: their number."""
    free = roles - limited_roles
    several = (comb(limited_roles, j) * comb(limit - j + free, free) for j in range(min(limited_roles, limit) + 1))
    return sum(several) - 1


MOST_COMPOSITIONS = 5_000
"""The most compositions of a household: they are the codes of one attribute."""

MOST_PERSONS = 1 << 31
"""The most persons of one synthetic table."""

OF_PERSON = "1: one record is made of all rows of a person, by a rule that depends on that person alone"
OF_HOUSEHOLD = "1: one record is made of all members of a household, by a rule that depends on that household alone"
"""Why counts over such records have sensitivity 1."""


def describe_identifier(description: str, panel: Panel) -> IntegerColumn:
    """Return the column of new identifiers; ``description``: the spec's description of the private column."""
    unit = "household" if panel.household else "person"
    return _describe_number(
        description,
        f"New number of a synthetic {unit}, the same in all of its rows; it says nothing of the private identifiers.",
    )


def describe_row_key(description: str) -> IntegerColumn:
    """Return the column of new row keys; ``description``: the spec's description of the private column."""
    return _describe_number(description, "New number of a synthetic row; it says nothing of the private keys.")


def _describe_number(description: str, words: str) -> IntegerColumn:
    text = f"{description}. {words}" if description else words
    return IntegerColumn(kind="integer", min=1, max=MOST_PERSONS, description=text)


def name_stay(attribute: str) -> str:
    """Return the column of linked codes that says whether a value equals the one in the person's row before."""
    return f"{attribute} (as before)"


def name_all_rows(attribute: str) -> str:
    """Return the name of an attribute's codes over every kept row, instead of one row per person."""
    return f"{attribute} (all rows)"


def name_next(attribute: str) -> str:
    """Return the name of an attribute's codes in the person's next row."""
    return f"{attribute} (next row)"


def name_first(attribute: str) -> str:
    """Return the name of an attribute's codes in the first member of a household."""
    return f"{attribute} (first member)"


def name_later(attribute: str) -> str:
    """Return the name of an attribute's codes in the member paired with the first."""
    return f"{attribute} (later member)"


def check_panel(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, if the fields about the rows of one person do not fit the spec."""
    if spec.order is None:
        if spec.unit.household_id is not None:
            raise FieldError(
                "the column with the roles of household members is missing",
                "Write `order: COLUMN`, the categorical column of their roles, with the head first among its `values`",
                ("order",),
            )
        for field in ("constant", "with_order", "once"):
            if getattr(spec, field):
                raise FieldError(
                    "needs the order of a person's rows, and the spec gives none",
                    "Name the column in `order`, or take this field out",
                    (field,),
                )
        return
    if spec.unit.identifier is None:
        raise FieldError(
            "links the rows of a person, but no column identifies the person",
            "Write `unit: {person_id: COLUMN, max_records: K}`, or take `order` out",
            ("order",),
        )
    if spec.unit.max_records == 1:
        one = "person" if spec.unit.household_id is None else "household"
        raise FieldError(
            f"keeps one row per {one}, so no row follows another",
            "Keep 2 rows or more, or take `order` out",
            ("unit", "max_records"),
        )
    panel = spec.panel
    assert panel is not None  # noqa: S101 - there is an order and a person
    computed = {*list_computed_columns(spec.rules), *(n for r in spec.rules if isinstance(r, OneOf) for n in r.one_of)}
    if panel.household:
        _check_roles(spec, panel, computed)
    else:
        _check_order(spec, panel, computed)
    _check_carried(spec, panel, computed)
    continued = next((n for rule in spec.rules for n in map_continued_columns(rule) if n in panel.carried), None)
    if continued is not None:
        raise FieldError(
            f"{continued!r} is derived from another row, so it cannot be the order, constant, or grow with the order",
            "Take it out of one of the two",
            ("rules",),
        )
    _check_rest(spec, panel)


_ROLES = "Name the column of the relation to the head, a `categorical` one with the head first among its `values`"


def _check_roles(spec: ReleaseSpec, panel: Panel, computed: Collection[str]) -> None:
    column = spec.measured_columns.get(panel.order)
    if panel.order in computed:
        raise FieldError(
            f"compute {panel.order!r}, which `order` names as the column of roles, and roles are read from the table",
            f"Take {panel.order!r} out of the rules, or name another column in `order`",
            ("rules",),
        )
    if panel.order not in spec.columns:
        raise FieldError(
            f"names {panel.order!r} as the column of the members' roles, but the spec does not describe it",
            _ROLES,
            ("order",),
        )
    if column is None:
        raise FieldError(
            "gives the members of a household their roles, as `order` says, and is not measured",
            "Describe it as a measured `categorical` column, with the head first among its `values`",
            ("columns", panel.order),
        )
    if not isinstance(column, CategoricalColumn):
        raise FieldError(
            f"gives the members of a household no roles: {panel.order!r} is of the kind {column.kind!r}, and roles are "
            "values of a `categorical` column",
            f"{_ROLES}; of rows that follow each other write `person_id` in place of `household_id`",
            ("order",),
        )
    if spec.with_order:
        raise FieldError("roles are not numbers, so nothing grows with them", "Take the field out", ("with_order",))
    unknown = next((role for role in spec.once if role not in column.values), None)
    if unknown is not None or len({*spec.once}) < len(spec.once):
        raise FieldError(
            f"names {unknown!r}, which {panel.order!r} does not list" if unknown is not None else "names a role twice",
            f"Name values of {panel.order!r}, each once",
            ("once",),
        )
    roles = len(column.values) + column.has_null + (column.goes_to == "other" and "other" not in column.values)
    many = count_compositions(roles, len(spec.once), panel.most)
    if many > MOST_COMPOSITIONS:
        raise FieldError(
            f"{panel.most} members of {roles} roles can be in {many:,} compositions, but {MOST_COMPOSITIONS:,} is the "
            "limit",
            f"Lower it, name more roles in `once`, or join values of {panel.order!r}",
            ("unit", "max_records"),
        )


def _check_order(spec: ReleaseSpec, panel: Panel, computed: Collection[str]) -> None:
    column = spec.measured_columns.get(panel.order)
    if column is None:
        raise FieldError(
            f"the spec measures no column {panel.order!r}", "Name a column that is released and measured", ("order",)
        )
    if not isinstance(column, ORDERS) or panel.order in computed:
        reason = "made by a rule" if panel.order in computed else f"of kind {column.kind!r}"
        raise FieldError(
            f"{panel.order!r} cannot order rows: it is {reason}",
            "Name a column of whole numbers (`integer`), dates or moments",
            ("order",),
        )
    for field in ("exact", "heaps"):
        if getattr(column, field, ()):
            raise FieldError(
                f"{panel.order!r} has `{field}`, and the order must use its values alone",
                f"Take its `{field}` out",
                ("columns", panel.order, field),
            )


def _check_carried(spec: ReleaseSpec, panel: Panel, computed: Collection[str]) -> None:
    seen = {panel.order}
    for field, names in (("constant", panel.constant), ("with_order", panel.with_order)):
        for name in names:
            if name not in spec.measured_columns:
                raise FieldError(
                    f"the spec measures no column {name!r}", "Name columns that are released and measured", (field,)
                )
            if name in computed:
                raise FieldError(
                    f"{name!r} is made from other columns by a rule", "Name the columns behind it", (field,)
                )
            if name in seen:
                raise FieldError(
                    f"names {name!r}, which is the order or was named before", "Name each column once", (field,)
                )
            seen.add(name)
    for name in panel.with_order:
        column, order = spec.columns[name], spec.columns[panel.order]
        if not isinstance(column, IntegerColumn) or column.exact or column.heaps:
            raise FieldError(
                f"{name!r} does not grow by whole steps: it is not an `integer` column, or has `exact` or `heaps`",
                "Name plain columns of whole numbers",
                ("with_order",),
            )
        if not isinstance(order, IntegerColumn):
            raise FieldError(
                f"{panel.order!r} is of the kind {order.kind!r}, so nothing grows by the same number",
                "Take `with_order` out, or give an order of whole numbers",
                ("with_order",),
            )


def _check_rest(spec: ReleaseSpec, panel: Panel) -> None:
    if spec.mechanism.name != "privsyn":
        raise FieldError(
            f"the mechanism {spec.mechanism.name!r} does not link the rows of a person",
            "Choose `privsyn`, or take `order` out",
            ("mechanism",),
        )
    for field, reason in NOT_WITH.items():
        if getattr(spec, field):
            raise FieldError(f"does not go with `order`: {reason}", "Take one of the two out", (field,))
    if spec.once and not panel.household:
        raise FieldError(
            "is about the roles in a household, and the promise is about a person",
            "Write `unit: {household_id: COLUMN, max_records: K}`, or take this field out",
            ("once",),
        )
    needed = {*panel.figures, *(name_next(column) for column in spec.columns)}
    if panel.household:
        needed |= {panel.kind_of_pair, panel.kind_beside_first}
        needed |= {name(column) for name in (name_first, name_later) for column in spec.columns}
    taken = next((name for name in spec.columns if name in needed), None)
    if taken is not None:
        raise FieldError(f"the column {taken!r} has the name that a count of rows needs", "Rename it", ("columns",))
