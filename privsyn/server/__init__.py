"""Prefect's server and workers: starting, stopping, registering deployments, and notifications.

Belongs here: processes, ports, environment variables and Prefect's own database.  Does not belong here: a flow (flows/)
or its page (flows/run_page/).
"""
