"""The log of a run's page: an error of ours is one line there."""

from __future__ import annotations

import logging

from prefect.logging import get_logger

from scalescope.errors import ScalescopeError

LOGGERS = "prefect.flow_runs", "prefect.task_runs"


def shorten() -> None:
    """Leave out what Prefect writes of errors that flow and step say themselves; may be called again."""
    for name in LOGGERS:
        logger = get_logger(name)
        if _said not in logger.filters:
            logger.addFilter(_said)


def _said(record: logging.LogRecord) -> bool:
    """Whether a record says something that is not said already."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ScalescopeError) and record.levelno > logging.DEBUG:
        return False
    return not (record.levelno == logging.ERROR and record.getMessage().startswith("Task run failed with state"))
