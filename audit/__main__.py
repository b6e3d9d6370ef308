"""``python -m audit [referee | tight | recorder | sampler | channels]``: the audits from the command line."""

import sys

from audit import goodness_of_fit, recorder_table, referee_table, side_channels, table, tightness_table

AUDITS = {
    "referee": referee_table.main,
    "tight": tightness_table.main,
    "recorder": recorder_table.main,
    "sampler": goodness_of_fit.main,
    "channels": side_channels.main,
}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(AUDITS[name](sys.argv[2:]) if name in AUDITS else table.main(sys.argv[1:]))
