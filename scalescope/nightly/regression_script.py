"""A script that shows a regression without Scalescope: it runs the workload with the packages of two nights in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

import scalescope
from scalescope import workloads
from scalescope.environments import uv
from scalescope.errors import EnvironmentUnavailable
from scalescope.model.environment import requirement
from scalescope.model.sweep import Point
from scalescope.nightly.night_record import NightlySeries, SoftwareLock
from scalescope.redaction import passed_on
from scalescope.studies.scripts import run_alone
from scalescope.workloads import references

MEASURED = ("makespan_s", "elapsed_s")  # metrics whose regressions a script can show, since it times the call
SHOWN = 1  # exit status of a script that shows the regression
LONGEST_S = 600.0  # seconds after which a script is stopped
MOST_WORKERS = 32  # most workers that a script starts per side if the cluster is not `local`
_PACKAGE = Path(scalescope.__file__).parent
_REGISTRY = _PACKAGE / "workloads" / "__init__.py"
_TEXT = '''\
"""$title

Run: python slower.py (needs uv). In pairs, it runs the workload with the packages of the last good night (A) and with
those of the night that was slower (B). Exit status 1: B is slower; 0: it is not; 2: it cannot be run.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median

A = $a.split()
B = $b.split()
BOTH = $both.split()
WORKERS, THREADS, MEMORY = $workers, $threads, $memory
CONFIG = $config
PARAMS = $params
MODULE, FUNCTION = $module, $function
PAIRS = 7


def answer():
    """One side: the workload once, and then again for each line of the standard input."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set(CONFIG)
    found = getattr(import_module(MODULE), FUNCTION)
    run, out = getattr(found, "run", found), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the workload prints to standard error
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=THREADS, memory_limit=MEMORY, dashboard_address=None
    ) as cluster, Client(cluster) as client:
        run(client, **PARAMS)
        for _ in sys.stdin:
            began = time.perf_counter()
            run(client, **PARAMS)
            print(time.perf_counter() - began, file=out, flush=True)


def fail(reason):
    print(reason, file=sys.stderr)
    sys.exit(2)


def start(packages, folder):
    uv = shutil.which("uv") or fail("there is no uv: pip install uv")
    options = [f"--python={each[8:]}" if each.startswith("python==") else f"--with={each}" for each in packages]
    return subprocess.Popen(
        [uv, "run", "--quiet", "--no-project", "--isolated", *options, "python", __file__, "answer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": folder},
    )


def ask(side):
    try:
        side.stdin.write("\\n")
        side.stdin.flush()
        return float(side.stdout.readline())
    except (OSError, ValueError):
        fail(f"the workload ended with status {side.wait()}; the reason is above")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SOURCES.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sides = [start([*BOTH, *packages], folder) for packages in (A, B)]
        pairs = []
        for number in range(PAIRS):
            order = sides if number % 2 else sides[::-1]
            taken = {id(side): ask(side) for side in order}
            pairs.append([taken[id(side)] for side in sides])
        for side in sides:
            side.stdin.close()
            side.wait()
    a, b = (median(column) for column in zip(*pairs))
    slower = b > a and sum(right > left for left, right in pairs) >= PAIRS - 1
    print(f"A {a:.3f} s, B {b:.3f} s: B is {'slower' if slower else 'not slower'} ({b / a - 1:+.1%}) in {PAIRS} pairs")
    sys.exit(int(slower))


SOURCES = {
$sources}


if __name__ == "__main__":
    answer() if sys.argv[1:] else main()
'''


def write(title: str, series: NightlySeries, good: SoftwareLock, tonight: SoftwareLock) -> tuple[str, str]:
    """The script that shows a change, or an empty text and the reason why there is none."""
    workload = workloads.load(series.workload)
    if series.metric not in MEASURED:
        return "", f"a script measures time, and the regression is in {series.metric}"
    point = Point.from_mapping(series.point)
    if point.workers > MOST_WORKERS and series.cluster["kind"] != "local":
        return "", f"a script runs all workers on one machine, and {point.workers:,} workers are too many for that"
    if workload.changes_workers:
        return "", "the workload adds or removes workers, so it cannot run twice on one cluster"
    before, after = good.pins, tonight.pins
    both = {name: version for name, version in after.items() if before.get(name) == version}
    module = sys.modules[workload.run.__module__]
    path = Path(module.__file__ or "")
    own = series.workload.rpartition(":")[0]
    within, name = (path.parent, path.stem) if own.endswith(".py") else (_PACKAGE, module.__name__)
    sources = {} if own and not own.endswith(".py") else references.sources(module, within, {_REGISTRY: ""})
    root = within if own else within.parent
    text = Template(_TEXT).substitute(
        title=title.replace("\\", "/").replace('"""', "'''"),
        a=repr(_pins(before, both)),
        b=repr(_pins(after, both)),
        both=repr(_pins(both, ())),
        workers=point.workers,
        threads=point.threads_per_worker,
        memory=repr(f"{megabytes}MiB" if (megabytes := series.cluster.get("memory_limit_mb")) else None),
        config=repr(dict(point.dask_config)),
        params=repr(dict(point.params)),
        module=repr(name),
        function=repr(workload.run.__name__),
        sources="".join(
            f"    {str(file.relative_to(root))!r}: {_quoted(content)},\n" for file, content in sources.items()
        ),
    )
    return text, ""


def show(text: str, seconds: float) -> tuple[bool, str]:
    """Run a script; return whether it shows the regression, and its last line or the reason why not."""
    limit = min(seconds, LONGEST_S)
    try:
        found = f"{Path(uv.executable()).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        done = run_alone(text, limit, environ={**passed_on(), "PATH": found})
    except subprocess.TimeoutExpired:
        return False, f"it did not end within {limit:.0f} s"
    except EnvironmentUnavailable as error:
        return False, error.line
    lines = [*(done.stderr if done.returncode else "").splitlines(), *done.stdout.splitlines()]
    last = next((line.strip() for line in reversed(lines) if line.strip()), f"it ended with status {done.returncode}")
    return done.returncode == SHOWN and last.startswith("A "), uv.redact(last)


def _pins(pins: Mapping[str, str], without: Iterable[str]) -> str:
    return " ".join(requirement(name, version) for name, version in pins.items() if name not in without)


def _quoted(text: str) -> str:
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    body = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    return f"'''\\\n{body}'''" if not body.endswith("'") else repr(text)
