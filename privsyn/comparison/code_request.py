"""The public request of a trial, whose rows come as codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privsyn.comparison.method import Trial
from privsyn.data_contracts.columns import BooleanColumn
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Aim, AnyMechanism, PrivSyn
from privsyn.data_contracts.prior import uses_prior
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.tasks.codecs.level_codecs import Levels


@dataclass(frozen=True)
class CodeEncoding:
    """What steps ask of an encoding where rows come as codes: the domain and its public bins."""

    domain: Domain
    groups: Mapping[str, NDArray[np.int32]]
    in_order: Mapping[str, tuple[tuple[int, int], ...]]
    added: Mapping[str, int]
    levels: Levels = field(default_factory=dict)

    def attributes_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return a column is its own attribute."""
        return tuple(a for a in self.domain.attributes if a in columns)

    def labels(self) -> dict[str, list[str]]:
        """Return a code is its own label."""
        return {
            a: [str(code) for code in range(size)]
            for a, size in zip(self.domain.attributes, self.domain.sizes, strict=True)
        }


@dataclass(frozen=True)
class CodeRequest(Request):
    """The public request of a trial, whose rows come as codes."""

    trial: Trial | None = None

    @cached_property
    def encoding(self) -> CodeEncoding:  # type: ignore[override]
        """The trial's domain and bins."""
        assert self.trial is not None  # noqa: S101 - always given
        return CodeEncoding(self.trial.rows.domain, self.trial.groups, self.trial.in_order, self.trial.added)


def request_of(trial: Trial, mechanism: AnyMechanism) -> CodeRequest:
    """Return the request of ``trial`` by ``mechanism``, its rows made with the trial's seed."""
    promise = Guarantee(epsilon=trial.epsilon, delta=trial.delta)
    spec = ReleaseSpec(
        dataset="comparison",
        data="codes",
        unit=Unit(records_per_person=trial.records),
        privacy=promise,
        budget=promise,
        columns={a: BooleanColumn(kind="boolean") for a in trial.rows.domain.attributes},
        accountant=trial.settings.accountant,
    )
    spec = spec.model_copy(update={"mechanism": mechanism}).with_rows(seed=trial.seed)
    if isinstance(mechanism, Aim) or (
        isinstance(mechanism, PrivSyn) and mechanism.selection.criterion == "expected_error"
    ):
        spec = spec.model_copy(update={"focus": trial.settings.focus, "workload": trial.settings.workload})
    prior = trial.prior if uses_prior(mechanism) else None
    return CodeRequest(spec, trial.rows.domain.attributes, trial.threads, prior=prior, trial=trial)
