"""The pages that list every way to fail, with what was seen on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Table:
    """What such a page shows.

    Attributes:
        begin: The line after which it is written; what stands above stays.
        column: Head of the last column.
        anonymous: Takes out of an error what is of one run or one machine alone.
    """

    begin: str
    column: str
    anonymous: Callable[[str], str]
    rows: list[tuple[str, str, float, float | None]] = field(default_factory=list)

    def add(self, cause: str, error: object, seconds: float, part_s: float | None = None) -> None:
        """Take note of an error, how soon it came, and what stands in the last column."""
        print(f"\n--- {cause}, after {seconds:.1f} s\n{error}")
        self.rows.append((cause, self.anonymous(str(error)), seconds, part_s))

    def write(self, path: Path) -> None:
        """Write the page anew below its first part."""
        head, _, _ = path.read_text().partition(self.begin) if path.exists() else ("", "", "")
        lines = [head + self.begin, "", f"| cause | the first line of the error | seconds | {self.column} |"]
        lines.append("| --- | --- | ---: | ---: |")
        for cause, text, seconds, part_s in self.rows:
            first = text.splitlines()[0].replace("|", "\\|")
            part = "" if part_s is None else f"{part_s:.0f}"
            lines.append(f"| {cause} | {first} | {seconds:.1f} | {part} |")
        for cause, text, _, _ in self.rows:
            lines += ["", f"### {cause[0].upper()}{cause[1:]}", "", "```text", text, "```"]
        path.write_text("\n".join(lines) + "\n")
