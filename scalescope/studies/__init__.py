"""Questions that grow: each is one or more sweeps that say, from what they have measured, what to measure next.

No Prefect in here: the flows in `scalescope_flows.studies` hand these over to the tasks of `scalescope_flows.sweep`.
"""
