"""Flame charts of the threads of tasks, one per task prefix, as plain HTML without a script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalescope.analysis.inside_tasks import InsidePrefix, Stack, is_users
from scalescope.diagnosis.evidence.inside_tasks import inside
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import BUSY_PARTS
from scalescope.model.words import percent, plural, seconds
from scalescope.report import worker_time
from scalescope.report.table import ReportTable

CHARTS, ROWS = 6, 20  # most prefixes with a chart, and most prefixes in the table; those with most busy time
NARROWEST = 0.01  # smallest share of the samples for which a frame is drawn
DEEPEST = 40  # most rows (frames) of a chart


@dataclass(frozen=True)
class Bar:
    """A bar for one frame; its width is the frame's share of the samples."""

    text: str
    kind: str  # `own`: the user's code; `library`; `call`: a call out of Python
    row: int  # number of the row, from the outermost frame on
    left: float  # left end in percent, from 0 to 100
    width: float
    share: str


@dataclass(frozen=True)
class Flame:
    """The chart of one task prefix."""

    prefix: str
    text: str
    bars: tuple[Bar, ...]
    rows: int


@dataclass(frozen=True)
class Inside:
    """What the page shows about time inside tasks."""

    text: str
    table: ReportTable | None = None
    flames: tuple[Flame, ...] = ()


def draw(seen: Observation) -> Inside:
    found = sorted(inside(seen).items(), key=lambda item: -item[1].busy_s)
    why = (seen.trial.facts.get("capture") or {}).get("unprofiled") or "the workers reported nothing"
    if not found:
        return Inside(f"Not known: {why}.")
    total = {part: sum(each.seconds[part] for _, each in found) for part in BUSY_PARTS}
    flames = tuple(_flame(prefix, each) for prefix, each in found[:CHARTS] if each.stacks)
    heads = ("tasks", "mostly in", *(part.title for part in BUSY_PARTS.values()))
    cells = [(prefix, _mostly(each), *(seconds(each.seconds[part]) for part in BUSY_PARTS)) for prefix, each in found]
    rest = f"Task prefixes that are left out: {len(cells) - ROWS:,}." if len(cells) > ROWS else ""
    table = ReportTable.of("Busy thread-seconds of tasks, by what their threads did", heads, cells[:ROWS], 2, rest)
    absent = "" if flames else f" The code they ran is unknown: {why}."
    return Inside(f"Busy threads: {worker_time.busy_parts(total)}.{absent}", table, flames)


def _mostly(each: InsidePrefix) -> str:
    where, what, share = each.mostly
    return f"{' at '.join(filter(None, (what, where)))} ({percent(share)})" if share else ""


def _flame(prefix: str, each: InsidePrefix) -> Flame:
    bars = tuple(_bars(each.stacks, each.samples, 0, 0))
    told = sum(stack.samples for stack in each.stacks)
    rest = f"; {percent(1 - told / each.samples)} of the samples have no stack" if told < each.samples else ""
    return Flame(prefix, f"{plural(each.samples, 'sample')}{rest}", bars, max((bar.row for bar in bars), default=0) + 1)


def _bars(stacks: Sequence[Stack], whole: int, row: int, begin: int) -> Iterator[Bar]:
    # All `stacks` have the same frames in the rows before `row`.
    below: dict[str, list[Stack]] = {}
    for stack in stacks:
        if len(stack.frames) > row:
            below.setdefault(stack.frames[row], []).append(stack)
    for frame, own in sorted(below.items()):
        samples = sum(stack.samples for stack in own)
        if samples >= NARROWEST * whole and row < DEEPEST:
            kind = "call" if frame.endswith("()") else "own" if is_users(frame) else "library"
            share = percent(samples / whole)
            yield Bar(frame, kind, row, round(100 * begin / whole, 3), round(100 * samples / whole, 3), share)
            yield from _bars(own, whole, row + 1, begin)
        begin += samples
