"""The terms of the report, in the order in which they appear in it."""

from __future__ import annotations

from scalescope.model.metrics import METRICS

TERMS: tuple[tuple[str, str], ...] = (
    ("Point, trial", "A point is one combination of settings; a trial is one measured run of it."),
    *(
        (metric.term, metric.help + (f" Column “{metric.title}”." if metric.rank is not None else ""))
        for metric in METRICS.values()
        if metric.term
    ),
    (
        "Speed-up, knee",
        "Throughput in units of one thread that is always busy; the ideal on P threads is P. The knee is where it "
        "stops growing, with its 95 % interval, which holds if the fitted model does.",
    ),
    (
        "Worker time",
        "P × the time of the workload’s call: what was paid for. It is divided without remainder into the parts below.",
    ),
)
