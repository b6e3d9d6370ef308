"""``python -m flows.cli``: the same as ``privsyn``.

Belongs here: nothing but the call.  Does not belong here: anything else.
"""

from flows.cli import main

main()
