"""Keeps messages of `distributed` about the recorder and its client out of the log of the user's program.

This source text is sent to workers: it imports only the standard library.
"""

from __future__ import annotations

import logging
import re

_LOGGERS = ("distributed.scheduler", "distributed.worker", "distributed.nanny", "distributed.core")
_OF_OURS = re.compile(
    r"(Starting|Removing|Registering) (Worker|Nanny) plugin scalescope-|.*Client-scalescope-"
    r"|Run out-of-band function '(this_kernel|snapshot|standing_tasks|task_states|memory_samples)'"
)
_CONNECTED, _STREAM = "Receive client connection: Client-scalescope-", "Starting established connection to "


class _Others(logging.Filter):
    """Drops log records about our plugins and clients; a process has one filter for all loggers."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = False  # True if the next connection belongs to our client
        self.addresses: set[str] = set()  # addresses of our clients' connections

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.INFO:
            return True
        text = record.getMessage()
        if text.startswith(_CONNECTED):
            self.expected = True
        elif self.expected and text.startswith(_STREAM):
            self.expected = False
            self.addresses.add(text.removeprefix(_STREAM))
            return False
        return not (_OF_OURS.match(text) or any(address in text for address in self.addresses))


def hide_own_records() -> None:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    known = [each for logger in loggers for each in logger.filters if type(each).__name__ == _Others.__name__]
    others = known[0] if known else _Others()
    for logger in loggers:
        logger.addFilter(others)


if not __name__.startswith("scalescope."):  # sent to a worker, with our first plugin
    hide_own_records()
