"""A cluster and a workload that say a secret wherever they can."""

from __future__ import annotations

import logging
import sys
from typing import Any

from distributed import Client, LocalCluster, get_worker


class Leaky(LocalCluster):  # type: ignore[misc]
    """Called with a secret within another argument."""

    def __init__(self, connection: dict[str, str], refuse: bool = False, **given: Any) -> None:
        dsn = connection["dsn"]
        print("connects to", dsn, file=sys.stderr)
        logging.getLogger("leaky").error("connects to %s", dsn)
        if refuse:
            raise ConnectionError(f"no answer from {dsn}, {dsn!r}", {"dsn": dsn})
        super().__init__(name=f"of {dsn}", **given)
        self.scheduler.log_event("leaky", {"dsn": dsn})
        self.scheduler.dsn = dsn


def task(dsn: str) -> str:
    logging.getLogger("distributed.worker").error("task with %s", dsn)
    get_worker().log_event("leaky", {"dsn": dsn})
    return dsn


def run(client: Client, items: int = 1, fail: bool = False) -> Any:
    """A task with a telling key; its answer is the secret, as is the error."""
    dsn = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.dsn)
    known = client.submit(task, dsn, key=f"connect-{dsn}").result()
    if fail:
        raise RuntimeError(f"cannot work with {known}") from KeyError(known)
    return {known: [known, {"of": known}]}
