from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from scalescope import owner as owners
from scalescope.owner import Owner


def test_the_current_process_counts_as_alive_and_on_this_host() -> None:
    owner = Owner.current()
    assert (owner.pid, owner.is_here, owner.is_alive()) == (os.getpid(), True, True)
    assert owner == Owner.current() == Owner.of(os.getpid())

    assert not replace(owner, process_started=1.0).is_alive()  # a later process of the same number


def test_a_changed_system_clock_does_not_make_an_owner_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, started = Owner.current(), psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: started(self) + 3600)
    assert owner.is_alive()
    assert Owner.current() == owner


def test_an_owner_on_another_host_or_in_another_container_counts_as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner.current()
    for number in range(3):  # name, name space, machine
        words = owner.host.split()
        words[number] = "other"
        assert not replace(owner, host=" ".join(words)).is_here
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    assert not owner.is_here


def test_an_owner_from_before_a_reboot_counts_as_dead() -> None:
    owner = Owner.current()
    before = replace(owner, host=" ".join([*owner.host.split()[:3], "another-boot"]))
    assert (before.is_here, before.is_alive()) == (True, False)


def test_without_proc_an_owner_is_identified_by_host_name_and_start_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", missing)
    owner = Owner.current()
    assert (owner.is_here, owner.is_alive()) == (True, True)
    assert not replace(owner, process_started=owner.process_started - 60).is_alive()


def test_a_process_hidden_from_this_user_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int) -> tuple[str, float]:
        raise FileNotFoundError(pid)

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(pid)

    owner = Owner.current()
    monkeypatch.setattr(owners, "_start", hidden)
    assert not owner.is_alive()
    monkeypatch.setattr(os, "kill", forbidden)
    assert owner.is_alive()


def test_a_killed_process_is_dead_even_before_its_parent_has_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(process.pid)
    assert owner.is_alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert psutil.pid_exists(process.pid)
    assert not owner.is_alive()
    process.wait()
    assert not owner.is_alive()
    assert process.stdin
    process.stdin.close()
    with pytest.raises(ProcessLookupError):
        Owner.of(process.pid)
