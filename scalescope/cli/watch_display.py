"""A watched cluster as a picture that fits the terminal, as a line, and in a summary."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from scalescope.model.words import cut, duration, middle_cut, percent, plural, size
from scalescope.own_code.cluster_watch import DOES, WAITS, ClusterWatch, Look
from scalescope.report.hang_lines import MOST, WIDTH, clock, flat, headline, standing, wrapped

NAME, WORDS = 9, 30  # characters for the names at the left, and for the words on threads
FEW = 3  # most groups listed when no task has ended for long although workers compute


def line(look: Look) -> str:
    seen = look.seen
    waits = ", ".join(f"{number} {WAITS[reason]}" for reason, number in seen["idle"].items() if number)
    speed = "" if look.tasks_per_s is None else f", {look.tasks_per_s:,.0f} tasks/s"
    parts = [
        f"{clock(look.time)} {seen['working']} of {seen['threads']} threads have a task{speed}",
        *([f"idle: {waits}"] if look.idle else []),
        *(f"{group.name} {group.done:,}/{group.total:,}" for group in look.groups[:2]),
        *([_left(look)] if look.left else []),
        f"memory {size(seen['memory'])}",
        *([headline(look.standstill, look.time)] if look.standstill else []),
    ]
    return flat("; ".join(parts))


def picture(address: str, look: Look, width: int = WIDTH, height: int = 1000) -> Group:
    """A look as text of at most `height` rows; a row has at most `width` characters, and never more than `WIDTH`."""
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
        ("memory", size(seen["memory"]) + of + (f"; the fullest {percent(share)}: {fullest}" if fullest else ""), ""),
        *([("left", f"{_left(look)}: {', '.join(look.left)}", "red")] if look.left else []),
        *([("", f"{'in progress':<{name}}  {'done':>10}{'total':>10}{'ends in':>10}", "dim")] if groups else []),
    ]
    for group in groups[:most]:
        ends = "" if group.remaining_s is None else duration(group.remaining_s)
        rows.append(("", f"{middle_cut(group.name, name):<{name}}  {group.done:>10,}{group.total:>10,}{ends:>10}", ""))
    if len(groups) > most:
        rows.append(("", f"and {len(groups) - most} more", "dim"))
    lines = [Text(cut(flat(f"{head:<{NAME}}{text}"), width), style) for head, text, style in rows]
    if look.standstill:
        lines += [Text(part, "bold red") for part in wrapped(headline(look.standstill, look.time), width)]
        lines += map(Text, standing(look.standstill, width, height - len(lines)))
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
        lines.append(f"Workers that left: {flat(', '.join(found.left))}.")
        if found.retired:
            lines.append(f"{found.retired:,} of them left by request; {plural(found.came, 'worker')} came meanwhile.")
    lines.append(f"Memory of all workers, at most: {size(watch.memory_peak)}.")
    if found.standstill:
        lines += [*wrapped(headline(found.standstill, found.time), WIDTH), *standing(found.standstill)]
    return "\n".join(lines)


# ------------------------------------------------------------------ parts


def _left(look: Look) -> str:
    retired = f" ({look.retired:,} by request)" if look.retired else ""
    return f"{plural(len(look.left), 'worker')} left{retired}" + (f", {look.came:,} came" if look.came else "")


def _bar(does: str, threads: int, whole: int, length: int, speed: str) -> tuple[str, str, str]:
    length = max(round(length * threads / whole), 1)
    style = "green" if does == "working" else "yellow"
    return "threads", f"{threads:>6,} {'█' * length} {does.removeprefix('idle, ')} {speed}".rstrip(), style
