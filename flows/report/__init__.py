"""The private report: one self-contained HTML page from an evaluation."""
