"""Estimates of true counts from noisy ones, and the best shares of a budget: functions of released counts and sigma.

Belongs here: expected errors, departures from independence, shrinkage, shares of a budget. Does not belong here:
private counts, drawing noise, making rows.
"""
