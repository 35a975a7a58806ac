"""One plugin that contains all our worker plugins, because each registration is a call to every worker.

This source text is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin


class WorkerPlugins(WorkerPlugin):  # type: ignore[misc]
    """Sets up its plugins in order; if one of them fails, all are removed."""

    name = "scalescope-worker"
    idempotent = True

    def __init__(self, plugins: list[Any]) -> None:
        self.plugins = {each.name: each for each in plugins}

    def setup(self, worker: Any) -> None:
        with ExitStack() as undo:
            for each in self.plugins.values():
                each.setup(worker)
                undo.callback(each.teardown, worker)
            self.undo = undo.pop_all()

    def teardown(self, worker: Any) -> None:
        self.undo.close()
