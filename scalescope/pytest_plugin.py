"""The fixture `assert_scales` for tests of other projects; pytest finds it where Scalescope is installed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from scalescope.errors import UsageError


@pytest.fixture(name="assert_scales")
def fixture() -> Callable[..., None]:
    return assert_scales


def assert_scales(
    run: Callable[..., Any],
    workers: Sequence[int] = (4, 16),
    efficiency: float = 0.7,
    *,
    cluster: str | Mapping[str, Any] = "simulated",
    params: Mapping[str, Any] | None = None,
) -> None:
    """Run a workload at several sizes, and fail with the verdict if it does not scale.

    An efficiency of 0.7 from 4 to 16 workers means 2.8 times the speed. On the simulated cluster, sleeps and computing
    take virtual time, so that the result does not depend on the host.

    Args:
        run: `def run(client, *, ...)`; its result is ignored.
        workers: Numbers of workers, at least two.
        efficiency: Smallest accepted share of the ideal speed-up from the smallest to the largest number of workers.
        cluster: A kind of cluster, or a mapping with `kind` and fields.
        params: Keyword arguments of `run`.

    Raises:
        AssertionError: The workload scales worse, or a trial is not valid.
        UsageError: The function cannot be sent to another process, or `workers` has fewer than two sizes.
        InfrastructureError: No cluster could be opened.
    """
    from scalescope.model.words import plural
    from scalescope.run.sweep import run_sweep

    sizes = sorted(set(workers))
    if len(sizes) < 2:
        raise UsageError("it takes at least two sizes to see whether work scales", where=f"workers={tuple(workers)}")
    with tempfile.TemporaryDirectory(prefix="scalescope-test-") as folder:
        given = {"workload": run, "axes": {"workers": sizes}, "params": dict(params or {})}
        result = run_sweep({**given, "cluster": cluster, "store": f"{folder}/results.db"})
    seconds = {point.point.workers: point.metrics.elapsed_s for point in result.points if point.valid and point.metrics}
    first, last = sizes[0], sizes[-1]
    if first not in seconds or last not in seconds:
        pytest.fail(result.outcome[1], pytrace=False)
    speed = seconds[first] / seconds[last]
    if (reached := speed * first / last) < efficiency:
        pytest.fail(
            f"{plural(last, 'worker')} are {speed:.2f} times as fast as {first}: efficiency {reached:.2f}, expected "
            f"at least {efficiency:g}.\n{result.outcome[1]}",
            pytrace=False,
        )
