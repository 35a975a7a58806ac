"""How a cluster that is watched is shown: a picture of at most 80 columns, a line, and what was seen in all."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.text import Text

from scalescope.analysis.summary import percent, plural
from scalescope.cli.output import stderr
from scalescope.diagnosis.words import cut, duration, middle_cut, size
from scalescope.run.watching import DOES, WAITS, Look, Standstill, Watch

WIDTH, BAR = 80, 34
MOST = 8
"""Groups, and tasks that do not move, that are listed."""


@contextmanager
def shown(address: str) -> Iterator[Callable[[Look], None]]:
    """Show looks on standard error: a picture on a terminal, else a line each."""
    console = stderr()
    if not console.is_terminal:
        yield _Liner()
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda look: live.update(picture(address, look), refresh=True)


class _Liner:
    """A line for each look, and what stands still where that is news."""

    def __init__(self) -> None:
        self._told: object = None

    def __call__(self, look: Look) -> None:
        stands = look.standstill and look.standstill.tasks
        lines = [line(look), *(_standing(look.standstill, look.time)[1:] if stands != self._told else ())]
        self._told = stands
        print("\n".join(lines), file=sys.stderr, flush=True)


def line(look: Look) -> str:
    """A look on one line."""
    seen = look.seen
    speed = "" if look.tasks_per_s is None else f", {look.tasks_per_s:,.0f} tasks/s"
    parts = [
        f"{_clock(look.time)} {seen['working']} of {seen['threads']} threads have a task{speed}",
        *([f"idle: {_waits(look)}"] if look.idle else []),
        *(f"{group.name} {group.done:,}/{group.total:,}" for group in look.groups[:2]),
        *([f"{plural(len(look.left), 'worker')} left"] if look.left else []),
        f"memory {size(seen['memory'])}",
        *_standing(look.standstill, look.time)[:1],
    ]
    return _plain("; ".join(parts))


def picture(address: str, look: Look) -> Group:
    """A look in at most `WIDTH` columns."""
    seen, threads = look.seen, max(look.seen["threads"], 1)
    fullest, share = seen["fullest"]
    speed = "" if look.tasks_per_s is None else f"{look.tasks_per_s:,.0f} tasks/s"
    of = f" of {size(seen['limit'])}" if seen["limit"] else ""
    rows = [
        ("", f"{address}: {plural(len(seen['workers']), 'worker')}, {plural(seen['threads'], 'thread')}", "bold"),
        *(_bar(DOES[what], n, threads, speed if what == "working" else "") for what, n in look.threads.items() if n),
        ("memory", size(seen["memory"]) + of + (f"; {percent(share)} of {fullest}" if fullest else ""), ""),
        *([("left", ", ".join(look.left), "red")] if look.left else []),
        *([("", f"{'tasks in progress':<34}{'done':>10}{'total':>10}{'ends in':>10}", "dim")] if look.groups else []),
    ]
    for group in look.groups[:MOST]:
        ends = "" if group.remaining_s is None else duration(group.remaining_s)
        rows.append(("", f"{middle_cut(group.name, 32):<34}{group.done:>10,}{group.total:>10,}{ends:>10}", ""))
    if len(look.groups) > MOST:
        rows.append(("", f"and {len(look.groups) - MOST} more groups", "dim"))
    lines = [Text(cut(_plain(f"{name:<9}{text}"), WIDTH), style) for name, text, style in rows]
    lines += [Text(each, "bold red" if n == 0 else "") for n, each in enumerate(_standing(look.standstill, look.time))]
    return Group(*lines)


def summary(watch: Watch) -> str:
    """What was seen, for the end."""
    found = watch.last
    if found is None:
        return "Nothing was seen."
    whole = sum(watch.thread_seconds.values())
    lines = [f"Watched for {duration(watch.watched_s)}: {watch.ended:,} tasks ended."]
    for reason, seconds in sorted(watch.thread_seconds.items(), key=lambda item: -item[1]):
        if seconds > 0:
            lines.append(f"  {percent(seconds / whole):>5} of the threads' time: {DOES[reason]}")
    if found.left:
        lines.append(f"Workers that left: {', '.join(found.left)}.")
    lines.append(f"Memory of all workers, at most: {size(watch.memory_peak)}.")
    return "\n".join(lines + _standing(found.standstill, found.time))


# ------------------------------------------------------------------ parts


def _standing(found: Standstill | None, now: float) -> list[str]:
    if found is None:
        return []
    ago = duration(now - found.since)
    head = f"NOTHING MOVES: no task has begun or ended for {ago}, and no call stack changes."
    if found.computing:
        head = f"No task has begun or ended for {ago}; {plural(len(found.computing), 'worker')} compute."
    lines = [head]
    for task in found.tasks[:MOST]:
        since = "" if task.since is None else f", since {_clock(task.since)}"
        place = f" on {task.worker}" if task.worker else ""
        lines.append(cut(f"  {middle_cut(task.key, 30)}{place}{since}", WIDTH))
        said = " calls ".join(each for each in (task.where, task.call) if each)
        lines += [cut(f"    {each}", WIDTH) for each in (said, task.problem) if each]
    more = len(found.tasks) - MOST + found.beyond
    if more > 0:
        lines.append(f"  and {more:,} more tasks (--json has up to 200)")
    lines += [part for hint in found.hints for part in textwrap.wrap(hint, WIDTH, break_on_hyphens=False)]
    return [_plain(each) for each in lines]


def _plain(text: str) -> str:
    """Without what a terminal takes for a command: keys of tasks are anybody's text."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _bar(does: str, threads: int, whole: int, speed: str) -> tuple[str, str, str]:
    length = max(round(BAR * threads / whole), 1)
    style = "green" if does == "working" else "yellow"
    return "threads", f"{threads:>6,} {'█' * length} {does.removeprefix('idle, ')} {speed}", style


def _waits(look: Look) -> str:
    return ", ".join(f"{number} {WAITS[reason]}" for reason, number in look.seen["idle"].items() if number)


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
