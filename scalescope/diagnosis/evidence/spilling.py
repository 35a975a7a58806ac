"""Results written to disk for lack of memory and read back, and where workers spent the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.diagnosis.evidence.task_table import threads_of_workers
from scalescope.diagnosis.observation import Observation, once

WRITE, READ = "disk-write", "disk-read"
PACKING = ("serialize", "compress")  # activities on a result before it is written
WORTH_TELLING = 100e6  # bytes moved that are worth reporting even if moving them cost nothing
UNPACKING = ("deserialize", "decompress")


@dataclass(frozen=True)
class Spilling:
    """Bytes and seconds of all workers together, over the trial."""

    written: float  # bytes
    read: float  # bytes
    tasks_s: float  # seconds of moving inputs and results of tasks whose threads waited
    watch_s: float  # seconds of event loops that write results because the process takes too much memory
    others_s: float  # seconds in event loops for results that went to other workers or came from them
    placed_s: float  # thread-seconds lost at known times: the part `spill`
    elsewhere_s: float  # upper bound of the thread-seconds lost at unknown times while tasks waited

    @property
    def lost_s(self) -> float:
        return self.placed_s + self.elsewhere_s


@once
def spilling(observation: Observation) -> Spilling:
    """Bytes and seconds of spilling; spilling costs nothing while threads compute or no task waits for a thread."""
    attempts = observation.measured
    recorded = float(attempts.disk_read.sum() + attempts.disk_write.sum())
    context, activity, unit = (observation.column("fine_metrics", name) for name in ("context", "activity", "unit"))
    value = observation.numbers("fine_metrics", "value")

    def total(units: str, contexts: tuple[str, ...], activities: tuple[str, ...]) -> float:
        rows = zip(context, activity, unit, value.tolist(), strict=True)
        return sum(
            [float(each) for of, what, by, each in rows if by == units and of in contexts and what in activities]
        )

    everywhere = ("execute", "memory-monitor", "get-data", "gather-dep")
    written, read = (total("bytes", everywhere, (what,)) for what in (WRITE, READ))
    tasks_s = total("seconds", ("execute",), (WRITE, READ, *PACKING))
    if total("bytes", ("execute",), (READ,)):
        tasks_s += total("seconds", ("execute",), UNPACKING)
    watch_s = total("seconds", ("memory-monitor",), tuple(set(activity)))
    others_s = total("seconds", ("get-data", "gather-dep"), (WRITE, READ))
    # distributed gives no time for a task's reading below 5 ms and writing below 20 ms. While a worker's event loop
    # reads or writes, none of its threads gets a task.
    threads = float(np.mean(threads_of_workers(observation)))
    elsewhere = max(tasks_s - recorded, 0.0) + threads * (watch_s + others_s)
    waited = observation.seconds("not_assigned", "transfer")
    placed_s, elsewhere_s = observation.seconds("spill"), min(elsewhere, waited)
    return Spilling(written, read, max(tasks_s, recorded), watch_s, others_s, placed_s, elsewhere_s)
