"""``python -m audit``: the audit from the command line."""

import sys

from audit.table import main

if __name__ == "__main__":
    sys.exit(main())
