"""How a watched cluster is shown: as a picture that fits the terminal, as a line, and in a summary."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.text import Text

from scalescope.capture.live.standing_tasks import Hang
from scalescope.errors import printable
from scalescope.model.words import cut, duration, middle_cut, percent, plural, size
from scalescope.report.screen import stderr
from scalescope.run.cluster_watch import DOES, WAITS, ClusterWatch, Look

WIDTH, NAME, WORDS = 80, 9, 30  # columns: at most, of the names in front, and of what threads do
MOST, FEW = 8, 3  # groups and stuck tasks listed; groups listed when workers have computed for long without an end


@contextmanager
def shown(address: str) -> Iterator[Callable[[Look], None]]:
    """Show looks on standard error: a picture on a terminal, else one line each."""
    console = stderr()
    if not console.is_watched:
        yield _Liner()
        return
    with Live(console=console, auto_refresh=False) as live:

        def draw(look: Look) -> None:
            live.update(picture(address, look, console.width, console.height - 1), refresh=True)

        yield draw


class _Liner:
    """One line for each look, and what is stuck if that is new."""

    def __init__(self) -> None:
        self._told: object = None

    def __call__(self, look: Look) -> None:
        stands = look.standstill and look.standstill.tasks
        lines = [line(look), *(_standing(look.standstill) if stands != self._told else ())]
        self._told = stands
        print("\n".join(lines), file=sys.stderr, flush=True)


def line(look: Look) -> str:
    seen = look.seen
    waits = ", ".join(f"{number} {WAITS[reason]}" for reason, number in seen["idle"].items() if number)
    speed = "" if look.tasks_per_s is None else f", {look.tasks_per_s:,.0f} tasks/s"
    parts = [
        f"{_clock(look.time)} {seen['working']} of {seen['threads']} threads have a task{speed}",
        *([f"idle: {waits}"] if look.idle else []),
        *(f"{group.name} {group.done:,}/{group.total:,}" for group in look.groups[:2]),
        *([f"{plural(len(look.left), 'worker')} left"] if look.left else []),
        f"memory {size(seen['memory'])}",
        *([_headline(look.standstill, look.time)] if look.standstill else []),
    ]
    return _flat("; ".join(parts))


def picture(address: str, look: Look, width: int = WIDTH, height: int = 1000) -> Group:
    """A look in at most `width` columns (and `WIDTH`) and `height` rows."""
    width = min(width, WIDTH)
    seen, threads = look.seen, max(look.seen["threads"], 1)
    bar, name = max(width - NAME - 8 - WORDS, 4), max(min(width - NAME - 32, 32), 18)
    most = 0 if look.stands else FEW if look.standstill else MOST
    groups = look.groups if most else ()
    fullest, share = seen["fullest"]
    speed = "" if look.tasks_per_s is None else f"{look.tasks_per_s:,.0f} tasks/s"
    of = f" of {size(seen['limit'])}" if seen["limit"] else ""
    rows = [
        ("", f"{plural(len(seen['workers']), 'worker')}, {plural(seen['threads'], 'thread')} at {address}", "bold"),
        *(
            _bar(DOES[what], n, threads, bar, speed if what == "working" else "")
            for what, n in look.threads.items()
            if n
        ),
        ("memory", size(seen["memory"]) + of + (f"; {percent(share)} of {fullest}" if fullest else ""), ""),
        *([("left", f"{plural(len(look.left), 'worker')}: {', '.join(look.left)}", "red")] if look.left else []),
        *([("", f"{'in progress':<{name}}  {'done':>10}{'total':>10}{'ends in':>10}", "dim")] if groups else []),
    ]
    for group in groups[:most]:
        ends = "" if group.remaining_s is None else duration(group.remaining_s)
        rows.append(("", f"{middle_cut(group.name, name):<{name}}  {group.done:>10,}{group.total:>10,}{ends:>10}", ""))
    if len(groups) > most:
        rows.append(("", f"and {len(groups) - most} more", "dim"))
    lines = [Text(cut(_flat(f"{head:<{NAME}}{text}"), width), style) for head, text, style in rows]
    if look.standstill:
        lines += [Text(part, "bold red") for part in _wrapped(_headline(look.standstill, look.time), width)]
        lines += map(Text, _standing(look.standstill, width, height - len(lines)))
    return Group(*lines)


def summary(watch: ClusterWatch) -> str:
    found = watch.last
    if found is None:
        return "Nothing was seen."
    whole = sum(watch.thread_seconds.values())
    lines = [f"Watched for {duration(watch.watched_s)}: {watch.ended:,} tasks ended."]
    for reason, seconds in sorted(watch.thread_seconds.items(), key=lambda item: -item[1]):
        if seconds > 0:
            lines.append(f"  {percent(seconds / whole):>5} of the threads' time: {DOES[reason]}")
    if found.left:
        lines.append(f"Workers that left: {_flat(', '.join(found.left))}.")
    lines.append(f"Memory of all workers, at most: {size(watch.memory_peak)}.")
    if found.standstill:
        lines += [*_wrapped(_headline(found.standstill, found.time), WIDTH), *_standing(found.standstill)]
    return "\n".join(lines)


# ------------------------------------------------------------------ parts


def _headline(found: Hang, now: float) -> str:
    ago = duration(now - found.since)
    if found.computing:
        return f"No task has begun or ended for {ago}; {plural(len(found.computing), 'worker')} compute."
    return f"NOTHING MOVES: no task has begun or ended for {ago}, and no call stack changes."


def _standing(found: Hang | None, width: int = WIDTH, height: int = 1000) -> list[str]:
    """What is stuck, and what to do, in so many columns and rows; tasks without room are counted."""
    if found is None:
        return []
    hints = [part for hint in found.hints for part in _wrapped(_flat(hint), width)]
    tasks: list[str] = []
    shown, room = 0, height - len(hints) - 1
    for task in found.tasks[:MOST]:
        since = "" if task.since is None else f", since {_clock(task.since)}"
        place = f" on {task.worker}" if task.worker else ""
        said = " calls ".join(each for each in (task.where, task.call) if each)
        lines = [f"  {middle_cut(task.key, 30)}{place}{since}"]
        lines += [f"    {each}" for each in (said, task.problem) if each]
        if shown and len(tasks) + len(lines) > room:
            break
        tasks += [cut(_flat(each), width) for each in lines]
        shown += 1
    more = len(found.tasks) - shown + found.beyond
    if more > 0:
        tasks.append(f"  and {more:,} more tasks (--json has up to 200)")
    return tasks + hints


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _flat(text: str) -> str:
    """One line without terminal control characters: keys of tasks are anybody's text."""
    return " ".join(printable(text).splitlines())


def _bar(does: str, threads: int, whole: int, length: int, speed: str) -> tuple[str, str, str]:
    length = max(round(length * threads / whole), 1)
    style = "green" if does == "working" else "yellow"
    return "threads", f"{threads:>6,} {'█' * length} {does.removeprefix('idle, ')} {speed}".rstrip(), style


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
