"""A pytest plugin for `peers.py`: it picks tests with a synchronous Dask client, and notes how each test ended.

It runs in the environment of the tests, which has nothing of Scalescope.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

# Fixtures that make a synchronous client, or what the test makes it with
CLIENTS = {"c", "client", "client_no_amm", "client_secondary", "cluster_fixture", "dask_client", "dask_cluster"}
CLIENTS |= {"loop", "loop_in_thread", "tls_client", "tls_cluster"}
IN_SOURCE = re.compile(r"\b(Client|LocalCluster|Cluster|cluster|\w*DaskDistributor)\(")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("peers")
    group.addoption("--peers-notes", type=Path, help="file to which a JSON line is added for each step of a test")
    group.addoption("--peers-whole", action="store_true", help="run the tests without a synchronous client, too")
    group.addoption("--peers-slow", action="store_true", help="run the tests that are marked slow, too")
    group.addoption("--peers-most", type=int, default=0, help="run this many tests, evenly spread")
    group.addoption("--peers-without", action="append", default=[], help="leave out tests of this name")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _is_chosen(item, config)]
    if most := config.getoption("--peers-most"):
        kept = [kept[len(kept) * number // most] for number in range(most)] if len(kept) > most else kept
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


def _is_chosen(item: pytest.Item, config: pytest.Config) -> bool:
    function = inspect.unwrap(getattr(item, "function", None) or (lambda: None))
    name = getattr(item, "originalname", None) or item.name
    if name in config.getoption("--peers-without"):
        return False
    if item.get_closest_marker("slow") and not config.getoption("--peers-slow"):
        return False
    if config.getoption("--peers-whole"):
        return True
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return False
    return bool(CLIENTS & {*getattr(item, "fixturenames", ())}) or bool(IN_SOURCE.search(inspect.getsource(function)))


# ------------------------------------------------------------------ notes


class Notes:
    """Adds a line at every step: what a process that dies had noted is not lost."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note(test=nodeid, when="start")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        self._note(test=report.nodeid, when=report.when, outcome=outcome, seconds=report.duration, why=_why(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(test=report.nodeid, when="collect", outcome="failed", seconds=0.0, why=_why(report))

    def _note(self, **what: Any) -> None:
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(what) + "\n")


def _why(report: Any) -> str:
    if not (report.failed or report.skipped):
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text = crash.message
    else:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).strip()[-500:] if report.when == "collect" else str(text).strip()[:500]


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--peers-notes"):
        config.pluginmanager.register(Notes(file))
