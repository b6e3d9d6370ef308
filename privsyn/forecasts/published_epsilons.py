"""What others published with: entries of the OpenDP Deployments Registry, as they stood on 2026-07-15.

From https://github.com/opendp/deployments-registry-data at commit 3e9c812; its board had not approved these entries
yet (status "Pending").  Central model and published statistics or synthetic rows only.  An epsilon says little without
its unit: what one person may add or remove.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "https://registry.opendp.org (github.com/opendp/deployments-registry-data, commit 3e9c812, 2026-07-15)"


class Published(NamedTuple):
    """One entry: ``parameters`` as published; ``unit``: what the promise is for; ``entry``: its file's name."""

    name: str
    curator: str
    year: int
    parameters: str
    unit: str
    entry: str


PUBLISHED = (
    Published("Broadband coverage", "Microsoft", 2021, "epsilon 0.2", "a user", "broadband_coverage"),
    Published("Current pageviews", "Wikimedia Foundation", 2023, "rho 0.015 (zCDP)", "a device and day",
              "wikimedia_current_usage_data"),
    Published("Historical pageviews", "Wikimedia Foundation", 2023, "epsilon 1", "30 or 300 pageviews of a day",
              "wikimedia_historical_usage_data"),
    Published("Movement range maps", "Meta", 2020, "epsilon 2", "a user and day", "movement_ranges_maps"),
    Published("Vaccine search insights", "Google", 2021, "epsilon 2.19, delta 1e-5", "a user's searches of a day",
              "vaccine_search_insights"),
    Published("2020 Census redistricting data, housing units", "US Census Bureau", 2021,
              "epsilon 2.47, delta 1e-10 (rho 0.07)", "a housing unit, changed", "census_redistricting_data"),
    Published("Community mobility reports", "Google", 2020, "epsilon 2.64", "a user and day", "google_mobility"),
    Published("Hiring reports", "LinkedIn", 2020, "epsilon 4.8, delta 4e-10", "a hiring, a month",
              "linkedin_hiring_reports"),
    Published("Registry of live births 2014 (synthetic rows)", "Israeli Ministry of Health", 2024, "epsilon 9.98",
              "a birth", "birth_dataset"),
    Published("2020 Census redistricting data, persons", "US Census Bureau", 2021,
              "epsilon 17.14, delta 1e-10 (rho 2.56)", "a person, changed", "census_redistricting_data"),
)  # fmt: skip
"""By epsilon, ascending."""
