"""Rows of one person: which are kept, which pair is looked at, and how synthetic rows are linked."""
