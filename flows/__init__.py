"""Prefect flows, the server and the command line: the only package that knows Prefect.

Belongs here: flows, their states and their pages, deployments, and the commands.  Does not belong here: anything that a
release needs to run without Prefect (privsyn/).
"""
