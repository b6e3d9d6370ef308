"""Methods: ways to make a synthetic table, behind one interface, for `privsyn compare`."""
