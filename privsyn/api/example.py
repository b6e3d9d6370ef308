"""The bundled example: a public table and its spec, for a first release without your own table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.api.draft import SpecDraft
from privsyn.specs.yaml_file import parse_yaml

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = Path(__file__).with_name("example_data")


def example() -> tuple[pd.DataFrame, SpecDraft]:
    """Return a small public table and a release spec for it, to try everything without your own table.

    The table is an extract of the General Social Survey (NORC, public use): 17,137 people who were interviewed in 1994
    to 2006, 8 columns.  ``table, spec = privsyn.example(); release = privsyn.release(table, spec)`` makes a release
    of it at epsilon 1.

    Returns:
        The table, a new pandas DataFrame, and the complete spec, a mapping of the YAML file's form.  It may be changed
        (``spec["privacy"]["epsilon"] = 0.5``), printed and saved (``spec.save("example.yaml")``).

    Raises:
        FileNotFoundError: The package was installed without its data files.

    Privacy: the table is public, and no figure of it needs protection.  A release of it is ledgered like any other,
    under the data set's name ``example`` with a lifetime cap of epsilon 10.
    """
    import pandas as pd

    text = (_FOLDER / "gss.yaml").read_text(encoding="utf-8")
    return pd.read_parquet(_FOLDER / "gss.parquet"), SpecDraft(parse_yaml(text, "the example's spec").content)
