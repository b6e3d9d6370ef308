"""``python -m audit``: the audit from the command line.

Belongs here: nothing but the start.  Does not belong here: everything else; multiprocessing cannot find it here.
"""

import sys

from audit.table import main

if __name__ == "__main__":
    sys.exit(main())
