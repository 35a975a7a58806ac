"""Facts of the host, and how its CPU time is divided between our processes and others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scalescope.capture import host
from scalescope.capture.host import HostLoad


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_facts_of_the_host_can_be_written_as_json() -> None:
    facts = host.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpus"] >= facts["usable_cpus"] >= 1
    assert facts["memory_bytes"] >= facts["available_bytes"] > 0
    assert facts["executable"] == sys.executable


def test_package_names_are_normalised_and_sorted() -> None:
    versions = host.packages()
    assert {"dask", "distributed", "pytest", "msgpack"} <= versions.keys()
    assert all(name == name.lower() and "_" not in name for name in versions)
    assert list(versions) == sorted(versions)


def test_the_digest_of_packages_differs_when_a_version_differs() -> None:
    one = {"dask": "2026.8.0", "numpy": "2.0"}
    assert host.packages_digest(one) == host.packages_digest(dict(reversed(one.items())))
    assert host.packages_digest(one) != host.packages_digest(one | {"numpy": "2.1"})


def test_cpu_shares_add_up_and_work_of_this_process_counts_as_ours() -> None:
    with HostLoad() as load:
        spin(0.3)
    shares = load.load
    assert shares is not None, load.reason
    assert shares.ours + shares.others + shares.stolen + shares.idle == pytest.approx(1.0, abs=0.05)
    assert shares.ours * shares.cpus * shares.seconds > 0.2
    assert json.dumps(shares.to_mapping())


def test_work_of_child_processes_counts_as_ours_and_that_of_others_does_not() -> None:
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    with HostLoad() as with_children, HostLoad([2**22 + 1]) as strangers:
        subprocess.run([sys.executable, "-I", "-S", "-c", burn], check=True)
    assert with_children.load is not None
    assert strangers.load is not None
    assert with_children.load.ours * with_children.load.cpus * with_children.load.seconds > 0.3
    assert strangers.load.ours == 0.0
    assert strangers.load.others * strangers.load.cpus * strangers.load.seconds > 0.3


class FakeProc:
    """A `/proc` that can be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cpu(0)

    def cpu(self, busy: int, idle: int = 0, stolen: int = 0) -> None:
        (self.folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 2 3\n")

    def process(self, pid: int, parent: int, ticks: int, name: str = "python") -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        fields = ["S", parent, *[0] * 9, ticks, 0, 0, 0, 20, 0]
        (self.folder / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, fields)))


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return FakeProc(tmp_path)


def test_cpu_shares_are_fractions_of_all_cpus(proc: FakeProc) -> None:
    proc.process(10, 1, 100)
    proc.process(11, 10, 50, name="a) (b")
    proc.process(12, 11, 10)
    proc.process(20, 1, 1000, name="other")
    with HostLoad([10]) as load:
        proc.cpu(busy=80, idle=100, stolen=20)
        proc.process(10, 1, 110)
        proc.process(11, 10, 80, name="a) (b")
        proc.process(12, 11, 20)
        proc.process(13, 12, 10)
        proc.process(20, 1, 1030, name="other")
    assert load.load is not None
    assert load.load.to_mapping() == {
        "ours": 0.3,
        "own": 0.05,
        "others": 0.1,
        "stolen": 0.1,
        "idle": 0.5,
        "cpus": 2,
        "seconds": 200 / os.sysconf("SC_CLK_TCK") / 2,
        "names": ("other",),
    }


def test_the_load_so_far_counts_from_the_start_and_is_measured_again_only_after_an_interval(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10, 1, 100)
    proc.process(20, 1, 1000, name="other")
    with HostLoad([10]) as load:
        proc.cpu(busy=100, idle=100)
        proc.process(10, 1, 150)
        proc.process(20, 1, 1050, name="other")
        assert load.so_far() is None  # too early
        monkeypatch.setattr(host, "AGAIN_S", 0.0)
        first = load.so_far()
        proc.cpu(busy=300, idle=100)
        proc.process(20, 1, 1250, name="other")
        later = load.so_far()
    assert first is not None
    assert later is not None
    assert (first.ours, first.idle, first.names) == (0.25, 0.5, ("other",))
    assert (later.ours, later.idle) == (0.125, 0.25)


def test_without_proc_the_host_load_is_none_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path / "nothing")
    with HostLoad() as load:
        pass
    assert load.load is None
    assert load.reason
    assert host.facts()["memory_bytes"] is None


def test_an_interval_shorter_than_a_tick_has_no_cpu_shares(proc: FakeProc) -> None:
    with HostLoad([10]) as load:
        pass
    assert load.load is None
    assert "shorter than a tick" in load.reason


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"cpu.max": "150000 100000\n", "memory.max": "1073741824\n"}, 1.5, 1 << 30),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, None, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": "9223372036854771712"}, None, None),
        ({}, None, None),
    ],
)
def test_cpu_and_memory_limits_of_a_container_are_read_from_its_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: Any, memory: Any
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    facts = host.facts()
    assert (facts["cgroup_cpus"], facts["cgroup_memory_bytes"]) == (cpus, memory)
