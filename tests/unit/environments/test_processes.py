"""Several processes and one environment: built once, never used half-built, not removed while in use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import wait_for

from scalescope.environments import ensure, list_cached, prune, uv
from scalescope.environments.cache_locks import BUILD, USE, CacheLock
from scalescope.model.environment import Environment

Start = Callable[..., "subprocess.Popen[str]"]
TINY = Environment.parse("tiny-thing==1.0")

USES = """
import sys
from scalescope.environments import ensure
from scalescope.model.environment import Environment
sys.stdin.readline()
print(ensure(Environment.parse("tiny-thing==1.0")).fresh, flush=True)
sys.stdin.readline()
"""
BUILD_SLOWLY = """
import sys
from scalescope.environments import ensure, uv
from scalescope.model.environment import Environment
uv.executable = lambda: sys.argv[1]
ensure(Environment.parse("tiny-thing==1.0"))
"""


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_one_builds_and_the_other_waits(cache: Path, process: Start) -> None:
    both = [process(USES), process(USES)]
    for one in both:
        go(one)
    assert sorted(map(answer, both)) == ["False", "True"]
    assert len(list_cached()) == 1


def test_of_several_threads_only_one_builds(cache: Path) -> None:
    fresh: list[bool] = []
    threads = [threading.Thread(target=lambda: fresh.append(ensure(TINY).fresh)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fresh) == [False, False, True]


def test_a_build_does_not_wait_for_a_user_of_the_same_environment(cache: Path) -> None:
    """A process that waited to build must not wait until the process that did build it ends."""
    folder = _folder_of(TINY, cache)
    cache.mkdir(parents=True)
    came: list[bool] = []
    waits = threading.Event()
    late = threading.Thread(target=lambda: came.append(ensure(TINY, says=lambda text: waits.set()).fresh))
    with contextlib.closing(CacheLock(folder, BUILD)) as build:
        build.own(lambda: None)
        late.start()
        assert waits.wait(60)
        user = CacheLock(folder, USE)  # as if it had been built here meanwhile
        user.share(lambda: None)
    late.join(60)
    user.close()
    assert came == [True]


@pytest.mark.parametrize("kind", [USE, BUILD])
def test_waiting_for_another_process_is_announced(kind: str, cache: Path) -> None:
    folder = Path(ensure(TINY).python).parent.parent
    assert prune(everything=True).in_use == (TINY.text,)
    other = Environment.parse("tiny-thing==1.1")
    said = threading.Event()
    with contextlib.closing(CacheLock(_folder_of(other, folder.parent), kind)) as lock:
        assert lock.try_own()
        built: list[bool] = []
        thread = threading.Thread(target=lambda: built.append(ensure(other, says=lambda text: said.set()).fresh))
        thread.start()
        assert said.wait(60)
        assert not built
    thread.join()
    assert built == [True]


@pytest.mark.parametrize("then", ["ensure", "prune"])
def test_the_remains_of_a_killed_build_are_never_used(then: str, cache: Path, tmp_path: Path, process: Start) -> None:
    """While the uv of the killed build still runs, no other process touches its folder."""
    slow = tmp_path / "slow-uv"
    begun, on = tmp_path / "begun", tmp_path / "on"
    hold = f"*'pip install'*) touch '{begun}'; until [ -e '{on}' ]; do sleep 0.02; done;;"
    slow.write_text(f'#!/bin/sh\ncase "$*" in {hold} esac\nexec \'{uv.executable()}\' "$@"\n')
    slow.chmod(0o755)
    builder = process(BUILD_SLOWLY, str(slow))
    wait_for(begun.exists)
    builder.kill()
    builder.wait()
    folder = next(path for path in cache.iterdir() if path.is_dir())
    try:
        assert list_cached() == ()
        assert prune(everything=True).removed == ()
        assert (folder / "bin" / "python").exists()
    finally:
        on.touch()  # the orphan goes on, and ends
    if then == "ensure":
        assert ensure(TINY).fresh
        assert [cached.text for cached in list_cached()] == [TINY.text]
    else:
        with contextlib.closing(CacheLock(folder, USE)) as lock:
            lock.own(lambda: None)
        assert list_cached() == ()
        assert prune().removed == ("",)
        assert not folder.exists()


def test_pruning_keeps_environments_that_are_in_use(cache: Path, process: Start) -> None:
    user = process(USES)
    go(user)
    assert answer(user) == "True"
    assert [cached.in_use for cached in list_cached()] == [True]
    kept = prune(everything=True)
    assert (kept.removed, kept.in_use, kept.freed) == ((), (TINY.text,), 0)

    go(user)
    assert user.wait(60) == 0
    assert [cached.in_use for cached in list_cached()] == [False]
    gone = prune(everything=True)
    assert (gone.removed, gone.in_use) == ((TINY.text,), ())
    assert gone.freed > 0
    assert list_cached() == ()


def test_pruning_keeps_environments_that_were_used_recently(cache: Path, process: Start) -> None:
    user = process(USES)
    go(user)
    answer(user)
    go(user)
    user.wait(60)
    assert prune(older_than_days=30).removed == ()
    (cached,) = list_cached()
    assert cached.packages == 4
    long_ago = time.time() - 40 * 86_400
    os.utime(cached.path / "environment.json", (long_ago, long_ago))
    assert list_cached()[0].last_used == pytest.approx(long_ago)
    assert prune(older_than_days=41).removed == ()
    assert prune(older_than_days=30).removed == (TINY.text,)


def test_an_empty_cache_has_nothing_to_list_or_to_prune(cache: Path) -> None:
    assert list_cached() == ()
    assert prune(everything=True).removed == ()


def _folder_of(environment: Environment, cache: Path) -> Path:
    from scalescope.environments.build import _key

    return cache / _key(environment)
