"""``python -m privsyn.cli``: the same as ``privsyn``."""

from privsyn.cli import main

main()
