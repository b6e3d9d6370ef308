"""Running the steps of a mechanism: the definition of a step, what it may know, and how it is run.

Belongs here: the public request and its plan, lineage keys, opening a run, the run, the runner in memory.  Does not
belong here: any one mechanism (privsyn/pipelines/), what is published (privsyn/publish/), Prefect (flows/).
"""
