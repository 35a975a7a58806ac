"""The console that writes all reports and messages to the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from scalescope.errors import printable


class Screen(Console):
    """A console that lets only rich's own control characters through: untrusted text cannot control the terminal."""

    @property
    def is_watched(self) -> bool:
        """Whether text that was written can be redrawn: in a terminal or notebook, not in a file or pipe."""
        return self.is_jupyter or (self.is_interactive and self.file.isatty())

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def stderr() -> Screen:
    """A console on standard error; plain text if that is not a terminal."""
    file = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - None where it was closed before Python began
    return Screen(file=file, highlight=False, soft_wrap=True)
