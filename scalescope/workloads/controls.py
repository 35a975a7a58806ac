"""Controls: workloads whose code uses no package. If a control takes longer in a later night, the machine is slower.

A new version of Python could also change a control, so nights compare controls only between equal versions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_same
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

Tasks = Annotated[int, Parameter("Tasks.", minimum=0)]
made = partial(workload, packages=("dask",))


@made("control-cpu", stresses="the CPU alone, in pure Python: a control of the nights")
def control_cpu(
    client: Client,
    *,
    items: Tasks = 100,
    steps: Annotated[int, Parameter("Additions of each task.", minimum=1)] = 1_000_000,
) -> dict[str, Any]:
    """Additions in pure Python."""
    sums = client.gather(client.map(add, range(items), steps=steps, pure=False))
    check_same(sums, [item + steps * (steps - 1) // 2 for item in range(items)])
    return {"items": items}


def add(item: int, steps: int) -> int:
    for number in range(steps):
        item += number
    return item


@made("control-memory", stresses="memory bandwidth alone: a control of the nights")
def control_memory(
    client: Client,
    *,
    items: Tasks = 100,
    mib: Annotated[int, Parameter("Size of the copied block, in MiB.", minimum=1)] = 64,
    copies: Annotated[int, Parameter("Copies that each task makes.", minimum=1)] = 10,
) -> dict[str, Any]:
    """Copies of a block that is larger than the caches of a CPU."""
    ends = client.gather(client.map(copy, range(items), mib=mib, copies=copies, pure=False))
    check_same(ends, [item % 256 for item in range(items)])
    return {"items": items}


def copy(item: int, mib: int, copies: int) -> int:
    source = bytes([item % 256]) * (mib * 2**20)
    target = memoryview(bytearray(len(source)))
    for _ in range(copies):
        target[:] = source
    return target[-1]
