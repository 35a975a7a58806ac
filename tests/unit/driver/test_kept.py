"""Records of the cluster itself are kept with the trial; without them the trial has a warning."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from scalescope.driver.attempt import Attempt
from scalescope.driver.open_cluster import OpenCluster
from scalescope.driver.protocol import RunTrial
from scalescope.driver.trial_run import TrialRunner
from scalescope.errors import ClusterError
from scalescope.run.trials import read_records

LOGS = {"worker": ["w"], "time": array("d", [1.0]), "level": ["INFO"], "text": ["here"]}


class Kept:
    """A cluster that keeps logs."""

    silent = False

    def records(self) -> dict[str, Any]:
        if self.silent:
            raise ClusterError("it does not answer")
        return {"logs": LOGS}


def test_logs_of_the_cluster_are_kept_with_the_trial_or_a_warning_is_given(tmp_path: Path) -> None:
    phases: list[str] = []
    opened, cluster = OpenCluster(lambda phase, limit_s, text: phases.append(phase)), Kept()
    runner = TrialRunner(opened, "")
    request, attempt = RunTrial("k", {}, 0, False, "w", 1.0, str(tmp_path)), Attempt()
    runner._keep_records_of_cluster(request, attempt)
    assert read_records(tmp_path) == {}
    opened.cluster = cluster  # type: ignore[assignment]
    runner._keep_records_of_cluster(request, attempt)
    assert read_records(tmp_path) == {"logs": LOGS}
    assert (attempt.warnings, phases) == ([], ["recording"])
    cluster.silent = True
    runner._keep_records_of_cluster(request, attempt)
    [warning] = attempt.warnings
    assert warning.endswith("it does not answer")
