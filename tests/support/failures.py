"""The pages that list every way to fail, with what was seen on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LONGEST = 160


@dataclass
class Table:
    """The table of such a page: one line for each way to fail."""

    begin: str  # the line after which it is written
    column: str  # head of the last one
    anonymous: Callable[[str], str]  # takes out of an error what is of one run or one machine alone
    rows: list[tuple[str, str, str, float, float | None]] = field(default_factory=list)

    def add(self, done: str, error: object, seconds: float, part_s: float | None = None, category: str = "") -> None:
        print(f"\n--- {done}, after {seconds:.1f} s\n{error}")
        category = category or getattr(error, "category", "")
        self.rows.append((done, category, shortened(self.anonymous(str(error))), seconds, part_s))

    def write(self, path: Path) -> None:
        head, _, _ = path.read_text().partition(self.begin) if path.exists() else ("", "", "")
        lines = [head + self.begin, "", f"| what was done | category | the error says | seconds | {self.column} |"]
        lines.append("| --- | --- | --- | ---: | ---: |")
        for done, category, text, seconds, part_s in self.rows:
            part = "" if part_s is None else f"{part_s:.0f}"
            lines.append(f"| {done} | {category} | {text} | {seconds:.1f} | {part} |")
        path.write_text("\n".join(lines) + "\n")


def shortened(error: str) -> str:
    """The cause that an error names, or else what happened, without the words of the system that it quotes."""
    lines = error.splitlines()
    causes = [line.strip().removeprefix("cause: ") for line in lines if line.startswith("  cause: ")]
    text = (causes or lines)[0].partition(". Kubernetes says ")[0].replace("|", "\\|")
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
