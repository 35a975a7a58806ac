from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from scalescope.owner import Owner


def test_this_process_is_here_and_alive() -> None:
    owner = Owner.current()
    assert (owner.pid, owner.is_here, owner.is_alive()) == (os.getpid(), True, True)
    assert owner == Owner.current()


def test_a_later_process_of_the_same_number_is_another() -> None:
    assert not replace(Owner.current(), process_started=1.0).is_alive()


def test_another_host_or_container_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner.current()
    assert not replace(owner, host="elsewhere").is_here
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    assert not owner.is_here


def test_without_name_spaces_the_host_name_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", missing)
    assert Owner.current().is_here


def test_a_killed_process_is_dead_even_before_its_parent_has_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner(Owner.current().host, process.pid, psutil.Process(process.pid).create_time())
    assert owner.is_alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert psutil.pid_exists(process.pid)
    assert not owner.is_alive()
    process.wait()
    assert not owner.is_alive()
    assert process.stdin
    process.stdin.close()
