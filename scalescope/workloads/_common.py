"""Helpers of several workloads: imports on demand, sleeping maps, partitions, checks of results."""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from scalescope.errors import InvalidField, UsageError, WrongAnswer
from scalescope.model.extras import install_command
from scalescope.model.parameters import Parameter
from scalescope.model.words import shortened
from scalescope.model.workload import WorkloadParameter

PER_ITEM = "items"  # value of `npartitions` for one partition per item


def require(module: str, extra: str) -> Any:
    """Import a package of a workload; `UsageError` says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise not_installed("the workload", package, extra, f"it cannot be imported: {error}") from error


def not_installed(what: str, package: str, extra: str, cause: str) -> UsageError:
    install = install_command(extra) if extra else f"pip install {package}"
    return UsageError(
        f"{what} needs {package}, which is not installed in this environment, or not completely",
        where=sys.executable,
        cause=cause,
        next_step=f"in Scalescope's own environment: {install}; to any other environment, add {package}",
    )


@contextmanager
def root_logger_kept() -> Iterator[None]:
    """Keep the body from adding a handler to the root logger, as Beam and others do by logging while imported.

    Such a handler would print all log records of distributed, Prefect and others a second time.
    """
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


Directory = Annotated[
    str | None,
    Parameter("Folder for the files, visible to the client and every worker; null is this machine's temporary folder."),
]


@contextmanager
def folder_of_run(directory: str | None) -> Iterator[Path]:
    if directory is not None and not Path(directory).is_dir():
        raise InvalidField("params.directory", directory, "an existing folder that the client and every worker can see")
    folder = Path(tempfile.mkdtemp(prefix="scalescope-files-", dir=directory)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def fresh() -> str:
    """A new identifier to make task keys unique; otherwise the scheduler may return results of an earlier run."""
    return uuid.uuid4().hex


def wrong(what: str) -> WrongAnswer:
    return WrongAnswer(
        what,
        cause="tasks were lost or ran twice, or a library has a bug",
        next_step="run the same point again; if the error repeats, run it on `local` with one worker to find the place",
    )


def check_close(got: Any, expected: Any) -> None:
    import numpy as np

    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape or not np.allclose(got, expected, rtol=1e-9, atol=1e-9):
        raise wrong(f"{shortened(str(got), 80)} instead of {shortened(str(expected), 80)}")


def check_same(got: Iterable[Any], expected: Iterable[Any]) -> None:
    got, expected = list(got), list(expected)
    if len(got) != len(expected):
        raise wrong(f"{len(got)} results for {len(expected)} items")
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one != other:
            raise wrong(f"result {index} is {one!r} instead of {other!r}")


def pass_on(value: int, seconds: float, token: str = "") -> int:
    """A task of a map: sleep, and add 1 to the item for this stage. `token` makes task keys unique to the run."""
    time.sleep(seconds)
    return value + 1


def check_stages(results: Sequence[int], *, items: int, stages: int) -> None:
    """Check that every stage (`pass_on`) added 1 to every item."""
    check_same(results, range(stages, items + stages))


PartitionSize = Annotated[
    int | None, Parameter("Items per partition, instead of npartitions; null: npartitions decides.", minimum=1)
]


def partitions(items: int, npartitions: int | str | None, partition_size: int | None) -> dict[str, int]:
    """`npartitions` or `partition_size` as a number by its name; empty if neither is given, `InvalidField` if both."""
    if npartitions is not None and partition_size is not None:
        raise InvalidField("params.partition_size", partition_size, f"null, since npartitions is {npartitions!r}")
    count = WorkloadParameter("npartitions", kind="int", minimum=1, choices=(PER_ITEM,), optional=True)
    size = WorkloadParameter("partition_size", kind="int", minimum=1, optional=True)
    count.check(npartitions)
    size.check(partition_size)
    if npartitions is not None:
        return {"npartitions": max(items, 1) if npartitions == PER_ITEM else int(npartitions)}
    return {} if partition_size is None else {"partition_size": partition_size}
