"""Running the steps of a mechanism: what a step is, what it may know, and how one is run.

Belongs here: the public request and its plan, lineage keys, opening a run, the run, the runner in memory.  Does not
belong here: any one mechanism (privsyn/pipelines/), what is published (privsyn/publish/), Prefect (flows/).
"""
