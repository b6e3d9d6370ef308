"""Write the files that a server's operator starts from, from the installed package without a checkout."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.storage.disk import translate_os_errors

FIELD = "init.folder"
DEPLOYMENTS = (
    "prefect.yaml",
    "policy.yaml",
    "ledger_role.sql",
    "put_ledger_aside.sql",
    "prometheus_rules.yaml",
    "privsyn-server.service",
    "privsyn-worker.service",
)
_CHECKOUT = "/opt/privsyn"
_PLAIN = re.compile(r"[\w./+@-]+")


def write_starter_files(folder: Path) -> list[Path]:
    """Write the deployments, policy, scripts and units, and the example of the deployments; return their paths.

    The layout in ``folder`` is the repository's.  The units start this program in ``folder``.  Raises RequestError,
    with nothing written, if one of the files exists or the folder cannot be written.
    """
    root = folder.absolute()
    texts = {f"deployments/{name}": _read_deployment(name, root).encode() for name in DEPLOYMENTS}
    example = files("privsyn") / "api" / "example_data"  # of `privsyn.example()`
    spec = (example / "gss.yaml").read_text(encoding="utf-8")
    placed = spec.replace("dataset: example\n", "dataset: example\ndata: gss.parquet\n", 1)
    texts["examples/gss.yaml"] = placed.encode()
    texts["examples/gss.parquet"] = (example / "gss.parquet").read_bytes()
    if root.exists() and not root.is_dir():
        raise RequestError(f"{root} is a file, not a folder", "Name another folder", FIELD)
    for name in texts:
        if (root / name).exists():
            raise RequestError(f"{root / name} is there already; nothing was written", "Name another folder", FIELD)
    with translate_os_errors(root):
        for name, content in texts.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return [root / name for name in texts]


def _read_deployment(name: str, root: Path) -> str:
    text = (files("privsyn") / "deployments" / name).read_text(encoding="utf-8")
    program = Path(sys.executable).with_name("privsyn")
    if not name.endswith(".service") or not all(_PLAIN.fullmatch(str(path)) for path in (root, program)):
        return text
    return text.replace(f"{_CHECKOUT}/.venv/bin/privsyn", str(program)).replace(_CHECKOUT, str(root))
