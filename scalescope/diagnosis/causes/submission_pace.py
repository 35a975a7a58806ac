"""Tasks reach the scheduler too slowly: each result is awaited, too few are in flight, or the client is slow."""

from __future__ import annotations

import re

from scalescope.diagnosis.cause import NOTEWORTHY, Premise, Term
from scalescope.diagnosis.evidence.client_time import asked_at, named_at_random
from scalescope.diagnosis.evidence.delayed_batches import last_wave_s
from scalescope.diagnosis.evidence.rescheduled import sent_at_once_saves_s
from scalescope.diagnosis.evidence.submission_loop import (
    SubmissionLoop,
    hashing,
    loop,
    loop_evidence,
    mostly_in,
    one_by_one,
    packing,
    refilled,
    rests,
    sent_first,
    tasks_per_graph,
    unwanted_s,
    wide_rounds,
)
from scalescope.diagnosis.evidence.submissions import SCATTER, large_at, sent_again
from scalescope.diagnosis.evidence.task_table import most_common_prefix, of_prefix
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.premises import RESULTS_FIT, room
from scalescope.model import words
from scalescope.model.finding import IN_FLIGHT, Evidence, Finding, Place, Severity
from scalescope.model.words import percent, plural

ROUND = 6  # fewest tasks of a graph that counts as a narrow round instead of one item of a loop

OF_JOBLIB = re.compile(r"batch_of_.+_calls")  # names of the tasks that joblib's Dask backend sends

RESULTS_AWAITED_IN_LOOP = TrialCause(
    code="results-awaited-in-loop",
    title="Each result awaited before the next",
    needs="At least 3 graphs were sent. Typically (median), fewer tasks were in flight than there are threads, or "
    "their last wave did not fill the threads. At least 90 % of the graphs arrived when all earlier tasks had ended, "
    "and threads were idle meanwhile. Or the client called actors on several workers, one call at a time.",
    ruled_out_by="One graph whose tasks depend on each other (sequential-graph). Graphs that arrive while earlier ones "
    "run, or that the client takes long to make (slow-submission). Graphs that each fill all threads until they end. "
    "Rounds of 6 or more tasks, each too narrow for the threads (too-few-partitions).",
    remedy="Send everything first, then gather: `client.map` and `client.gather`, or one `dask.compute`",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-calling-compute-repeatedly",
    parts=("no_runnable_task", "client", "tail"),
    in_a_flow="call `{task}.submit(item)` for all items first (or `{task}.map(items)`), then `.result()` of each; pass "
    "futures themselves to the next task, without `.result()` in between",
    premise=RESULTS_FIT,
)


@RESULTS_AWAITED_IN_LOOP.finds
def results_awaited_in_loop(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle with no task waiting, from the first graph on; or idle during calls of actors."""
    if (called := one_by_one(observation)) is not None:
        idle = percent(observation.share_of(called.lost_s))
        return RESULTS_AWAITED_IN_LOOP.finding(
            observation,
            called.lost_s,
            f"The client called actors on {called.workers} workers {called.calls:,} times (`{called.method}`), each "
            f"only after the previous call had answered, so that {idle} of the worker time was idle.",
            "call all actors before you ask for the first answer: `futures = [actor.method() for actor in actors]`, "
            "then `.result()` of each",
            Evidence("calls of actors", called.calls, "events of actors"),
            Evidence("workers with actors that were called", called.workers, "events of actors"),
            Evidence("calls that ran at the same time, mean", round(called.at_once, 2), "events of actors"),
            Evidence("thread-seconds idle during calls of actors", round(called.lost_s, 3), "tables client and tasks"),
            confidence=0.9,
            place=asked_at(observation),
        )
    found, threads = loop(observation) or wide_rounds(observation), observation.threads
    if found is None or not found.waits or ROUND <= found.width < threads:
        return None
    prefix, fills = most_common_prefix(observation), found.width >= threads
    lost_s = unwanted_s(observation, found.begin, observation.measured.makespan)
    if fills:  # rounds fill the threads: only idle time of their last waves counts
        lost_s = min(lost_s, found.graphs * last_wave_s(int(found.width), threads, _mean_s(observation, prefix)))
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    single, each = found.tasks == found.graphs, tasks_per_graph(found)
    remedy = (
        f"use `futures = client.map({prefix}, items)` and `client.gather(futures)` instead of `client.submit({prefix}, "
        "item).result()` in the loop"
        if single
        else "collect the lazy results of all rounds and call `dask.compute(*results)` once (with futures: submit all, "
        "then `client.gather`) instead of `.compute()` or `.result()` in the loop"
    )
    remedy += "; wait only where a round needs the result of the previous round"
    if OF_JOBLIB.fullmatch(prefix):
        remedy = "let joblib send more calls at once: leave out `pre_dispatch=`, or make it larger"
    return RESULTS_AWAITED_IN_LOOP.finding(
        observation,
        lost_s,
        f"The client sent {found.graphs:,} {found.unit}s of {each} (`{prefix}`), each only after the previous result "
        f"had come back, so that {percent(share)} of the worker time was idle.",
        Remedy(
            remedy + (f", and then give that round a multiple of {threads:,} tasks" if fills else ""),
            saved_s=sent_at_once_saves_s(observation),
            otherwise=_a_few_at_a_time(observation, prefix),
        ),
        *loop_evidence(found, lost_s),
        confidence=0.95 if found.gap_s <= 0.1 * found.round_s else 0.8,
        place=asked_at(observation),
    )


def _a_few_at_a_time(observation: Observation, prefix: str) -> Remedy | None:
    """The remedy if the results of all tasks together do not fit into memory; its effect is not known."""
    if RESULTS_FIT.holds(observation):
        return None
    enough = 2 * observation.threads
    return Remedy(
        f"keep {enough:,} `{prefix}` tasks in flight (`as_completed`) and release each result ({room(observation)})",
        saved_s=0.0,
    )


FASTER_LOOP = (
    "the loop begins with enough tasks, but then sends more too slowly: do less between two submissions, send several "
    "tasks at once, or give the client a core to itself"
)


def _mean_s(observation: Observation, prefix: str) -> float:
    attempts = observation.measured
    return float((attempts.stop - attempts.start)[of_prefix(observation, prefix)].mean())


FEW_TASKS_IN_FLIGHT = TrialCause(
    code="few-tasks-in-flight",
    title="The client keeps too few tasks in flight",
    needs="The client sent at least 3 graphs one after another, 90 % of them right after a task ended (within a fifth "
    "of the time between ends) or while it waited for a task. Threads were idle with no task waiting meanwhile.",
    ruled_out_by="The client waited until all tasks had ended (results-awaited-in-loop), or sent at its own pace "
    "(slow-submission). All threads were in use.",
    remedy="Submit at least twice as many tasks as there are threads before the loop that sends one per result",
    link="https://docs.dask.org/en/stable/futures.html#waiting-on-futures",
    parts=("no_runnable_task",),
    in_a_flow="pass the future itself to the next task, without `.result()` in between: "
    "`wait([second.submit(first.submit(item)) for item in items])`",
    by_times=True,
    premise=RESULTS_FIT,
)


@FEW_TASKS_IN_FLIGHT.finds
def few_tasks_in_flight(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle while no task waited, from the first graph's arrival to the last's."""
    found = refilled(observation)
    if found is None:
        return None
    lost_s, enough = unwanted_s(observation, found.begin, found.end), 2 * observation.threads
    if (share := observation.share_of(lost_s)) < NOTEWORTHY or found.window >= enough:
        return None
    prefix, fewer = most_common_prefix(observation), found.window < observation.threads
    times = "" if fewer else " (the median; at times, fewer tasks than threads)"
    return FEW_TASKS_IN_FLIGHT.finding(
        observation,
        lost_s,
        f"The client keeps {plural(found.window, 'task')} (`{prefix}`) in flight for "
        f"{plural(observation.threads, 'thread')}{times} and sends more when a task has ended, so that "
        f"{percent(share)} of the worker time was idle.",
        Remedy(
            f"submit {enough:,} `{prefix}` tasks before the `as_completed` loop, and add one in it for each task that "
            "ends; or submit all at once if no result decides what comes next",
            saved_s=sent_at_once_saves_s(observation),
            premise=Premise("Fewer tasks are sent before one ends.", lambda seen: sent_first(seen) < enough),
            otherwise=_a_few_at_a_time(observation, prefix) or Remedy(FASTER_LOOP, saved_s=0.0),
        ),
        Evidence(IN_FLIGHT, enough, "twice the threads"),
        Evidence("tasks in flight after each graph, median", found.window, "tables graphs and tasks"),
        *loop_evidence(found, lost_s),
        confidence=0.85,
        place=asked_at(observation),
    )


SCATTER_ONCE = (
    "the client scatters data at line {line} for most of the loop: scatter it once, before the loop, and pass that "
    "future to all tasks"
)
NOT_ASLEEP = (
    "send all at once, and wait for results with `wait` or `as_completed`: the client sleeps at line {line} for most "
    "of the loop; if the work really arrives at that pace, nothing is lost"
)
ITS_OWN_PACE = Remedy("if the work is known earlier, submit it earlier; if not, nothing is lost", saved_s=0.0)
SLOW_SUBMISSION = TrialCause(
    code="slow-submission",
    title="Tasks sent too slowly",
    needs="At least 3 graphs arrived one after another. Typically (median), fewer tasks were in flight than there "
    "are threads, and threads were idle with no task waiting.",
    ruled_out_by="The client sent faster than the threads could work (tasks waited). The client waited for each result "
    "(results-awaited-in-loop), sent a task only when one ended (few-tasks-in-flight), or packed data with each graph "
    "(large-graph, serialisation-bound). Threads were idle only after the last graph. The client had no work to send "
    "(information).",
    remedy="Use `client.map` instead of `client.submit` in a loop; prepare inputs in tasks",
    link="https://docs.dask.org/en/stable/futures.html",
    parts=("no_runnable_task", "client"),
    by_times=True,
    changes=(Term.CLIENT,),
    in_a_flow="give each task more to do (`{task}.map(batches)`, a list of items for each), pass it little (a path "
    "rather than the data), and move what the flow computes between two submissions into the tasks",
    excusable=True,
    premise=RESULTS_FIT,
)


@SLOW_SUBMISSION.finds
def slow_submission(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle while no task waited, from the first graph's arrival to the last's."""
    found = loop(observation)
    if found is None or found.waits or found.window or packing(observation) is not None:
        return None
    attempts = observation.measured
    lost_s = unwanted_s(observation, found.begin, found.end)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, window = most_common_prefix(observation), max(found.seconds, 1e-9)
    mean_s = float((attempts.stop - attempts.start).mean())
    rate, needed = found.tasks / window, observation.threads / max(mean_s, 1e-9)
    each = tasks_per_graph(found)
    idle = rests(observation, found)
    place, remedy = (None, ITS_OWN_PACE) if idle else _faster(observation, found, prefix)
    return SLOW_SUBMISSION.finding(
        observation,
        lost_s,
        f"The client sent {found.graphs:,} graphs of {each} (`{prefix}`) one after another, {rate:,.3g} "
        f"tasks per second. {plural(observation.threads, 'thread')} could run {needed:,.3g} tasks per second "
        f"({words.duration(mean_s)} a task), so {percent(share)} of the worker time was idle."
        + (" The client's event loop was free meanwhile: the client had no more work to send." if idle else ""),
        remedy,
        *loop_evidence(found, lost_s),
        Evidence("tasks sent per second", round(rate, 3), "table graphs"),
        Evidence("tasks per second that the threads could take", round(needed, 3), "threads divided by mean duration"),
        confidence=0.7,
        place=place,
        severity=Severity.INFO if idle else None,
    )


def _faster(observation: Observation, found: SubmissionLoop, prefix: str) -> tuple[Place | None, Remedy]:
    """Remedy that makes the loop send faster, and the line to change."""
    if (hashes := hashing(observation, found)) is not None:
        place, call, hashed_s = hashes
        if sent_again(observation):
            at = large_at(observation)
            return at, Remedy(
                f"take shared data out of the calls: {SCATTER}", saved_s=hashed_s, remains_s=hashed_s / found.graphs
            )
        why = "so that Dask need not hash the arguments to make a key (equal calls then run again)"
        return place, Remedy(f"{named_at_random(call)}, {why}", saved_s=hashed_s)
    for call, remedy in (("scatter", SCATTER_ONCE), ("sleep", NOT_ASLEEP)):
        if (place := mostly_in(observation, found, call)) is not None:
            return place, Remedy(remedy.format(line=place.line), saved_s=sent_at_once_saves_s(observation))
    return asked_at(observation), Remedy(
        f"send all at once with `client.map({prefix}, items)` (or one `dask.compute`), and move what the client "
        f"computes between two calls ({words.duration(found.round_s)}) into the tasks",
        saved_s=sent_at_once_saves_s(observation, in_tasks=True),
        otherwise=_a_few_at_a_time(observation, prefix),
    )
