"""A graph is so large that sending it or taking it in costs time."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Premise, Term
from scalescope.diagnosis.evidence.client_time import BEFORE, BETWEEN, asked_at, client_time
from scalescope.diagnosis.evidence.submission_loop import packing, unwanted_s
from scalescope.diagnosis.evidence.submissions import (
    LARGE_BYTES,
    SCATTER,
    all_tasks,
    large,
    large_at,
    largest_part,
    needless,
    sending_once_s,
    submissions,
)
from scalescope.diagnosis.evidence.task_table import largest_prefix, task_prefixes
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.premises import ENOUGH, kept_results
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

LARGE_GRAPH = TrialCause(
    code="large-graph",
    title="The graph itself is large",
    needs="A graph had 10 MB (where Dask itself warns) or 10,000 tasks, or 1 MB and ten times the tasks needed; and "
    "for at least 10 % of the worker time threads had nothing to do while it was sent, or read by the scheduler.",
    ruled_out_by="The graph ran for much longer than the scheduler took to read it, or threads worked on another graph "
    "meanwhile. The graph was small, and the scheduler was busy with something else.",
    remedy="Large objects: load them in tasks, or `client.scatter` them. Many tasks: use larger chunks. Tasks whose "
    "results nothing needs: `dask.optimize` the collection first",
    link="https://docs.dask.org/en/stable/best-practices.html#load-data-with-dask",
    parts=("no_runnable_task", "client"),
    changes=(Term.CLIENT,),
    in_a_flow="load large objects in a task and pass on the future of that task (`{task}.map(items, "
    "unmapped(data.submit()))`), or pass paths instead; make fewer tasks that each do more",
    premise="The bytes and tasks of the graph are recorded.",
)


LIKE = 1.1  # largest ratio of two numbers of bytes that count as the same data
ONLY_NEEDED = Remedy(
    "send only the tasks that are needed: `[x] = dask.optimize(x)` before `x` is computed or passed on, or "
    "`df.partitions[i]` in place of `df.to_delayed()[i]`"
)


@LARGE_GRAPH.finds
def large_graph(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle while a large graph is sent or read, even before the first task."""
    sent = submissions(observation)
    which = large(sent) | needless(observation)
    if not which.any():
        return None
    makespan = observation.measured.makespan
    before_s = float(np.clip(np.minimum(sent.seconds, -sent.time), 0.0, None)[which].sum())
    within_s = sum(
        unwanted_s(observation, float(begin), float(begin + seconds))
        for begin, seconds in zip(sent.time[which], sent.seconds[which], strict=True)
        if begin + seconds > 0
    )
    free = client_time(observation)
    under_way_s = float(free.seconds[free.sends][:, [BEFORE, BETWEEN]].sum())
    packed = packing(observation)
    in_loop = packed if packed is not None and packed.nbytes >= LARGE_BYTES else None
    if in_loop is not None:  # in a loop, all idle time between the first graph and the last is one loss
        within_s, under_way_s = in_loop.idle_s, float(free.seconds[free.sends][:, BEFORE].sum())
    lost_s = observation.threads * before_s + within_s + under_way_s
    share = lost_s / (observation.threads * max(observation.measured.elapsed, makespan + before_s))
    if share < NOTEWORTHY:
        return None
    worst = int(np.flatnonzero(which)[(sent.seconds + 1e-9 * sent.nbytes)[which].argmax()])
    nbytes, tasks, longest_s = int(sent.nbytes[worst]), int(sent.tasks[worst]), float(sent.seconds[worst])
    by_bytes = nbytes >= LARGE_BYTES
    wanted, several = max(observation.threads * 10, 1), "functions that do several steps in one task"
    fewer = Remedy(
        f"make fewer tasks: larger chunks or partitions, `blocksize=` or `npartitions=` for about {wanted:,} tasks per "
        f"step, or {several}",
        premise=Premise("A step has more tasks now.", lambda trial: _widest(trial)[1] >= ENOUGH * wanted),
        otherwise=Remedy(f"make fewer tasks: {several}"),
    )
    elsewhere = Remedy(
        f"take large objects out of the calls: load them within tasks, or {SCATTER}",
        remains_s=sending_once_s(observation),
    )
    remedy = elsewhere if by_bytes else fewer
    if by_bytes and (gathered := _gathered(observation, float(sent.time[worst]), nbytes)):
        remedy = Remedy(
            f"pass the futures of `{gathered}` to the next step, without gathering their results in between: "
            "`client.map(step, futures)`"
        )
    one = f"a graph of {plural(tasks, 'task')} and {words.size(nbytes)}"
    of_what = largest_part(observation) if by_bytes else _most_tasks(observation, tasks)
    if needless(observation)[worst]:
        remedy, of_what = ONLY_NEEDED, ""
        every = int(all_tasks(observation)[worst])
        one = f"a graph of {every:,} tasks and {words.size(nbytes)} (only {tasks:,} needed)"
    took = f"The scheduler needed {words.duration(longest_s)} to read {one}"
    if under_way_s > lost_s / 2:
        took = f"The client needed {words.duration(under_way_s / observation.threads)} to send {one}"
    elif in_loop is not None:
        took = (
            f"The client needed {words.duration(in_loop.each_s)} to pack and send each of {len(sent.time):,} graphs "
            f"of {words.size(in_loop.nbytes)}"
        )
    return LARGE_GRAPH.finding(
        observation,
        lost_s,
        f"{took} while workers waited: {percent(share)} of their time.{of_what}",
        remedy,
        Evidence("bytes of the graph", nbytes, "table graphs"),
        Evidence("tasks of the graph", tasks, "table graphs"),
        Evidence("seconds to read the graph", round(longest_s, 3), "table graphs"),
        Evidence("large graphs", int(which.sum()), "table graphs"),
        Evidence("thread-seconds idle while the client sent graphs", round(under_way_s, 3), "tables client and tasks"),
        Evidence(
            "thread-seconds to read graphs before the first task",
            round(lost_s - within_s - under_way_s, 3),
            "table graphs",
        ),
        Evidence("thread-seconds idle during the makespan", round(within_s, 3), "tables graphs and tasks"),
        confidence=0.9,
        place=large_at(observation) if by_bytes else asked_at(observation),
    )


def _gathered(observation: Observation, before: float, nbytes: int) -> str:
    """Prefix of results that no task needed, with as many bytes as a later graph (fetched, then resent); or empty."""
    own = np.where(observation.measured.stop <= before, kept_results(observation), 0.0)
    if not nbytes / LIKE <= own.sum() <= LIKE * nbytes:
        return ""
    return largest_prefix(own, observation)[0]


def _widest(observation: Observation) -> tuple[str, int]:
    """The prefix with most tasks, and their number."""
    names, place = task_prefixes(observation)
    counts = np.bincount(place)
    return names[int(counts.argmax())], int(counts.max())


def _most_tasks(observation: Observation, tasks: int) -> str:
    prefix, count = _widest(observation)
    return f" Most of the tasks are `{prefix}` ({count:,})." if 2 * count > tasks else ""
