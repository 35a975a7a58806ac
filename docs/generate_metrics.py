"""Writes `docs/metrics.md` from the declarations: `python docs/generate_metrics.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scalescope.model.metrics import METRICS, PARTS, Combine, Metric

PAGE = Path(__file__).with_name("metrics.md")
HEAD = """# Metrics

What every trial measures. P are the threads asked for: workers × threads per worker; T1 is `work_s`, T∞ is `span_s`.

A condition may name any of these numbers, as in `scalescope isolate --metric 'efficiency < 0.6'`, and so may
`find-threshold`, `find-release` and `compare`; besides them `workers`, `threads`, `items` and the parts of worker time
below. `scalescope show RUN --json` has all of them for every point. Metrics of which more is better are marked ↑;
`compare` takes less of all others for better.

This page is written by `docs/generate_metrics.py` from `scalescope/model/metrics.py`. To add a metric, declare it there
and compute it in `scalescope/analysis/measure.py`: tables, conditions, `compare`, the reports and this page follow.

| Metric | In tables | Unit | Over repeats | What it is |
| --- | --- | --- | --- | --- |
"""
WORKER_TIME = f"""
## Worker time

P × the time of the workload's call (`elapsed_s`, and longer where tasks outlast it) is what was paid for. It is divided
without remainder into these parts; over repeats each is the {Combine.MEAN}. In a condition the name of a part is its
share, from 0 to 1. During the makespan, `busy` is the `efficiency` unless a worker ran more tasks at once than it has
threads. Trials that were recorded before the client was watched have the makespan in place of the call.

| Part | In reports | What the thread was doing |
| --- | --- | --- |
"""
METG = """
## METG: how short may tasks be?

The minimum effective task granularity (Slaughter et al., Task Bench, 2020) is the shortest task with which half of the
threads' time is work. A sweep over `seconds` shows it: the least at which `efficiency` is 0.5 or more.

```
scalescope sweep -w futures-map -c simulated -a workers=16 -a seconds=0.001,0.002,0.004,0.008,0.016 -p items=800
```

On the simulated cluster, with its default costs, the efficiencies are 0.12, 0.25, 0.43, 0.61 and 0.75: the METG of 16
threads is between 4 and 8 ms.
"""


def page() -> str:
    """The page as the declarations have it."""
    parts = (f"| `{name}` | {part.title} | {part.help} |\n" for name, part in PARTS.items())
    return "".join([HEAD, *map(_row, METRICS.values()), WORKER_TIME, *parts, METG])


def _row(metric: Metric) -> str:
    name = f"`{metric.name}`" + (" ↑" if metric.larger_is_better else "")
    cells = (name, _headings(metric), str(metric.unit), _repeats(metric), metric.help)
    return f"| {' | '.join(cells)} |\n"


def _headings(metric: Metric) -> str:
    shown: Iterable[str] = () if metric.rank is None else dict.fromkeys((metric.title, metric.short or metric.title))
    return ", ".join(f"“{each}”" for each in shown)


def _repeats(metric: Metric) -> str:
    return str(metric.combine) + ("; in tables the mean and its 95 % interval" if metric.interval else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
