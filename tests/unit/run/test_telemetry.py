"""Telemetry as a small OTLP receiver gets it: whole HTTP requests with protobuf."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA as DELTA
from opentelemetry.sdk import resources

from scalescope import redaction
from scalescope.run import telemetry
from scalescope.run.sweep import run_sweep

SECRET = "Bearer-0123456789"
SWEEP = {"workload": "bag-map", "axes": {"workers": [1, 2], "items": [4]}, "repeats": 1}


class Receiver(ThreadingHTTPServer):
    """Takes traces and metrics, without compression, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.bodies: list[bytes] = []
        self.service = ""
        self.instances: set[str] = set()
        self.status = 200

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.service = attributes(resource.resource)["service.name"]
                self.instances.add(attributes(resource.resource)["service.instance.id"])
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {each.name: each for scope in resource.scope_metrics for each in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.take(self.path, self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def attributes(found: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with Receiver() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv(telemetry.VARIABLE, f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}")
        telemetry._collector.cache_clear()
        yield server
        telemetry._collector.cache_clear()
        server.shutdown()
        thread.join()


def test_a_run_is_sent_with_its_trials_findings_and_metrics(receiver: Receiver, fake: Any, address: str) -> None:
    fake.script = {1: "fail"}
    done = run_sweep({**SWEEP, "store": address})
    assert receiver.service == "scalescope"
    [run] = [span for span in receiver.spans if not span.parent_span_id]
    trials = [span for span in receiver.spans if span.parent_span_id == run.span_id]
    assert len(trials) == 2
    assert {span.trace_id for span in trials} == {run.trace_id}
    assert attributes(run)["scalescope.run.id"] == done.run_id
    assert attributes(run)["scalescope.workload"] == "bag-map"
    by_state = {attributes(span)["scalescope.trial.state"]: span for span in trials}
    assert set(by_state) == {"valid", "failed"}
    assert [span.status.code for span in by_state.values() if span.status.code] == [2]  # the failed one's
    assert all(span.end_time_unix_nano - span.start_time_unix_nano == 100_000_000 for span in trials)
    assert run.start_time_unix_nano < run.end_time_unix_nano
    codes = [attributes(event)["scalescope.finding.code"] for event in run.events]
    assert codes == [finding.code for finding in done.run.verdict.findings]
    [makespan] = receiver.metrics["scalescope.trial.makespan"].histogram.data_points
    assert (makespan.count, makespan.sum) == (1, pytest.approx(1.0))
    counted = receiver.metrics["scalescope.trials"].sum.data_points
    assert {attributes(each)["scalescope.trial.state"]: each.as_int for each in counted} == {"valid": 1, "failed": 1}
    assert sum(each.as_int for each in receiver.metrics["scalescope.findings"].sum.data_points) == len(codes)


def test_a_resumed_run_is_sent_once_it_is_complete(receiver: Receiver, fake: Any, address: str) -> None:
    fake.script = {1: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        run_sweep({**SWEEP, "store": address})
    assert receiver.bodies == []
    run_sweep({**SWEEP, "store": address})
    assert len(receiver.spans) == 3


def test_counts_are_sent_as_deltas_of_each_process(receiver: Receiver, fake: Any, address: str) -> None:
    for _ in range(2):  # clearing the cached collector stands for another process
        for _ in range(2):
            run_sweep({**SWEEP, "store": address, "fresh": True})
            counted = receiver.metrics["scalescope.trials"].sum
            assert counted.aggregation_temporality == DELTA
            assert [each.as_int for each in counted.data_points] == [1, 1]
            assert receiver.metrics["scalescope.trial.makespan"].histogram.aggregation_temporality == DELTA
        telemetry._collector.cache_clear()
        resources._service_instance_id = None
    assert receiver.instances == {socket.gethostname()}


def test_a_site_can_choose_instance_id_and_cumulative_counts(
    receiver: Receiver, fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
    monkeypatch.setenv(telemetry.TEMPORALITY, "cumulative")
    for _ in range(2):
        run_sweep({**SWEEP, "store": address, "fresh": True})
    assert [each.as_int for each in receiver.metrics["scalescope.trials"].sum.data_points] == [2, 2]
    assert receiver.instances == {"mine"}


def test_telemetry_contains_no_secret(receiver: Receiver) -> None:
    moment = "2026-01-01T00:00:00+00:00"
    redaction.know("OTEL_EXPORTER_OTLP_HEADERS")
    hidden = f"authorization={SECRET}"
    telemetry.send(telemetry.Span(hidden, moment, moment, {"a": hidden}, hidden, (("event", {"b": hidden}),)))
    assert receiver.spans
    assert not any(SECRET.encode() in body for body in receiver.bodies)


def test_a_failing_collector_gives_one_warning_and_is_not_asked_again(
    receiver: Receiver, fake: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 400
    assert run_sweep({**SWEEP, "store": address}).valid == 2
    asked = len(receiver.bodies)
    assert asked == 1
    assert [each.levelname for each in caplog.records if each.name == telemetry.__name__] == ["WARNING"]
    assert SECRET not in caplog.text
    assert run_sweep({**SWEEP, "store": address, "fresh": True}).valid == 2
    assert len(receiver.bodies) == asked


def test_telemetry_is_off_and_not_imported_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(telemetry.VARIABLE, raising=False)
    assert not telemetry.is_on()
    script = "import sys, scalescope.run.sweep; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    monkeypatch.setenv(telemetry.VARIABLE, "http://127.0.0.1:1")
    assert telemetry.is_on()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not telemetry.is_on()
