"""Time in which the client's thread is in a call to another cluster is recorded as such, whatever the call."""

from __future__ import annotations

import inspect
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from distributed import Client, Future, LocalCluster

from scalescope.capture.called_cluster import OwnScheduler
from scalescope.capture.client_thread import ClientWatch
from scalescope.model.records import OTHER_CLUSTER

SLEEP_S = 0.25


def cluster(**given: Any) -> LocalCluster:
    return LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", **given)


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Client, Client]]:
    """Clients of two clusters; the second is the default client."""
    with cluster() as one, cluster() as other, Client(one) as mine, Client(other) as theirs:
        yield mine, theirs


def sleeping(client: Client, seconds: float = SLEEP_S) -> Future:
    return client.submit(time.sleep, seconds, pure=False)


def acquired_twice(client: Client) -> None:
    given: dict[str, Any] = {"scheduler_rpc": client.scheduler, "loop": client.loop}
    if "loop" not in inspect.signature(distributed.Lock).parameters:  # in distributed 2024
        given = {"client": client}
    lock = distributed.Lock(uuid.uuid4().hex, **given)
    lock.acquire()
    threading.Timer(SLEEP_S, lock.release).start()
    lock.acquire()
    lock.release()


CALLS: dict[str, Callable[[Client], object]] = {
    "Future.result": lambda client: sleeping(client).result(),
    "Client.gather": lambda client: client.gather([sleeping(client)]),
    "Client.get": lambda client: client.get({"x": (time.sleep, SLEEP_S)}, "x"),
    "wait": lambda client: distributed.wait([sleeping(client)]),
    "as_completed": lambda client: list(distributed.as_completed([sleeping(client)])),
    "run_on_scheduler": lambda client: client.run_on_scheduler(time.sleep, SLEEP_S),
    "run": lambda client: client.run(time.sleep, SLEEP_S),
    "Lock.acquire": acquired_twice,
}


def elsewhere(call: Callable[[Client], object], client: Client, address: str) -> tuple[float, float]:
    """Seconds of a call that count as another cluster than the one at `address`, and all seconds of the call."""

    def code() -> None:
        call(client)

    with ClientWatch(code, address=address) as watch:
        code()
    table = watch.columns(0.0)
    other = [name == OTHER_CLUSTER for name in table["what"]]
    assert all(waits for waits, is_other in zip(table["waits"], other, strict=True) if is_other)
    seconds = table["seconds"]
    return sum(s for s, is_other in zip(seconds, other, strict=True) if is_other), sum(seconds)


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("mine", [0, 1])
def test_a_call_to_the_clients_own_cluster_is_not_counted_as_another_cluster(
    clients: tuple[Client, Client], call: Callable[[Client], object], mine: int
) -> None:
    assert elsewhere(call, clients[mine], clients[mine].scheduler.address)[0] == 0


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("mine", [0, 1])
def test_a_call_to_another_cluster_is_counted_as_such(
    clients: tuple[Client, Client], call: Callable[[Client], object], mine: int
) -> None:
    spent_s, whole_s = elsewhere(call, clients[1 - mine], clients[mine].scheduler.address)
    assert whole_s >= 0.9 * SLEEP_S
    assert spent_s >= 0.7 * whole_s


def test_without_an_address_no_call_is_counted_as_another_cluster(clients: tuple[Client, Client]) -> None:
    assert elsewhere(CALLS["Future.result"], clients[1], "")[0] == 0


def test_a_second_address_of_the_clients_scheduler_is_not_another_cluster() -> None:
    with cluster(protocol="tcp") as one, Client(one, set_as_default=False) as client:
        port = client.scheduler.address.rpartition(":")[2]
        with Client(f"tcp://localhost:{port}", set_as_default=False) as second:
            assert second.scheduler.address != client.scheduler.address
            assert elsewhere(CALLS["Future.result"], second, client.scheduler.address)[0] == 0


def test_making_using_and_closing_a_third_cluster_is_counted_as_another_cluster(clients: tuple[Client, Client]) -> None:
    def made(client: Client) -> None:
        for _ in range(5):
            with cluster() as third, Client(third, set_as_default=False) as its:
                its.submit(int).result()

    spent_s, whole_s = elsewhere(made, clients[0], clients[0].scheduler.address)
    assert spent_s >= 0.7 * whole_s


def test_a_client_that_makes_its_own_cluster_is_counted_as_another_cluster(clients: tuple[Client, Client]) -> None:
    def made(client: Client) -> None:
        for _ in range(5):  # one takes as long as a few samples
            Client(n_workers=1, processes=False, dashboard_address=":0", set_as_default=False).close()

    spent_s, whole_s = elsewhere(made, clients[0], clients[0].scheduler.address)
    assert spent_s >= 0.5 * whole_s  # once it is closed, a client does not tell whose it was


def test_a_second_client_of_the_same_cluster_is_not_counted_as_another_cluster(clients: tuple[Client, Client]) -> None:
    address = clients[0].scheduler.address
    assert elsewhere(lambda client: Client(address, set_as_default=False).close(), clients[0], address)[0] == 0


def test_closing_the_clients_cluster_is_not_counted_as_another_cluster() -> None:
    with cluster() as one, Client(one, set_as_default=False) as client:
        address = client.scheduler.address

        def close(client: Client) -> None:
            client.close()
            one.close()

        assert elsewhere(close, client, address)[0] == 0


def test_code_of_the_user_is_not_counted_as_another_cluster(clients: tuple[Client, Client]) -> None:
    spent_s, whole_s = elsewhere(lambda client: time.sleep(SLEEP_S), clients[1], clients[0].scheduler.address)
    assert spent_s == 0
    assert whole_s >= SLEEP_S


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (object.__new__(LocalCluster), True),  # `__init__` has not begun
        (object.__new__(Client), None),
        (object.__new__(Future), None),
        (object.__new__(distributed.as_completed), None),
        (SimpleNamespace(client=1, _scheduler=None), None),
        (None, None),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_object_whose_init_has_not_run_raises_no_error(owner: Any, expected: bool | None) -> None:
    def method(self: Any) -> Any:
        return sys._getframe()

    frame = SimpleNamespace(
        f_globals={"__name__": "distributed.client"}, f_locals={"self": owner}, f_code=method.__code__
    )
    assert OwnScheduler("tcp://10.0.0.1:8786").is_another(frame) is expected  # type: ignore[arg-type]
