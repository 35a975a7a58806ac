"""Sends runs, trials, findings and alerts to an OpenTelemetry collector, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.

Data is sent after its measurement. If the collector fails, a warning is logged and the run goes on.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING

import scalescope
from scalescope.analysis.summary import label
from scalescope.model.extras import install_command
from scalescope.model.trial import Trial, TrialState
from scalescope.redaction import hide
from scalescope.run import run_names
from scalescope.store.store import SweepRun

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Tracer

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
PAUSE_S = 600.0  # seconds without sending after the collector failed, since each try can take 10 s
# Upper bounds of the histogram's buckets, in seconds: the default ones are for milliseconds
MAKESPANS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)

Attributes = Mapping[str, str | int | float | bool]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Span:
    """A piece of work. Times are ISO 8601."""

    name: str
    start: str
    end: str
    attributes: Attributes
    error: str = ""  # reason why it failed; empty if it did not
    events: tuple[tuple[str, Attributes], ...] = ()  # (name, attributes) of events at its end; they are counted, too
    parts: tuple[Span, ...] = ()
    makespan_s: float | None = None  # makespan of a trial that counts, in seconds; else None


def of_run(run: SweepRun, told: Collection[str] = ()) -> Span:
    """A finished run with its trials, except those whose keys are in `told`."""
    about = {
        "scalescope.run.id": run.id,
        "scalescope.workload": run_names.workload(run.sweep.workload),
        "scalescope.cluster.kind": run.sweep.cluster.kind,
    }
    findings = tuple(
        ("scalescope.finding", {**_finding(each.code, str(each.severity)), "scalescope.finding.summary": each.summary})
        for each in (run.verdict.findings if run.verdict else ())
    )
    trials = [_of_trial(trial, run, about) for trial in run.trials if trial.key not in told]
    name = f"run {about['scalescope.workload']}"
    state = {"scalescope.run.state": str(run.state)}
    return Span(name, run.created_at, run.finished_at, {**about, **state}, events=findings, parts=tuple(trials))


def _finding(code: str, severity: str) -> dict[str, str]:
    return {"scalescope.finding.code": code, "scalescope.finding.severity": severity}


def _of_trial(trial: Trial, run: SweepRun, about: Attributes) -> Span:
    start = trial.started_at or run.started_at
    end = datetime.fromisoformat(start) + timedelta(seconds=trial.real_s)
    attributes = {
        **about,
        "scalescope.cluster.kind": run.sweep.cluster_of(trial.point).kind,
        "scalescope.workers": trial.point.workers,
        "scalescope.size": label(trial.point),
        "scalescope.trial.key": trial.key,
        "scalescope.trial.repeat": trial.repeat,
        "scalescope.trial.warmup": trial.warmup,
        "scalescope.trial.state": str(trial.state),
    }
    if trial.metrics:
        attributes["scalescope.trial.makespan"] = trial.metrics.makespan_s
    error = "" if trial.state is TrialState.VALID else trial.reason.partition("\n")[0]
    measured = trial.metrics.makespan_s if trial.metrics and trial.counts else None
    return Span("trial", start, end.isoformat(), attributes, error, makespan_s=measured)


def send(span: Span) -> None:
    """Send a span with its parts and their counts; callers first check `is_on`."""
    _collector().send(span)


def is_on() -> bool:
    return bool(os.environ.get(VARIABLE)) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


@dataclass
class Collector:
    """The collector that the environment names; after a failure, nothing is sent to it for a while."""

    paused_until: float = 0.0  # value of `time.monotonic` before which nothing is sent

    def send(self, span: Span) -> None:
        if time.monotonic() < self.paused_until:
            return
        why: object = "it refused the spans"
        try:
            if _send_spans(span):
                _count(span, self._meters.get_meter("scalescope", scalescope.__version__))
                if self._meters.force_flush():
                    return
        except ImportError as error:
            why = f"{error}; {install_command('otel')}"
        except Exception as error:  # noqa: BLE001 - an error of the collector or its client must not end the run
            why = error
        self.paused_until = time.monotonic() + PAUSE_S
        logger.warning("The OpenTelemetry collector (%s) did not get %s: %s", VARIABLE, span.name, hide(str(why)))

    @cached_property
    def _meters(self) -> MeterProvider:
        """Meters that send only counts since the last message (delta): a short process's totals would show no rate."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
        from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader

        delta = AggregationTemporality.DELTA
        ours: dict[type, AggregationTemporality] = {Counter: delta, Histogram: delta}
        exporter = OTLPMetricExporter(preferred_temporality=None if os.environ.get(TEMPORALITY) else ours)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        return MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)


_collector = cache(Collector)


def _send_spans(span: Span) -> bool:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    _record(provider.get_tracer("scalescope", scalescope.__version__), span, None)
    exporter = OTLPSpanExporter()
    try:
        return exporter.export(kept.get_finished_spans()) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # upstream has no type there


def _record(tracer: Tracer, span: Span, parent: Context | None) -> None:
    from opentelemetry.context import Context
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    started = tracer.start_span(
        hide(span.name), context=parent or Context(), attributes=_hidden(span.attributes), start_time=_ns(span.start)
    )
    for part in span.parts:
        _record(tracer, part, set_span_in_context(started))
    for name, attributes in span.events:
        started.add_event(name, _hidden(attributes), timestamp=_ns(span.end))
    if span.error:
        started.set_status(Status(StatusCode.ERROR, hide(span.error)))
    started.end(end_time=_ns(span.end))


def _count(span: Span, meter: Meter) -> None:
    names = ("scalescope.workload", "scalescope.cluster.kind", "scalescope.size", "scalescope.trial.state")
    about = {name: span.attributes[name] for name in names if name in span.attributes}
    if "scalescope.trial.state" in about:
        meter.create_counter("scalescope.trials", "{trial}", "Trials that ended").add(1, _hidden(about))
    if span.makespan_s is not None:
        meter.create_histogram(
            "scalescope.trial.makespan",
            "s",
            "Makespan of valid trials",
            explicit_bucket_boundaries_advisory=MAKESPANS_S,
        ).record(span.makespan_s, _hidden(about))
    for name, attributes in span.events:
        codes = {key: value for key, value in attributes.items() if key.endswith((".code", ".severity"))}
        meter.create_counter(f"{name}s", "{event}", "Events of this name").add(1, _hidden({**about, **codes}))
    for part in span.parts:
        _count(part, meter)


def _resource() -> Resource:
    """Identity of the sender: equal for all processes of a host, so that their counts add up in one series."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    about = {
        "service.name": "scalescope",
        "service.version": scalescope.__version__,
        "service.instance.id": socket.gethostname(),
    }
    return Resource.create(about).merge(OTELResourceDetector().detect())


def _hidden(attributes: Attributes) -> Attributes:
    return {name: hide(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _ns(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1e9)
