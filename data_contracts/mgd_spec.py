"""MGD's configuration: generalization hierarchies and target marginals (MGD paper, section 4.3)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import TypeAliasType

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

Tree = TypeAliasType("Tree", "dict[str, Tree] | list[str]")
"""A generalization hierarchy below its root: a list of leaf labels, or named groups that contain trees."""


def measure_tree_depth(tree: Tree) -> int:
    """Return the level of the leaves, 1 for a plain list.

    Raises FieldError if leaves are at different depths or a group is empty.
    """
    if not tree:
        raise FieldError("a hierarchy has an empty group", "Give it labels or leave it out")
    if isinstance(tree, list):
        return 1
    depths = {measure_tree_depth(child) for child in tree.values()}
    if len(depths) > 1:
        raise FieldError("all leaves of a hierarchy must lie at the same depth", "Nest every label equally deep")
    return 1 + depths.pop()


def list_tree_leaves(tree: Tree) -> list[str]:
    """Return the leaf labels, from left to right."""
    if isinstance(tree, list):
        return tree
    return [leaf for child in tree.values() for leaf in list_tree_leaves(child)]


def _check_texts(tree: Any) -> Any:
    """Return the tree with every label as text, like the codec's labels.

    YAML reads a bare 1 or true as another type.
    """
    if isinstance(tree, dict):
        return {_check_text(name): _check_texts(child) for name, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [_check_text(label) for label in tree]
    return tree


def _check_text(label: Any) -> Any:
    if isinstance(label, bool):
        return "true" if label else "false"
    return str(label) if isinstance(label, int | float) else label


class ComparedMarginal(FrozenModel):
    """One marginal that is compared: attributes, their levels and weights, tolerance, and the marginal's own weight."""

    attributes: tuple[str, ...] = Field(min_length=1, description="Columns of the marginal, each once.")
    levels: dict[str, int] = Field(
        default={},
        description="Level of the hierarchy at which a column is counted: 1 is just below the root, 0 the root itself "
        "(the column then plays no part). Columns not named: the leaves.",
    )
    weights: dict[str, float | Literal["infinite"]] = Field(
        default={},
        description="Cost of moving a record the whole way along a column, for every column of the marginal: 0 to 1, "
        "adding up to 1, or `infinite` (no moves between its values). Empty: `infinite` for columns without an "
        "order, equal weights for the others.",
    )
    tolerance: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        description="Difference of a bin, in records, that costs nothing; null: see `MgdSpec`.",
    )
    weight: float = Field(default=1.0, gt=0, le=1e9, description="How much this marginal counts in the MGD score.")

    @model_validator(mode="after")
    def _check(self) -> ComparedMarginal:
        if len(set(self.attributes)) != len(self.attributes):
            raise FieldError("`attributes` names a column twice", "Name each once")
        for field in ("levels", "weights"):
            for name in getattr(self, field):
                if name not in self.attributes:
                    raise FieldError(
                        f"`{field}` names {name!r}, which is not in `attributes`", "Add it there or drop it"
                    )
        if any(level < 0 for level in self.levels.values()):
            raise FieldError("`levels` must be 0 (the root) or more")
        if self.weights:
            self._check_weights()
        return self

    def _check_weights(self) -> None:
        if set(self.weights) != set(self.attributes):
            raise FieldError("`weights` must name every column of the marginal, or none")
        finite = [w for w in self.weights.values() if not isinstance(w, str)]
        if any(not 0 <= w <= 1 for w in finite) or (finite and abs(sum(finite) - 1) > 1e-9):
            raise FieldError("`weights` that are not `infinite` must lie in 0 to 1 and add up to 1")


class MgdSpec(FrozenModel):
    """Hierarchies by column, and the target marginals.

    Without target marginals: every one-way marginal, and the first ``pairs`` pairs with at most ``pair_cells`` bins,
    fewest bins first (equal ones in table order).  All are at the leaves and have weight 1.  The choice follows
    from the public bins alone.
    """

    hierarchies: dict[str, Tree] = Field(
        default={},
        description="Generalization hierarchy by column: a list of the column's labels, or groups by name, nested as "
        "deep as wanted, every label equally deep. Columns not named: all labels directly below the root.",
    )
    bins_of_bins: dict[str, tuple[int, ...]] = Field(
        default={},
        description="Hierarchy of a column with an order, in numbers from the leaves up: how many neighbouring bins "
        "make one bin of the next level. [5, 2]: five bins make one, and two such bins make one again.",
    )
    marginals: tuple[ComparedMarginal, ...] = Field(default=(), description="Target marginals; empty: see the class.")
    tolerance: float = Field(
        default=2.0, ge=0, le=1e9, description="Difference of a bin, in records, that costs nothing (paper: 2 to 10)."
    )
    pair_cells: int = Field(default=2_500, ge=0, le=10**6, description="Most bins of a pair that is chosen by default.")
    pairs: int = Field(default=300, ge=0, le=10**5, description="Most pairs that are chosen by default.")
    worst_bins: int = Field(default=5, ge=0, le=1_000, description="Bins shown in a marginal's drill-down.")

    @field_validator("hierarchies", mode="before")
    @classmethod
    def _check_labels(cls, value: Any) -> Any:
        return {name: _check_texts(tree) for name, tree in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check(self) -> MgdSpec:
        for name, tree in self.hierarchies.items():
            try:
                measure_tree_depth(tree)
            except FieldError as error:
                raise FieldError(f"`hierarchies` of {name!r}: {error.problem}", error.cure) from None
            leaves = list_tree_leaves(tree)
            if len(set(leaves)) != len(leaves):
                raise FieldError(f"`hierarchies` of {name!r}: a label stands twice", "Name each once")
        for name, sizes in self.bins_of_bins.items():
            if name in self.hierarchies:
                raise FieldError(f"{name!r} stands in `hierarchies` and in `bins_of_bins`", "Give one of them")
            if any(size < 2 for size in sizes):
                raise FieldError(f"`bins_of_bins` of {name!r}: every number must be 2 or more")
        return self
