"""Lines for a terminal about a cluster whose tasks neither begin nor end."""

from __future__ import annotations

import textwrap
import time

from scalescope.capture.live.standing_tasks import Hang
from scalescope.errors import printable
from scalescope.model.words import cut, duration, middle_cut, plural

WIDTH = 80  # most columns of a line
MOST = 8  # most stuck tasks listed


def told(found: Hang, now: float) -> str:
    return "\n".join([headline(found, now), *standing(found)])


def headline(found: Hang, now: float) -> str:
    ago = duration(now - found.since)
    if found.computing:
        return f"No task has begun or ended for {ago}; still computing: {plural(len(found.computing), 'worker')}."
    return f"NOTHING MOVES: no task has begun or ended for {ago}, and no call stack changes."


def standing(found: Hang | None, width: int = WIDTH, height: int = 1000) -> list[str]:
    """Stuck tasks and advice, in `width` columns and `height` rows; tasks that do not fit are counted."""
    if found is None:
        return []
    hints = [part for hint in found.hints for part in wrapped(flat(hint), width)]
    tasks: list[str] = []
    shown, room = 0, height - len(hints) - 1
    for task in found.tasks[:MOST]:
        since = "" if task.since is None else f", since {clock(task.since)}"
        place = f" on {task.worker}" if task.worker else ""
        said = " calls ".join(each for each in (task.where, task.call) if each)
        lines = [f"  {middle_cut(task.key, 30)}{place}{since}"]
        lines += [f"    {each}" for each in (said, task.problem) if each]
        if shown and len(tasks) + len(lines) > room:
            break
        tasks += [cut(flat(each), width) for each in lines]
        shown += 1
    more = len(found.tasks) - shown + found.beyond
    if more > 0:
        tasks.append(f"  and {more:,} more")
    return tasks + hints


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def flat(text: str) -> str:
    """The text as one line without terminal control characters, since keys of tasks may be any text."""
    return " ".join(printable(text).splitlines())


def clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
