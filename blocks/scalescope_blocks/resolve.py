"""Saved blocks by name, as the library takes them."""

from __future__ import annotations

import logging
from typing import TypeVar

from prefect.blocks.core import Block

from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec
from scalescope_blocks.clusters import ClusterBlock
from scalescope_blocks.store import ResultStore

B = TypeVar("B", bound=Block)

_LOG = logging.getLogger("scalescope.blocks")


def cluster(reference: str) -> ClusterSpec:
    """The specification that a saved block (`simulated-cluster/prod`) builds.

    Raises:
        InvalidField: There is no such block, or it is of another type.
    """
    block = _load("cluster", reference, ClusterBlock)
    block.provide()
    return block.spec()


def store(reference: str) -> tuple[str, str]:
    """Database address and address of the records of a saved block (`result-store/team`).

    Raises:
        InvalidField: There is no such block, or it is of another type.
    """
    block = _load("store", reference, ResultStore)
    if block.exposed:
        name = reference.partition("/")[2]
        _LOG.warning(
            "%s is saved with its password in `url`, where others may read it in Prefect's UI. Save it again: "
            "ResultStore.load(%r).save(%r, overwrite=True)",
            reference,
            name,
            name,
        )
    return block.address, block.records


def _load(field: str, reference: str, kind: type[B]) -> B:
    try:
        block = Block.load(reference)
    except ValueError as error:
        raise InvalidField(
            field,
            reference,
            "TYPE/NAME of a saved block",
            next_step="`prefect block ls` lists them; `prefect block register -m scalescope_blocks` adds types",
        ) from error
    if not isinstance(block, kind):
        raise InvalidField(field, reference, f"a block for a {field}; this is a {type(block).__name__}")
    return block
