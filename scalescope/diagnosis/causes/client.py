"""Causes that lie in the client itself: what it does, or waits for, while the cluster has nothing to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from scalescope.analysis.attempts import Bools, codes
from scalescope.analysis.events import fine_seconds
from scalescope.diagnosis.cause import NOTEWORTHY, Premise, Term
from scalescope.diagnosis.evidence.client_time import (
    AFTER,
    BEFORE,
    BETWEEN,
    ClientTime,
    actor_calls,
    client_time,
    named_at_random,
)
from scalescope.diagnosis.evidence.submission_loop import SHORT_S, loop, one_by_one
from scalescope.diagnosis.evidence.submissions import heavy, large, submissions
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.premises import kept_bytes
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.records import FLOW, HASHED, META, ONCE, PAST_THE_CLUSTER, TRAVERSED
from scalescope.model.words import percent, plural

PHASES = {BEFORE: "before the first graph", BETWEEN: "between graphs", AFTER: "after the last task"}
DO_INSTEAD = {
    BEFORE: "move this code into tasks, or first submit the tasks that do not need its result",
    BETWEEN: "move this code into tasks so that one graph does all the work, or submit the next graph first",
    AFTER: "move this code into the tasks, or run it on each result with `as_completed` while other tasks still run",
}
AWAIT = f"{DO_INSTEAD[BEFORE]}; if the sleep is there to wait for workers, call `client.wait_for_workers(n)` instead"
IN_BATCHES = "move this code into the tasks, run it once for many results, or run it in a separate thread"
SEND_LESS = "load the data inside tasks instead of sending it from the client"
GATHER_LESS = "gather less: reduce, count or write on the workers (`client.map(reduce, futures)`)"
LITTLE_CAME = (
    "the results are small, so look for other load on the client's host, or a slow network between it and the scheduler"
)
DO_ELSE = "make that call only once, make it from a thread while tasks run, or move its work into tasks"
LEAVE_OUT = "leave out that call: the next round can use the workers as they are, and `del futures` frees results"
_DATA = ("scatter", "replicate")  # calls of the client that send data
# Calls of the client that send neither data nor tasks.
OF_NO_TASK = ("run", "run_on_scheduler", "wait_for_workers", "restart", "register_plugin", "upload_file")
CALL_MORE = "an actor runs one method at a time: spread the work over more actors, or use tasks instead of the actor"
WRAP_ONCE = (
    "wrap large arguments without Dask objects once (`data = dask.delayed(data, traverse=False)`), and pass `data`"
)
NAME_META = "pass `meta=`, an empty example of the result (Dask still calls the function if only `dtype=` is given)"
WORTH_META = 0.2  # least share of worker time for a fault: inferring `meta` takes equally long for any amount of data
# Least calls while tasks ran, and least share of the calls' seconds then, for `ClientSpending.meanwhile` to be true
OFTEN, OVERLAP = 2, 0.02
ALL_AT_ONCE = 0.8  # least mean calls of actors at a time per worker, for all workers to count as in use
LITTLE = 2**20  # bytes of results; gathering fewer is no remedy
GATHERS = Premise[Observation](
    "The client gathers at least 1 MiB, or the size of its results is unknown.",
    lambda seen: not 0 < kept_bytes(seen) < LITTLE,
)
AS_ARRAYS = "return arrays (NumPy, pandas, Arrow) instead of lists and dictionaries, which are packed item by item"
PACKED = 0.2  # least share of the client's wait in which workers packed results, for a finding to mention it
SLOWLY = 20e6  # bytes per second, below which packing is slow: lists of numbers reach 3 MB/s, arrays hundreds of MB/s
WORTH_PACKING = 2**16  # least bytes of results to judge by; fewer are slow only if the worker lacks a core or imports
MOSTLY = 0.9  # least share of the client's time on one line, for only that line to be named


@dataclass(frozen=True)
class ClientSpending:
    """Time that the client spent in some way, while no task was known."""

    lost_s: float  # thread-seconds spent in this way
    phases: tuple[float, ...]  # thread-seconds in each of `PHASES`
    at: str  # clause that names the line with most of `lost_s`
    where: str  # the same line in the form of the records; may be empty
    what: str  # function called at that line; empty for the code itself, or if unknown
    most: float  # share of `lost_s` spent in `what`, on any line of the same function, from 0 to 1
    meanwhile: bool  # True if the client did the same while tasks ran, too

    @classmethod
    def of(cls, observation: Observation, chosen: Bools, without: Collection[int]) -> ClientSpending | None:
        """Sum the chosen rows of `client_time`, except phases in `without`; None if they cost too little to name."""
        found = client_time(observation)
        seconds = found.seconds * chosen[:, None]
        seconds[:, list(without)] = 0.0
        lost_s, by_row = float(seconds.sum()), seconds.sum(axis=1)
        if observation.share_of(lost_s) < NOTEWORTHY or lost_s < SHORT_S * observation.threads:
            return None
        doing, same = codes([f"{what} {where.rpartition(' ')[2]}" for where, what in found.doing])
        lines, line = codes([where for where, _ in found.doing])
        most = np.bincount(same, by_row)
        best = lines[int(np.bincount(line, np.where(same == most.argmax(), by_row, 0.0)).argmax())]
        place, _, function = best.partition(" ")
        at = f"at {place} (`{function}`)" if place else "at an unknown line"
        what = doing[int(most.argmax())].rpartition(" ")[0]
        meanwhile = _meanwhile(observation, found, chosen & (same == most.argmax()))
        return cls(lost_s, tuple(seconds.sum(axis=0).tolist()), at, best, what, float(most.max()) / lost_s, meanwhile)

    @property
    def hashed(self) -> tuple[str, str] | None:
        """What the client did, and the remedy, if Dask hashed the data passed to a call; None if it did not."""
        if not self.what.startswith(HASHED):
            return None
        call = self.what.removeprefix(HASHED)
        did = f"hashed the data that it passes to `{words.cut(call)}`, to make a key,"
        return did, f"{named_at_random(call)}: Dask then makes a random key"

    @property
    def not_yet_meanwhile(self) -> Premise[Observation]:
        return Premise("The client does not yet do this while tasks run.", lambda observation: not self.meanwhile)

    @property
    def when(self) -> str:
        order = sorted(PHASES, key=lambda phase: -self.phases[phase])
        *others, last = (PHASES[phase] for phase in order if self.phases[phase] >= 0.2 * self.lost_s)
        return f"{', '.join(others)} and {last}" if others else last

    def finding(self, cause: TrialCause, observation: Observation, did: str, said: str, remedy: str) -> Finding:
        """Make the finding of a cause, from clauses on what the client did, why, and what to do."""
        done_in_tasks = cause is CLIENT_BUSY  # moved into tasks, the client's computation is shared by all threads
        saved_s = self.lost_s / observation.threads * (1 - done_in_tasks / observation.threads)
        act = Remedy(remedy, saved_s=0.0 if remedy == DO_ELSE else saved_s)  # moved elsewhere, work takes as long
        if remedy == GATHER_LESS:
            act = replace(act, premise=GATHERS, otherwise=Remedy(LITTLE_CAME, saved_s=0.0))
        if remedy == DO_INSTEAD[AFTER]:
            act = replace(act, premise=self.not_yet_meanwhile, otherwise=Remedy(IN_BATCHES, saved_s=saved_s))
        most = ""
        if self.most < MOSTLY:
            worked = "worked" if cause is CLIENT_BUSY else "waited for the cluster"
            did, most = worked, f"; for {percent(self.most)} of that time, the client {did} {self.at}"
        else:
            did += f" {self.at}"
        return cause.finding(
            observation,
            self.lost_s,
            f"{percent(observation.share_of(self.lost_s))} of the worker time passed while the client {did}, "
            f"{self.when}, with no task to run{said}{most}.",
            act,
            *(
                Evidence(
                    f"seconds {text}", round(self.phases[phase] / observation.threads, 3), "tables client and tasks"
                )
                for phase, text in PHASES.items()
            ),
            Evidence(f"share of the lost time {self.at}", round(self.most, 4), "table client"),
            confidence=0.8 if len(observation.column("client", "time")) else 0.6,
            place=Place.of(self.where),
        )


def _packed_s(observation: Observation) -> float:
    """Seconds in which workers packed results so slowly that these must be many Python objects; else 0."""
    if kept_bytes(observation) < WORTH_PACKING:
        return 0.0
    seconds = sum(
        spent
        for context, _, activity, spent in fine_seconds(observation.tables)
        if (context, activity) == ("get-data", "serialize")
    )
    return seconds if kept_bytes(observation) < SLOWLY * seconds else 0.0


def _meanwhile(observation: Observation, found: ClientTime, rows: Bools) -> bool:
    begin, end = observation.client_spans
    if not len(begin):
        return False
    first, last = observation.measured.pending[0, 0], observation.measured.pending[-1, 1]
    total_s = float((end - begin)[rows].sum())
    beside_s = total_s - float(found.seconds[rows].sum()) / observation.threads
    return int((rows & (end > first) & (begin < last)).sum()) >= OFTEN and beside_s >= OVERLAP * total_s


CLIENT_BUSY = TrialCause(
    code="client-busy",
    title="The cluster waits for the client",
    needs="For at least 10 % of the worker time, and 0.1 s, the scheduler had no task (before the first graph, "
    "between graphs or after the last task) while the client ran its own code, as samples of its stack show.",
    ruled_out_by="The client waited for the cluster (client-waits). It sent graphs in a loop (slow-submission, "
    "results-awaited-in-loop). It packed a large graph (large-graph) or tasks that carry data (serialisation-bound). "
    "Imports are reported for information only: a process imports once. Calls that only infer `meta` are information, "
    "too, if they take less than 20 % of the worker time.",
    remedy="Move that code into tasks, run it while tasks run (submit first), or send one graph",
    link="https://docs.dask.org/en/stable/best-practices.html",
    parts=("client",),
    by_times=True,
    changes=(Term.CLIENT,),
    in_a_flow="submit that function as a task (`name.submit(...)`) instead of calling it in the flow, or call it "
    "while tasks run",
    excusable=True,
    premise="Samples of the client show which code ran while no task did.",
)


@CLIENT_BUSY.finds
def client_busy(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `client` without waits, imports, gaps in a loop, and sending heavy graphs."""
    found = client_time(observation)
    once = np.array([what in ONCE for _, what in found.doing])
    without = (BETWEEN,) if loop(observation) else ()
    own = ~(found.sends if heavy(submissions(observation)).any() else found.waits)
    own &= [what not in PAST_THE_CLUSTER for _, what in found.doing]  # the cause local-scheduler reports these
    if spent := ClientSpending.of(observation, own & ~once, without):
        did = f"ran `{words.cut(spent.what)}`" if spent.what else "computed"
        phase = int(np.argmax(spent.phases))
        remedy = AWAIT if phase == BEFORE and spent.what.rpartition(".")[2] == "sleep" else DO_INSTEAD[phase]
        if spent.what == META:
            did, remedy = "called a function of the tasks to infer what it returns (`meta`),", NAME_META
        elif spent.what == TRAVERSED:
            did, remedy = "searched the arguments of delayed functions for Dask's objects, item by item,", WRAP_ONCE
        elif spent.hashed:
            did, remedy = spent.hashed
        finding = spent.finding(CLIENT_BUSY, observation, did, "", remedy)
        little = spent.what == META and observation.share_of(spent.lost_s) < WORTH_META
        return replace(finding, severity=Severity.INFO) if little else finding
    if spent := ClientSpending.of(observation, own, without):
        did, remedy = (
            "imported modules",
            "import modules before the measured function is called, or measure with `warmups: 1`",
        )
        if spent.what == FLOW:
            did, remedy = (
                "was in Prefect's engine around the flow",
                "nothing has to be done: this time does not grow with the flow",
            )
        found_once = spent.finding(CLIENT_BUSY, observation, did, "", remedy)
        return replace(found_once, severity=Severity.INFO, remedy=remedy)
    return None


CLIENT_WAITS = TrialCause(
    code="client-waits",
    title="The client waits for data",
    needs="For at least 10 % of the worker time, and 0.1 s, the scheduler had no task while the client waited for the "
    "cluster: for results, for data on their way, or for a call that runs no task. At least 0.1 s of this wait came "
    "before the first graph, or the wait is at least 0.05 s per graph.",
    ruled_out_by="The client computed meanwhile (client-busy), or waited for another cluster of the script. It sent "
    "graphs in a loop, or called actors one after another (results-awaited-in-loop). It sent a large graph "
    "(large-graph). Tasks, not the client, waited for data (transfer-bound).",
    remedy="Reduce on the workers what the client gathers; load in tasks what the client sends",
    link="https://distributed.dask.org/en/stable/efficiency.html#leave-data-on-the-cluster",
    parts=("client",),
    by_times=True,
    rules_out=("scaled-down",),
    premise="Samples show the wait: nothing else ran meanwhile.",
)


@CLIENT_WAITS.finds
def client_waits(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `client` in waits, without gaps in a loop and time around large graphs."""
    if one_by_one(observation) is not None:
        return None
    sent, called = submissions(observation), actor_calls(observation)
    without = (BEFORE, BETWEEN) if large(sent).any() else (BETWEEN,) if loop(observation) else ()
    spent = ClientSpending.of(observation, client_time(observation).waits, without)
    if spent is None:
        return None
    round_trip = 0.05 * observation.threads  # thread-seconds to send a small graph and fetch small results (50 ms)
    if spent.phases[BEFORE] < 2 * round_trip and spent.lost_s < round_trip * len(sent.time):
        return None
    did = f"waited in `{words.cut(spent.what) or 'a call'}`"
    if called is not None and called.lost_s > 0.5 * spent.lost_s:
        if called.at_once >= ALL_AT_ONCE * len(observation.measured.addresses):
            return None
        calls, on = plural(called.calls, "call"), plural(called.workers, "worker")
        said = f": {calls} of actors (`{called.method}`) ran on {on}"
        return spent.finding(CLIENT_WAITS, observation, did, said, CALL_MORE)
    if spent.hashed:
        did, remedy = spent.hashed
        return spent.finding(CLIENT_WAITS, observation, did, "", remedy)
    said = ": results or data were on their way, or it made calls that run no task"
    remedy, name = GATHER_LESS, spent.what.rpartition(".")[2]
    if name in _DATA or (spent.phases[BEFORE] > 0.5 * spent.lost_s and name not in OF_NO_TASK):
        remedy = SEND_LESS
    elif name in OF_NO_TASK:
        remedy, said = LEAVE_OUT if name == "restart" else DO_ELSE, ": that call runs no task"
    elif (packed_s := _packed_s(observation)) >= PACKED * spent.lost_s / observation.threads:
        said = f": {words.size(kept_bytes(observation))} of results took {words.duration(packed_s)} to pack"
        remedy = AS_ARRAYS
    return spent.finding(CLIENT_WAITS, observation, did, said, remedy)
