"""What noisy counts say of true ones, and how a budget is best shared: functions of released counts and sigma.

Belongs here: expected errors, departures from independence, shrinkage, shares of a budget. Does not belong here:
private counts, drawing noise, making rows.
"""
