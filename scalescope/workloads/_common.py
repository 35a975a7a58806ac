"""What several workloads need."""

from __future__ import annotations

import importlib
import logging
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scalescope.errors import InvalidField, UsageError, WrongAnswer
from scalescope.model import fields
from scalescope.model.fields import Scalar
from scalescope.model.workload import Parameter

PER_ITEM = "items"
"""The value of `npartitions` that means as many partitions as items."""


def require(module: str, *, workload: str, distribution: str, extra: str) -> Any:
    """Import what a workload needs.

    Raises:
        UsageError: It is not installed here.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"workload {workload!r} needs {distribution}, which cannot be imported: {error}",
            where=sys.executable,
            cause=f"{distribution} is not installed in this environment, or not completely",
            next_step=f'add {distribution} to that environment; in the present one, pip install "scalescope[{extra}]"',
        ) from error


@contextmanager
def root_logger_kept() -> Iterator[None]:
    """Hold while packages are imported that log on the root logger, as Beam does.

    The root logger would get a handler by that, for good, which prints all that distributed, Prefect and others say
    once more. What is said meanwhile goes to the handlers that there are.
    """
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def fresh() -> str:
    """An identifier of one run, to be part of task keys.

    The scheduler would otherwise hand out results of an earlier run whose futures it has not forgotten yet.
    """
    return uuid.uuid4().hex


def wrong(workload: str, what: str) -> WrongAnswer:
    """The error of a workload whose result is false."""
    return WrongAnswer(
        f"workload {workload!r} computed something false: {what}",
        cause="tasks were lost, ran twice with effect, or a library has a defect",
        next_step="run the same point again; if it repeats, run it on `local` with one worker to see which side errs",
    )


def check_same(workload: str, got: Iterable[Any], expected: Iterable[Any]) -> None:
    """Compare results, item by item.

    Raises:
        WrongAnswer: Their number or one of them differs.
    """
    got, expected = list(got), list(expected)
    if len(got) != len(expected):
        raise wrong(workload, f"{len(got)} results for {len(expected)} items")
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one != other:
            raise wrong(workload, f"result {index} is {one!r} instead of {other!r}")


@dataclass(frozen=True)
class PartitionCount(Parameter):
    """A number of partitions, `items` for one partition per item, or null for the library's own rule."""

    def check(self, value: object, *, section: str = "params") -> Scalar:
        """Return `value`, or raise `InvalidField`."""
        if value is None or value == PER_ITEM:
            return None if value is None else PER_ITEM
        where = f"{section}.{self.name}"
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidField(where, value, f"a whole number, at least 1, {PER_ITEM!r} (one each), or null")
        return fields.integer(where, value, minimum=1)


def partition_parameters(rule: str) -> tuple[Parameter, Parameter]:
    """`npartitions` and `partition_size`; `rule` says in words what happens without them."""
    return (
        PartitionCount(
            "npartitions",
            None,
            f"Partitions, or {PER_ITEM!r} for one per item; null takes {rule}.",
            "any",
            minimum=1,
            optional=True,
        ),
        Parameter(
            "partition_size",
            None,
            "Items per partition, instead of npartitions; null takes the same rule.",
            "int",
            minimum=1,
            optional=True,
        ),
    )


def partitions(items: int, npartitions: int | str | None, partition_size: int | None) -> dict[str, int]:
    """`npartitions` or `partition_size` as numbers, or neither.

    Raises:
        InvalidField: Both are given, or one is not allowed.
    """
    if npartitions is not None and partition_size is not None:
        raise InvalidField("params.partition_size", partition_size, f"null, since npartitions is {npartitions!r}")
    for parameter, value in zip(partition_parameters(""), (npartitions, partition_size), strict=True):
        parameter.check(value)
    if npartitions is not None:
        return {"npartitions": max(items, 1) if npartitions == PER_ITEM else int(npartitions)}
    return {} if partition_size is None else {"partition_size": partition_size}
