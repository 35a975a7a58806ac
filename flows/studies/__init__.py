"""Questions that grow: each is one or more sweeps that say, from what they have measured, what to measure next.

No Prefect in here: the flows in `flows.study` hand these over to the tasks of `flows.sweep`.
"""
