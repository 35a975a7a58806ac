"""A script starts a cluster in each round of a loop, and closes it again."""

from __future__ import annotations

from dataclasses import replace

from scalescope.diagnosis.cause import NOTEWORTHY, severity_of
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Gain
from scalescope.model.words import duration

FEWEST = 3  # fewest clusters started at the same line that count as rounds of a loop

CLUSTER_IN_EACH_ROUND = TrialCause(
    code="cluster-in-each-round",
    title="A cluster is started in each round",
    needs="A script made at least three clusters of the same size at one line, and used them one after another. "
    "Starting and closing all of them but one took at least 10 % of the script's time (fact rounds).",
    ruled_out_by="Clusters of different sizes, as in a comparison. Clusters whose tasks run at the same time.",
    remedy="Make one cluster before the loop",
    link="https://distributed.dask.org/en/stable/client.html",
    rules_out=("idle-workers-cause-unknown",),  # a short round may look like that cause
    premise="The clusters are alike, and were used one after another.",
)


@CLUSTER_IN_EACH_ROUND.finds
def cluster_in_each_round(observation: Observation) -> Finding | None:
    """`lost_s`: seconds in which all but one of the clusters started and closed, times the threads."""
    rounds, made = observation.trial.facts.get("rounds"), observation.made_at
    if not rounds or made is None or rounds["clusters"] < FEWEST:
        return None
    saved_s, script_s = rounds["saved_s"], rounds["script_s"]
    if saved_s < NOTEWORTHY * script_s:
        return None
    finding = CLUSTER_IN_EACH_ROUND.finding(
        observation,
        saved_s * observation.threads,
        f"{made.file}:{made.line} made {rounds['clusters']:,} clusters of the same size, one after another: starting "
        f"and closing all but one took {duration(saved_s)} of the {duration(script_s)} of the script.",
        "make the cluster and its client once, before the loop, and pass the client; if a round needs fresh worker "
        "processes, call `client.restart()`",
        Evidence("clusters made at the same line", rounds["clusters"], "fact rounds"),
        Evidence("seconds to start and close all but one", round(saved_s, 3), "fact rounds"),
        confidence=0.9,
        severity=severity_of(saved_s / script_s),
        place=made,
    )
    return replace(finding, gain=Gain(script_s, script_s - saved_s))
