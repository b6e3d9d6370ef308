"""Rows of one person: which rows are kept, which pair is measured, and how synthetic rows are linked."""
