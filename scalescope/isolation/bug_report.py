"""The text of a bug report about an isolated symptom, without traces of this machine or the user."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scalescope.analysis.summary import label
from scalescope.diagnosis import causes
from scalescope.isolation.reproducer import Confirmation, Reproducer
from scalescope.isolation.result import Isolation
from scalescope.model.trial import Trial
from scalescope.model.words import number, plural
from scalescope.report.table import ReportTable, to_markdown
from scalescope.store.location import redact

# Packages whose versions are listed, if installed.
PACKAGES = ("dask", "distributed", "apache-beam", "tornado", "cloudpickle", "msgpack", "numpy", "pandas", "pyarrow")
# Most measured sizes in the table.
ROWS = 8
_PATH = re.compile(r"(?<![\w/.:<])(?:~?/|[A-Za-z]:\\)[\w.+-]+(?:[/\\][\w.+-]*)+")
_ADDRESS = re.compile(r"\b(?:tcp|tls|inproc|ucx|https?)://(?!github\.com)[^\s`'\")]+")
# Advice in a remedy that only users of Scalescope can follow.
_IN_A_SWEEP = re.compile(r" \(in a sweep: [^)]*\)")


def write(isolation: Isolation, reproducer: Reproducer, confirmation: Confirmation | None) -> str:
    blocks = [
        f"# {_title(isolation)}",
        "## What happens",
        _what(isolation),
        _table(isolation),
        "## What I expected",
        _expected(isolation),
        "## Reproducer",
        _reproducer(reproducer, confirmation),
        "## What was ruled out",
        _list(_ruled_out(isolation)),
        "## Versions",
        _list(_versions(isolation.trial.facts)),
        "Isolated with Scalescope.",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def without_places(text: str) -> str:
    """Text without passwords, paths and addresses of a machine; the last part of a path stays."""
    text = _ADDRESS.sub("<address>", redact(text))
    return _PATH.sub(lambda found: re.split(r"[/\\]", found[0].rstrip("/\\"))[-1], text)


def _title(isolation: Isolation) -> str:
    trial = isolation.trial
    library = "Apache Beam on Dask" if isolation.setting.workload.name.startswith("beam-") else "Dask"
    if trial.metrics is None:
        return f"{library}: {without_places(isolation.symptom)}"
    used = plural(trial.metrics.workers_used, "worker")
    if trial.metrics.workers_used < trial.point.workers:
        return f"{library}: {_size(trial)} keep only {used} busy"
    return f"{library}: {_size(trial)}: {without_places(isolation.symptom)}"


def _size(trial: Trial) -> str:
    point, metrics = trial.point, trial.metrics
    if point.items is None and metrics is not None:
        return f"{plural(metrics.tasks, 'task')} on {plural(point.workers, 'worker')}"
    return f"{plural(point.items or 0, 'item')} on {plural(point.workers, 'worker')}"


def _what(isolation: Isolation) -> str:
    found = isolation.findings
    if isolation.finding is not None:
        same = [finding for finding in found if finding.code == isolation.finding.code]
        return without_places((same or [isolation.finding])[0].summary)
    rest = f" {found[0].summary}" if found else ""
    return without_places(f"At {label(isolation.trial.point)}, `{isolation.symptom}`.{rest}")


def _expected(isolation: Isolation) -> str:
    point, metrics = isolation.trial.point, isolation.trial.metrics
    lines = []
    if metrics is not None and metrics.workers_used < point.workers:
        enough = "" if point.items is None else f": there are {plural(point.items, 'item')} for them"
        lines.append(f"All workers busy{enough}.")
    else:
        lines.append(f"Not `{without_places(isolation.symptom)}`.")
    finding = isolation.finding
    if finding is not None and finding.remedy:
        lines.append(f"Workaround: {without_places(_IN_A_SWEEP.sub('', finding.remedy))}.")
    if finding is not None and finding.link:
        lines.append(f"Related: {finding.link}")
    return "\n\n".join(lines)


def _table(isolation: Isolation) -> str:
    seen = [item.trial for item in isolation.seen if item.trial.counts and item.trial.metrics is not None]
    if len(seen) > ROWS:
        seen = [*seen[: ROWS // 2], *seen[-ROWS // 2 :]]
    rows = [_row("isolated", isolation.trial), *(_row("as it was seen", trial) for trial in seen)]
    table = to_markdown(ReportTable.of("", ("", "items", "workers", "tasks", "workers used", "makespan s"), rows))
    where = f"`as it was seen`: {isolation.sweep.workload} on the {isolation.sweep.cluster.kind} cluster"
    return table + (f"\n\n{without_places(where)}." if seen else "")


def _row(name: str, trial: Trial) -> tuple[str, ...]:
    point, metrics = trial.point, trial.metrics
    place = (name, "" if point.items is None else f"{point.items:,}", f"{point.workers:,}")
    if metrics is None:
        return (*place, "", "", str(trial.state))
    return (*place, f"{metrics.tasks:,}", f"{metrics.workers_used:,}", number(metrics.makespan_s))


def _reproducer(reproducer: Reproducer, confirmation: Confirmation | None) -> str:
    if not reproducer.text:
        return f"None: {without_places(reproducer.problem)}."
    head = f"`python reproducer.py` (needs {', '.join(reproducer.needs)}):"
    blocks = [head, f"```python\n{reproducer.text.rstrip()}\n```"]
    if confirmation is not None and confirmation.output:
        blocks.append(f"It prints:\n\n```\n{without_places(confirmation.output)}\n```")
    if confirmation is None or not confirmation.confirmed:
        why = "it was not run" if confirmation is None else without_places(confirmation.problem)
        blocks.append(f"**NOT CONFIRMED: {why}. Do not send this report before the script shows the symptom.**")
    return "\n\n".join(blocks)


def _ruled_out(isolation: Isolation) -> list[str]:
    removed = [f"{without_places(step.words)}: no difference" for step in isolation.reduction.kept]
    cluster = isolation.trial.facts.get("cluster")
    if isinstance(cluster, Mapping) and cluster.get("cannot_show"):
        removed.append(f"It shows on the {isolation.setting.cluster.kind} cluster, without {cluster['cannot_show']}")
    found = {finding.code for finding in isolation.findings}
    absent = [cause.title for cause in causes.of_trials() if cause.code not in found]
    if absent and isolation.trial.metrics is not None:
        removed.append(f"Not found in the isolated trial: {', '.join(absent)}")
    return removed or ["nothing yet"]


def _versions(facts: Mapping[str, Any]) -> Sequence[str]:
    packages = facts.get("packages")
    versions = packages if isinstance(packages, Mapping) else {}
    found = [f"{name} {versions[name]}" for name in PACKAGES if name in versions]
    host = facts.get("host")
    python = host.get("python") if isinstance(host, Mapping) else None
    return [f"Python {python or platform.python_version()}", *found]


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
