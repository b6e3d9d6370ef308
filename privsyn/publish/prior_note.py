"""What the note and the certificate of a release say of its public prior."""

from __future__ import annotations

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish.markdown import escape_text

PRIOR_PROMISE = (
    "The prior is stated to be public, so the guarantee is of what this release tells beyond the prior: it protects "
    "the persons of the private table, and nobody in the prior. An earlier release of the same persons told of them "
    "already, and this release repeats it: what both tell together is bounded by the total of the data set, not by the "
    "epsilon of this release alone."
)
"""What a prior changes of the promise."""


def write_prior_note(spec: ReleaseSpec) -> str:
    """Markdown: the prior, its statement and what it means for the promise; empty without one."""
    prior = spec.prior
    if prior is None:
        return ""
    used = (
        "Noisy counts were drawn towards a table that the request states to be public, as far as they bore it out, and "
        "relations that were not measured may follow it."
    )
    zeros = " Pairs of values that the public table lacks were declared impossible." if prior.zeros else ""
    stated = f"- its statement: {escape_text(prior.statement)}\n- its content: SHA-256 `{prior.sha256}`"
    return f"## Public prior\n\n{used}{zeros} {PRIOR_PROMISE}\n\n{stated}"
