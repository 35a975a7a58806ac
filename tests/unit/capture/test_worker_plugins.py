"""One plugin that holds all of a worker's."""

from __future__ import annotations

import pytest

from scalescope.capture.worker_plugins import WorkerPlugins


class Plugin:
    def __init__(self, name: str, said: list[str], fails: bool = False) -> None:
        self.name, self.said, self.fails = name, said, fails

    def setup(self, worker: object) -> None:
        if self.fails:
            raise OSError(self.name)
        self.said.append(f"+{self.name}")

    def teardown(self, worker: object) -> None:
        self.said.append(f"-{self.name}")


def test_plugins_are_set_up_in_order_and_torn_down_in_the_reverse_order() -> None:
    said: list[str] = []
    plugin = WorkerPlugins([Plugin("a", said), Plugin("b", said)])
    plugin.setup(None)
    plugin.teardown(None)
    assert said == ["+a", "+b", "-b", "-a"]


def test_none_stays_if_one_cannot_be_set_up() -> None:
    said: list[str] = []
    with pytest.raises(OSError, match="b"):
        WorkerPlugins([Plugin("a", said), Plugin("b", said, fails=True), Plugin("c", said)]).setup(None)
    assert said == ["+a", "-a"]
