"""Running it for others: Prefect's server and worker, the deployments, notifications, and flows about the running.

Belongs here: what an operator starts or registers, and nothing of what a release does.
"""
