"""Objects sent to a cluster unpickle where scalescope is not installed."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest
from distributed import Client, LocalCluster

from scalescope.capture import actors, blackbox, clock, garbage, process_samples, recorder, shipping, waits
from scalescope.capture.live import snapshot
from scalescope.capture.shipping import Shipment, register

SHIPPED = [recorder, clock, blackbox, garbage, process_samples, waits, actors, snapshot]

ELSEWHERE = """
import pickle, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "scalescope":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
things = [pickle.loads(line) for line in pickle.load(sys.stdin.buffer)]
assert not [name for name in sys.modules if name.partition(".")[0] == "scalescope"]
for thing in things:
    print(getattr(thing, "held_rows", None), type(thing).__name__, type(thing).__module__ == things[0].__module__)
"""


def elsewhere(*things: object) -> list[str]:
    """Unpickle in a Python that cannot import scalescope; returns what it prints."""
    message = pickle.dumps([cloudpickle.dumps(thing) for thing in things])
    command = [sys.executable, "-I", "-c", ELSEWHERE]
    return subprocess.run(command, input=message, capture_output=True, check=True).stdout.decode().splitlines()


def test_plugins_unpickle_where_scalescope_is_not_installed() -> None:
    things = [
        Shipment(recorder, "Recorder", {"held_rows": 5}),
        Shipment(recorder, "Recorder", {"held_rows": 6}),
        Shipment(clock, "SameHostClock", {"kernel": "x"}),
        Shipment(blackbox, "BlackBox", {"folder": "/nowhere"}),
        Shipment(process_samples, "memory_samples"),
    ]
    assert elsewhere(*things) == [
        "5 Recorder True",
        "6 Recorder True",  # the same class: its module was executed once
        "None SameHostClock False",
        "None BlackBox False",
        "None function False",
    ]


def test_an_object_pickled_by_reference_fails_where_scalescope_is_not_installed() -> None:
    """Proves that the test above can fail."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        elsewhere(recorder.Recorder())
    assert b"ModuleNotFoundError: scalescope" in caught.value.stderr


def test_a_shipment_unpickles_as_the_object_or_function_that_it_names() -> None:
    plugin = pickle.loads(pickle.dumps(Shipment(recorder, "Recorder", {"held_rows": 5, "lag_interval_s": None})))
    assert (plugin.held_rows, plugin.lag_interval_s, plugin.name) == (5, None, recorder.Recorder.name)
    kernel = Shipment(clock, "this_kernel")
    assert kernel() == pickle.loads(pickle.dumps(kernel))() == clock.this_kernel()


@pytest.mark.parametrize("magic", [shipping.MAGIC_NUMBER, b"other"])
def test_a_shipped_module_is_compiled_from_its_source_where_the_python_release_differs(
    monkeypatch: pytest.MonkeyPatch, magic: bytes
) -> None:
    monkeypatch.setattr(shipping, "MAGIC_NUMBER", magic)
    for module in (clock, *shipping._imported(clock)):  # pytest's loader keeps no code
        monkeypatch.setattr(module, "__loader__", SourceFileLoader(module.__name__, str(module.__file__)))
    monkeypatch.setattr(shipping, "_codes", cache(shipping._codes.__wrapped__))
    monkeypatch.delitem(sys.modules, shipping._name(clock), raising=False)
    kernel = pickle.loads(pickle.dumps(Shipment(clock, "this_kernel")))
    assert kernel() == clock.this_kernel()
    compiled_of_the_module = kernel.__code__.co_firstlineno == clock.this_kernel.__code__.co_firstlineno
    assert compiled_of_the_module is (magic != b"other")


def test_a_module_shipped_again_with_changed_text_does_not_replace_the_first(tmp_path: Path) -> None:
    def value(text: str) -> object:
        path = tmp_path / "sample.py"
        path.write_text(f"# {text}\ndef answer():\n    return {text!r}\n")
        module = ModuleType("sample")
        module.__file__ = str(path)
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        import linecache

        linecache.checkcache()
        return pickle.loads(pickle.dumps(Shipment(module, "answer", {})))

    assert [value("one"), value("two"), value("one")] == ["one", "two", "one"]


@pytest.mark.parametrize("module", SHIPPED, ids=lambda module: module.__name__)
def test_modules_sent_to_workers_need_only_python_3_9_and_distributed(module: ModuleType) -> None:
    tree = ast.parse(shipping._text(module), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "dask", "distributed"}


def test_a_scheduler_in_this_process_uses_the_imported_module_and_no_shipped_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, shipping._name(recorder), raising=False)  # other tests have sent it
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        register(client, recorder, "Recorder", owner=client.id)
        assert isinstance(cluster.scheduler.plugins[recorder.Recorder.name], recorder.Recorder)
