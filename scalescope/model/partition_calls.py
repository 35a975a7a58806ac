"""Calls in a workload's code that decide partitions: how many items became how many partitions, at which line."""

from __future__ import annotations

from dataclasses import dataclass

from scalescope.model.mapping import Mapped

BAG, CREATE, FROM_PANDAS = "dask.bag.from_sequence", "apache_beam.Create", "dask.dataframe.from_pandas"
READ_TEXT, READ_CSV = "dask.bag.read_text", "dask.dataframe.read_csv"
DIVIDED = (BAG, CREATE, FROM_PANDAS)  # calls that take a number of partitions
# Dask configuration key: fewest partitions that each call of `DIVIDED` makes, if there are as many items
NPARTITIONS = "scalescope.npartitions"


@dataclass(frozen=True)
class PartitionCall(Mapped):
    """One call that decides partitions."""

    call: str  # function of the library, such as `dask.bag.from_sequence`
    where: str  # line of the user's code, such as `my_job.py:14 in run`; may be empty
    items: int | None  # items divided, such as rows; None if unknown before the work runs
    partitions: int
    shape: tuple[int, ...] = ()  # elements of an array along each axis; empty if it is no array, or unknown
    chunk: tuple[int, ...] = ()  # elements of the array's largest chunk along each axis
    nbytes: int | None = None  # bytes of the text files that the call reads; 0 if it cannot cut them, None if unknown
