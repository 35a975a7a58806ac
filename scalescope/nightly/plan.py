"""Plans a night: the jobs to run, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scalescope import workloads
from scalescope.errors import InvalidField, UnknownName, UsageError
from scalescope.model import fields, parameters
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.model.environment import Environment
from scalescope.model.metrics import METRICS
from scalescope.model.study import Study
from scalescope.model.sweep import digest
from scalescope.model.words import number, plural
from scalescope.nightly import github
from scalescope.nightly.night_record import Night, SoftwareLock
from scalescope.nightly.parameters import NightlyParameters
from scalescope.run import orchestrator, request
from scalescope.run.request import RunRequest
from scalescope.run.syntax import names_blocks
from scalescope.workloads.suite import SUITE, SuiteEntry

LIKE = 7  # a night's expected time is the median of this many recent nights
# rough seconds of a job's run on 2 cores, with cluster and warm-up, at small (True) and full (False) sizes; only used
# to estimate the first night
RUN_S = {True: 10.0, False: 50.0}
VIRTUAL_RUN_S = 3.0  # rough seconds of a job's run in virtual time


@dataclass(frozen=True)
class SuiteJob:
    """A workload of the suite on one cluster, at all sizes."""

    entry: SuiteEntry
    cluster: ClusterSpec
    asked: NightlyParameters

    def request(
        self, lock: SoftwareLock, turn: int, budget: Mapping[str, float], store: str, records: str
    ) -> RunRequest:
        """The request for the run of one round (from 0): every size once, in an order that depends on the round."""
        return request.check(
            {
                "workload": self.entry.workload,
                "axes": self.asked.axes,
                "params": self.entry.small if self.asked.small else self.entry.params,
                "cluster": self.cluster.to_mapping(),
                "environment": lock.text,
                "warmups": int(self.cluster.real_time),
                "seed": self.asked.seed + turn,
                "trial_timeout_s": self.asked.trial_timeout_s,
                "budget": budget,
                "store": store,
            },
            records=records,
        )


def check(given: Mapping[str, Any], store: str = "") -> None:
    """Check parameters as far as possible without access to saved clusters, the store and the package index."""
    asked = read(given)
    if not names_blocks({"clusters": asked.clusters}):
        jobs(asked, store)


def read(given: Mapping[str, Any]) -> NightlyParameters:
    """The parameters of a night; each is checked, but not their combination."""
    asked = parameters.check(NightlyParameters, given)
    fields.text("history", asked.history)
    if asked.metric not in METRICS:
        raise UnknownName("metric", asked.metric, fields.suggest(asked.metric, METRICS))
    github.repository(asked.issues)
    Environment.parse(asked.environment)
    return asked


def jobs(asked: NightlyParameters, store: str = "") -> list[SuiteJob]:
    """The suite on all clusters; unless the user named them, workloads run only on kinds of clusters that suit them."""
    known = {entry.workload: entry for entry in SUITE}
    names = [fields.text("workloads", each) for each in asked.workloads]
    entries = [known.get(name, SuiteEntry(name, {}, {})) for name in names] or list(SUITE)
    found = []
    for given in asked.clusters:
        spec = cluster_spec(orchestrator.load_saved({"cluster": given})[0]["cluster"])
        for entry in entries:
            if names or (_can_run(asked, entry) and spec.kind in entry.kinds):
                with_fields = cluster_spec({**spec.to_mapping(), **entry.cluster}) if entry.cluster else spec
                found.append(SuiteJob(entry, with_fields, asked))
    if not found:
        raise InvalidField("clusters", asked.clusters, "a cluster on which a workload of the suite can be measured")
    for job in found:
        job.request(SoftwareLock(), 0, {}, store, "")
    return found


def left_out(asked: NightlyParameters) -> list[str]:
    """Workloads of the suite for which the present environment lacks packages, and how to install these.

    Empty if the user named workloads or another environment.
    """
    entries = [] if asked.workloads or asked.environment else SUITE
    return [f"{entry.workload}: {why}" for entry in entries if (why := _lacks(entry))]


def _can_run(asked: NightlyParameters, entry: SuiteEntry) -> bool:
    return ":" not in entry.workload if asked.environment else not _lacks(entry)


def _lacks(entry: SuiteEntry) -> str:
    try:
        workloads.check_installed(workloads.load(entry.workload))
    except UsageError as error:
        return error.line
    return ""


def ordered(found: Sequence[SuiteJob], past: Sequence[Night]) -> list[SuiteJob]:
    """Jobs in the order of their last measurement, the oldest first: the budget may end before all have run."""

    def nights_ago(job: SuiteJob) -> int:
        for ago, night in enumerate(reversed(past)):
            found = {(each.series.workload, digest(each.series.cluster)) for each in night.record.measured}
            if (job.entry.workload, digest(job.cluster.to_mapping())) in found:
                return ago
        return len(past)

    return sorted(found, key=nights_ago, reverse=True)


def expected(study: Study, turns: Sequence[tuple[int, SuiteJob]], past: Sequence[Night]) -> str:
    """Expected time of a night in words, from recent nights with the same parameters, else from the number of runs."""
    same = digest(study.question)
    like = [night.elapsed_s for night in past if night.study.finished_at and digest(night.study.question) == same]
    if like:
        minutes = median(like[-LIKE:]) / 60
        nights = plural(len(like[-LIKE:]), "night")
        return f"About {number(minutes)} minutes, the median of {nights} with these parameters"
    minutes = sum(RUN_S[job.asked.small] if job.cluster.real_time else VIRTUAL_RUN_S for _, job in turns) / 60
    why = "a rough estimate: no earlier night had these parameters"
    return f"About {number(minutes, 1)} minutes for {plural(len(turns), 'run')} ({why})"


def rounds(job: SuiteJob) -> int:
    """How often a job runs in a night."""
    return job.asked.rounds if job.cluster.real_time else 1
