"""Workloads of xarray and Zarr, on a field (time, y, x) with one sample a day for some years."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import Directory, check_close, folder_of_run, fresh, require
from scalescope.workloads.arrays import ramp, square
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

EXTRA = "suite"
DAYS = 365  # days per block; because of leap years, blocks do not begin on 1 January
Years = Annotated[int, Parameter("Blocks of 365 days.", minimum=1)]
Side = Annotated[int, Parameter("Rows, and columns, of the field.", minimum=2)]

made = partial(workload, packages=("dask", "flox", "numpy", "xarray"), extra=EXTRA)


@made("xarray-climatology", stresses="groups that span all blocks")
def xarray_climatology(client: Client, *, items: Years = 10, side: Side = 64) -> dict[str, Any]:
    """Mean of each day of the year at each place, with xarray."""
    field, series = years(items, side)
    means = field.groupby("time.dayofyear").mean("time").mean(("y", "x"))
    expected = series.groupby(series.index.dayofyear).mean()
    check_close(client.gather(client.compute(means)), expected)
    return {"days": items * DAYS}


@made("xarray-anomaly", stresses="a reduction that all blocks wait for, and memory")
def xarray_anomaly(client: Client, *, items: Years = 10, side: Side = 64) -> dict[str, Any]:
    """Mean square of the difference from the mean of the day of the year, with xarray."""
    field, series = years(items, side)
    days = field.groupby("time.dayofyear")
    squares = ((days - days.mean("time")) ** 2).mean()
    expected = series - series.groupby(series.index.dayofyear).transform("mean")
    check_close(client.gather(client.compute(squares)), (expected**2).mean())
    return {"days": items * DAYS}


@made("xarray-resample", stresses="groups that cross the edges of blocks")
def xarray_resample(client: Client, *, items: Years = 10, side: Side = 64) -> dict[str, Any]:
    """Monthly means of squares of 2 x 2 places, with xarray."""
    field, series = years(items, side)
    months = field.coarsen(y=2, x=2, boundary="trim").mean().resample(time="MS").mean()
    trimmed = side % 2  # 1 if the last row and column are left out, which lowers all means by 1
    means = client.gather(client.compute(months.mean(("y", "x")))) + trimmed
    check_close(means, series.resample("MS").mean())
    return {"days": items * DAYS}


def years(items: int, side: int) -> tuple[Any, Any]:
    """A field of `items` blocks of days, and the mean of each day as a pandas series."""
    xr, da, np, pd = (require(each, EXTRA) for each in ("xarray", "dask.array", "numpy", "pandas"))
    require("flox", EXTRA)
    times = pd.date_range("2001-01-01", periods=items * DAYS)
    numbers = da.map_blocks(
        days, chunks=((DAYS,) * items, (side,), (side,)), dtype=float, meta=np.empty((0, 0, 0)), token_of_run=fresh()
    )
    series = pd.Series(_of_day(np.arange(len(times))) + (side - 1), index=times)
    return xr.DataArray(numbers, dims=("time", "y", "x"), coords={"time": times}), series


def days(*, token_of_run: str, block_info: dict[Any, Any]) -> Any:
    """A block of the field. `token_of_run` keeps task keys apart from other runs."""
    import numpy as np

    day, row, column = (np.arange(*edges, dtype=float) for edges in block_info[None]["array-location"])
    return _of_day(day)[:, np.newaxis, np.newaxis] + row[:, np.newaxis] + column


def _of_day(number: Any) -> Any:
    return number * 7 % 1009


@made("zarr-roundtrip", stresses="compression, and many small files", packages=("dask", "numpy", "zarr"))
def zarr_roundtrip(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks along each side of the array.", minimum=1)] = 6,
    chunk: Annotated[int, Parameter("Rows, and columns, of a block of 8-byte numbers.", minimum=2)] = 256,
    directory: Directory = None,
) -> dict[str, Any]:
    """Write a dask array to Zarr, and read it in other blocks."""
    side = items * chunk
    da = require("dask.array", EXTRA)
    require("zarr", EXTRA)
    with client.as_current(), folder_of_run(directory) as folder:
        square(ramp, items, chunk).to_zarr(str(folder / "array.zarr"))
        read = da.from_zarr(str(folder / "array.zarr"), chunks=(chunk, side))
        sums = client.gather(client.compute(read.sum(axis=0)))
    check_close(sums, [3 * side * (side - 1) / 2 + side * column for column in range(side)])
    return {"rows": side}
