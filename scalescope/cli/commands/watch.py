"""`scalescope watch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from scalescope.cli.options import Brief, GivenOptions, Json, OtherPython, options, python_of, seconds_of
from scalescope.cli.output import print_brief, print_json, say
from scalescope.clusters.scheduler.spec import SchedulerSpec
from scalescope.errors import ClusterError, ExitStatus, UsageError
from scalescope.model.finding import Severity
from scalescope.own_code.watched import watched

if TYPE_CHECKING:
    from scalescope.capture.live.remote_calls import DirectCalls
    from scalescope.own_code.diagnosis import Diagnosis

KEYED_REPORT = "watch.html"  # file of the report that the key r writes if --report names none
CONNECT_S = 10.0  # seconds in which the scheduler must accept the recorder's client


@options(SchedulerSpec, without=("address", "start_timeout_s"))
def watch(
    asked: GivenOptions,
    address: Annotated[
        str,
        typer.Argument(metavar="[ADDRESS]", help="Address of the scheduler, as tcp://HOST:8786.", show_default=False),
    ] = "",
    during: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Time to watch, as 60s or 5m (default: until Ctrl-C).")
    ] = "",
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Install a recorder on the scheduler and its workers, and give a verdict at the end. The recorder is "
            "removed at the end, or a minute after this command is killed. Without --record, nothing is installed.",
        ),
    ] = False,
    report: Annotated[
        str,
        typer.Option(metavar="FILE", help="With --record: also write the report as one HTML file.", show_default=False),
    ] = "",
    environment: OtherPython = "",
    brief: Brief = False,
    as_json: Json = False,
) -> None:
    """Watch a running Dask cluster: which workers work, what idle threads wait for, and where tasks are stuck.

    Asks the scheduler every two seconds and changes nothing. The cluster needs only distributed 2023.5 or later. On a
    terminal it obeys keys: arrows and Enter look into a group of tasks or a worker, w lists workers, s sorts, f holds
    the picture, r ends with the report, q ends.
    """
    from scalescope.cli import watch_display, watch_keys
    from scalescope.own_code.cluster_watch import ClusterWatch
    from scalescope.report import html

    seconds = seconds_of("--for", during)
    if report and not record:
        raise UsageError("--report needs the records of the recorder", next_step="add --record")
    if report:
        html.check(report)
    spec = SchedulerSpec(**{**asked.given, "address": address, "start_timeout_s": CONNECT_S})
    found: Diagnosis | None = None
    with ExitStack() as stack:
        asker = stack.enter_context(_asker(spec))
        seen = ClusterWatch(asker)
        seen.look()
        try:
            with ExitStack() as recording, watch_keys.shown(seen, records=record) as display:
                if record:
                    found = recording.enter_context(_recorded(spec, f"watched {asker.address}", environment))
                seen.follow(seconds, display.show, display.wait)
            if display.wants_report:
                report = report or KEYED_REPORT
        finally:
            if not as_json and not brief:
                print(watch_display.summary(seen))
    if brief:
        from scalescope.report.brief import of_answer

        summary = watch_display.summary(seen).splitlines()
        answer = found.brief(notes=summary) if found else of_answer(asker.address, summary[0], notes=summary[1:])
        print_brief(answer, as_json=as_json)
    elif as_json:
        print_json({**seen.to_mapping(), "verdict": found.to_json()["verdict"] if found else None})
    elif found is not None:
        print(f"\n{found}")
    if found is not None and report:
        found.report(report)
        if display.wants_report:
            say(f"Report: {report}")
    causes = [each for each in found.findings if not each.limits_trust] if found is not None else []
    critical = any(each.severity is Severity.HIGH for each in causes)
    stuck = seen.last is not None and seen.last.stands
    raise typer.Exit(ExitStatus.FINDING if stuck or critical else ExitStatus.OK)


@contextmanager
def _recorded(spec: SchedulerSpec, name: str, environment: str) -> Iterator[Diagnosis]:
    from scalescope.clusters.scheduler.cluster import SchedulerCluster
    from scalescope.own_code.diagnose import observed

    if python := python_of(environment):
        with watched(python, spec, name) as found:
            yield found
    else:  # only the process that opened a Gateway's cluster can connect to it
        with SchedulerCluster(spec).connect() as client, observed(client, name, "cluster") as found:
            yield found


def _asker(spec: SchedulerSpec) -> DirectCalls:
    from scalescope.capture.live.remote_calls import DirectCalls
    from scalescope.clusters.scheduler.cluster import SchedulerCluster

    try:
        return DirectCalls(spec.address, os.path.expanduser(spec.scheduler_file), SchedulerCluster(spec).security())
    except (OSError, ValueError) as error:
        text, where = "the scheduler's address or its TLS files cannot be read", spec.scheduler_file or spec.address
        raise ClusterError(text, where=where, cause=str(error), next_step="check the paths of these files") from error
