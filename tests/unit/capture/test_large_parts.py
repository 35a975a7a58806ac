"""The parts that make a graph large are found on the client before the graph is sent."""

from __future__ import annotations

import functools
from typing import Any

import dask
import numpy as np
import pytest
from dask import delayed
from dask.delayed import Delayed
from distributed import Client

from scalescope.capture.large_parts import NOTED_BYTES, VISITS, _Search
from scalescope.capture.partition_calls import noted as noting
from scalescope.model.large_part import LargePart

BYTES = 4 * NOTED_BYTES


def table() -> Any:
    return np.random.default_rng(0).random(BYTES // 8)


def shape(i: int, values: Any) -> tuple[int, ...]:
    return tuple(np.shape(values))


class Model:
    def __init__(self) -> None:
        self.weights = table()

    def score(self, i: int) -> int:
        return len(self.weights) + i


@pytest.fixture
def noted(client: Client) -> Any:
    """Runs a function that sends a graph, and returns the largest part found in it."""

    def called(send: Any) -> LargePart | None:
        with noting(()) as notes:
            client.gather(send(client))
        return notes.large[0] if notes.large else None

    return called


def test_small_graphs_are_not_searched_for_large_parts(noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Search, "graph", None)
    assert noted(lambda client: client.map(shape, range(100), values=3)) is None


@pytest.mark.parametrize("of_text", [False, True])
@pytest.mark.parametrize(("same", "again"), [(True, [False, True]), (False, [False, False])])
def test_a_large_object_that_is_sent_twice_is_marked_as_sent_again(
    client: Client, same: bool, again: list[bool], of_text: bool
) -> None:
    values = [str(i) * BYTES if of_text else table() for i in range(2)]
    with noting(()) as notes:
        client.gather([client.submit(shape, i, values[0 if same else i], pure=False) for i in range(2)])
    assert sorted(part.again for part in notes.large) == again


def test_a_large_argument_of_each_call_is_found(noted: Any) -> None:
    found = noted(lambda client: client.map(shape, range(10), [table() for _ in range(10)], key="shapes"))
    assert (found.layer, found.what, found.calls) == ("shapes", "argument `values`", 10)
    assert found.nbytes == 10 * BYTES
    assert "numpy.ndarray (500000)" in found.sentence("40 MB")


def test_a_large_argument_that_all_calls_share_is_counted_once(noted: Any) -> None:
    found = noted(lambda client: client.map(shape, range(10), [table()] * 10))
    assert (found.what, found.nbytes, found.calls) == ("argument `values`", BYTES, 10)


def test_a_large_object_of_a_bound_method_is_found(noted: Any) -> None:
    found = noted(lambda client: client.map(Model().score, range(10)))
    assert (found.layer, found.what) == ("score", "`self` of `Model.score`")


def test_a_large_variable_of_a_closure_is_found(noted: Any) -> None:
    coordinates = table()
    found = noted(lambda client: client.submit(lambda i: coordinates[i], 1))
    assert "`coordinates`" in found.what


def test_a_large_argument_of_a_partial_function_is_found(noted: Any) -> None:
    found = noted(lambda client: client.submit(functools.partial(shape, values=table()), 1))
    assert found.what == "argument `values`"


def test_a_large_argument_of_delayed_calls_is_found(noted: Any) -> None:
    found = noted(lambda client: client.compute([delayed(shape)(i, table()) for i in range(3)]))
    assert found.layer == "shape"
    assert found.nbytes == pytest.approx(3 * BYTES)


def test_the_tasks_of_a_graph_are_counted_whether_they_are_needed_or_not(noted: Any) -> None:
    whole = delayed(list)([delayed(shape)(i, str(i) * 500) for i in range(2_000)])
    one = Delayed(next(key for key in whole.dask if str(key).startswith("shape")), whole.dask)
    found = noted(lambda client: [client.compute(one)])
    assert found.tasks == 2_001


def test_a_large_array_is_found_as_the_source_of_blocks_and_as_an_argument(noted: Any) -> None:
    array = pytest.importorskip("dask.array")
    found = noted(lambda client: client.compute(array.from_array(table(), chunks=100_000).sum()))
    assert found.nbytes >= BYTES
    found = noted(
        lambda client: client.compute(array.ones(1000, chunks=10).map_blocks(shape_of, other=table(), dtype=float))
    )
    assert "shape_of" in found.layer or "shape-of" in found.layer
    assert found.nbytes >= BYTES


def shape_of(block: Any, other: Any) -> Any:
    return block


def test_a_large_dictionary_is_found_and_described_with_its_length(noted: Any) -> None:
    words = {str(i): float(i) for i in range(200_000)}
    found = noted(lambda client: client.submit(shape, 1, words))
    assert (found.what, found.kind) == ("argument `values`", "builtins.dict of 200,000")


class Broken:
    @property
    def nbytes(self) -> int:
        raise ValueError("not now")


def test_an_object_that_raises_when_inspected_is_still_sent(noted: Any) -> None:
    assert noted(lambda client: client.submit(len, [Broken(), table()])) is None


def test_the_search_for_large_parts_visits_a_limited_number_of_objects() -> None:
    search, nested = _Search(), [[object() for _ in range(900)] for _ in range(900)]
    search.graph({("x", i): (shape, nested, nested) for i in range(10_000)})
    assert search._visits <= VISITS + 10_000 * 4


def test_the_client_is_restored_after_the_search_for_large_parts(client: Client) -> None:
    before = Client._graph_to_futures.__code__, Client._send_to_scheduler.__code__
    with noting(()):
        assert Client._graph_to_futures.__code__ is not before[0]
    assert (Client._graph_to_futures.__code__, Client._send_to_scheduler.__code__) == before
    with dask.config.set({"a": 1}):
        assert client.submit(int, 3).result() == 3
