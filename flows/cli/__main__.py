"""``python -m privsyn.flows.cli``: the same as ``privsyn``."""

from privsyn.flows.cli import main

main()
