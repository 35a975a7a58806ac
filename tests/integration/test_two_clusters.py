"""A script with two clusters: neither cluster is blamed for time that the other took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster

from scalescope.capture.client_thread import ClientWatch
from scalescope.own_code.block import Block
from scalescope.own_code.diagnosis import Diagnosis

OF_THE_CLIENT = {"client-waits", "client-busy"}


@pytest.fixture
def clients() -> Iterator[tuple[Client, Client]]:
    local: dict[str, Any] = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with (
        LocalCluster(threads_per_worker=4, **local) as one,
        LocalCluster(threads_per_worker=2, **local) as other,
        Client(one) as reads,
        Client(other) as computes,
    ):
        yield reads, computes


def nap(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def work(reads: Client, computes: Client) -> None:
    """1 s on the first cluster, then 2.4 s on the second, two tasks at a time."""
    numbers = reads.gather(reads.map(nap, range(40), seconds=0.1))
    for number in numbers[:12]:
        computes.gather([computes.submit(nap, number, seconds=0.2, pure=False) for _ in range(2)])


def judged(folder: Path, clients: tuple[Client, Client], *, told_apart: bool) -> list[Diagnosis]:
    blocks = []
    for number, client in enumerate(clients):
        address = client.scheduler.address if told_apart else ""
        watch = ClientWatch(SimpleNamespace(__code__=work.__code__), address=address)  # type: ignore[arg-type]
        (folder / str(number)).mkdir()
        blocks.append(Block(client, folder / str(number), "work", "script", watch=watch))
        blocks[-1].begin()
    work(*clients)
    for block in blocks:
        block.end()
    found = [Diagnosis() for _ in blocks]
    for diagnosis, block in zip(found, blocks, strict=True):
        diagnosis.judge(block.folder)
    return found


def codes(diagnosis: Diagnosis) -> set[str]:
    return {finding.code for finding in diagnosis.findings}


def test_neither_cluster_is_blamed_for_waiting_on_the_other(tmp_path: Path, clients: tuple[Client, Client]) -> None:
    found = judged(tmp_path, clients, told_apart=True)
    for each in found:
        assert not codes(each) & OF_THE_CLIENT
    first, second = (each.metrics.worker_time_s for each in found if each.metrics)
    assert first["other_cluster"] > 4 * 2.0
    assert second["other_cluster"] > 2 * 0.9


def test_the_client_of_the_first_cluster_is_blamed_if_calls_to_two_clusters_cannot_be_told_apart(
    tmp_path: Path, clients: tuple[Client, Client]
) -> None:
    assert codes(judged(tmp_path, clients, told_apart=False)[0]) & OF_THE_CLIENT
