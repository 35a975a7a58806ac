"""What the code of a workload asked of a library: how many items became how many partitions, and at which line."""

from __future__ import annotations

from dataclasses import dataclass

from scalescope.model.mapping import Mapped

BAG, CREATE, FROM_PANDAS = "dask.bag.from_sequence", "apache_beam.Create", "dask.dataframe.from_pandas"
DIVIDED = (BAG, CREATE, FROM_PANDAS)
"""Calls that divide what they are given into as many partitions as they are told."""
NPARTITIONS = "scalescope.npartitions"
"""Dask configuration key: the least partitions that each of these calls makes, as far as there are items."""


@dataclass(frozen=True)
class PartitionCall(Mapped):
    """One call that decides partitions.

    Attributes:
        call: Of the library, such as `dask.bag.from_sequence`.
        where: Line of the user's code, such as `my_job.py:14 in run`; empty where none was found.
        items: What was divided, such as rows; None where that is not known before the work runs.
        partitions: What it became.
    """

    call: str
    where: str
    items: int | None
    partitions: int
