"""The terminal, as all reports and messages reach it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from scalescope.errors import printable


class Screen(Console):
    """A console that writes no control characters but rich's own: text from outside cannot command the terminal."""

    @property
    def is_watched(self) -> bool:
        """Whether it can draw anew what it has drawn: a terminal or a notebook, and no file or pipe."""
        return self.is_jupyter or (self.is_interactive and self.file.isatty())

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As rich does, with clean text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def stderr() -> Screen:
    """A console on standard error; plain text where that is no terminal."""
    return Screen(file=sys.stderr, highlight=False, soft_wrap=True)
