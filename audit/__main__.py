"""``python -m audit`` and ``python -m audit referee``: the two audits from the command line."""

import sys

from audit import referee_table, table

if __name__ == "__main__":
    referee = sys.argv[1:2] == ["referee"]
    sys.exit(referee_table.main(sys.argv[2:]) if referee else table.main(sys.argv[1:]))
