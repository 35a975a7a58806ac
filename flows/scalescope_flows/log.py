"""Logging of a run: our errors take one line, and no log is printed while a progress bar is drawn."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging import get_logger
from prefect.logging.handlers import PrefectConsoleHandler

from scalescope.errors import ScalescopeError

LOGGERS = "prefect.flow_runs", "prefect.task_runs"


def shorten() -> None:
    """Drop Prefect's log records of errors that flows and steps report themselves; may be called repeatedly."""
    for name in LOGGERS:
        logger = get_logger(name)
        if _said not in logger.filters:
            logger.addFilter(_said)


@contextmanager
def silent() -> Iterator[None]:
    """Keep Prefect's log off the console inside the block; its server still gets the log."""
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, PrefectConsoleHandler)]
    for handler in handlers:
        handler.addFilter(_is_others)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_others)


def _is_others(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != "prefect"


def _said(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ScalescopeError) and record.levelno > logging.DEBUG:
        return False
    return not (record.levelno == logging.ERROR and record.getMessage().startswith("Task run failed with state"))
