"""Findings of a trial by code, after the checks that hold for every finding."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from scalescope.analysis.events import Tables
from scalescope.analysis.worker_time import divide
from scalescope.diagnosis import causes
from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Finding, Severity
from scalescope.model.records import from_rows
from scalescope.model.trial import Trial
from support.small_records import EPOCH

Doing = tuple[str, str, int]  # where a client is, what it calls there, and whether it only waits


def findings_of(
    observation: Observation, codes: Collection[str] = (), *, bounded: Collection[str] = (), least: float = 0.1
) -> dict[str, Finding]:
    """The findings with these codes (all if none are given), worst first.

    Those in `bounded` must explain a share of the worker time from `least` to 1; information explains none.
    """
    findings = [each for each in causes.find(observation) if not codes or each.code in codes]
    for finding in findings:
        assert finding.summary.endswith(".")
        assert "\n" not in finding.summary
        assert finding.remedy
        assert not finding.remedy.endswith(".")
        assert finding.evidence
        assert finding.link.startswith("https://")
        assert Finding.from_mapping(json.loads(json.dumps(finding.to_mapping()))) == finding
        if finding.code in bounded and observation.attempts is not None and observation.standstill is None:
            whole = observation.threads * observation.attempts.makespan
            needed = 0.0 if finding.severity in (Severity.INFO, Severity.LOW) else least * whole * 0.999
            assert needed <= finding.lost_s <= whole * (1 + 1e-9)
    return {finding.code: finding for finding in findings}


def only(findings: dict[str, Finding], code: str) -> Finding:
    """The finding with this code, after checking that there is no other."""
    assert list(findings) == [code]
    return findings[code]


def watched(observation: Observation, *rows: tuple[float, Doing], begin: float = 0.0) -> Observation:
    """The same trial with a client that did this for so many seconds, one after the other, from `begin` on."""
    time, client = EPOCH + begin, []
    for seconds, (where, what, waits) in rows:
        client.append({"time": time, "seconds": seconds, "where": where, "what": what, "waits": waits})
        time += seconds
    return observed(observation.trial, {**observation.tables, "client": from_rows("client", client)})


def observed(trial: Trial, tables: Tables) -> Observation:
    """The trial as if it had left these tables: their worker time is that of its metrics, if it has some."""
    seen = Observation.of(trial, tables)
    if trial.metrics is None or seen.attempts is None:
        return seen
    spent = divide(seen.attempts, threads=seen.threads).total()
    return replace(seen, trial=replace(trial, metrics=replace(trial.metrics, worker_time_s=spent)))
