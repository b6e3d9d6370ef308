"""The bridge from a spec file to a deployment's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privsyn.specs.spec_file import load_spec


def read_spec(path: str) -> dict[str, Any]:
    """Return ``{"spec": ...}``, the release spec in the file ``path`` as JSON, for a Prefect build step.

    ``data`` becomes absolute.  Fields at their defaults are left out: the run form fills them in, and the columns,
    which it shows as JSON, stay short.  Raises RequestError if the spec is wrong.
    """
    spec = load_spec(Path(path))
    return {"spec": spec.model_dump(mode="json", exclude_defaults=spec.preset != "paper")}
