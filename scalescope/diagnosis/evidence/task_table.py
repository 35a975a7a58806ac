"""Columns of the table `tasks`, and workers and prefixes of its rows."""

from __future__ import annotations

import re

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints, codes
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.records import LONGEST


def task_column(observation: Observation, name: str) -> Floats:
    """A column of the table `tasks` for each attempt; zeros where it was not recorded."""
    values, rows = observation.numbers("tasks", name), observation.measured.row
    return values[rows] if len(values) else np.zeros(len(rows))


@once
def task_needs(observation: Observation) -> tuple[Ints, Ints]:
    """Attempts, and the attempts whose results they needed: an element for each dependency."""
    rows = (np.asarray(observation.column("dependencies", name), np.int64) for name in ("task", "needs"))
    task, needs = (attempt_of_row(observation)[each] for each in rows)
    began = (task >= 0) & (needs >= 0)
    return task[began], needs[began]


@once
def attempt_of_row(observation: Observation) -> Ints:
    """The attempt of each row of the table `tasks`, or -1 if it did not begin."""
    rows, attempt = observation.measured.row, np.full(len(observation.column("tasks", "start")), -1)
    attempt[rows] = np.arange(len(rows))
    return attempt


# Token in a key: a hash of function and arguments, or a random value.
TOKEN = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@once
def _calls(observation: Observation) -> dict[str, str]:
    told = [message for topic in (LONGEST, "task-erred") for _, message in observation.events(topic)]
    return {str(each["key"]): str(each["call"]) for each in told if each.get("call")}


def task_name(observation: Observation, key: str) -> str:
    """The task as `load(7)` where that was recorded, else as `read-csv[3]` or by its key with a short token."""
    part = re.fullmatch(r"\('(.+)', (.+)\)", key)
    name = _calls(observation).get(key) or (f"{TOKEN.sub('', part[1]).rstrip('-')}[{part[2]}]" if part else key)
    return words.cut(TOKEN.sub(lambda token: token[0][:8], name))


def short_key(observation: Observation, attempt: int) -> str:
    return task_name(observation, observation.measured.key[attempt])


@once
def task_prefixes(observation: Observation) -> tuple[tuple[str, ...], Ints]:
    """The distinct task prefixes, and for each attempt the index of its prefix."""
    return codes(observation.measured.prefix)


def of_prefix(observation: Observation, prefix: str) -> Bools:
    """Whether each attempt has this prefix."""
    names, place = task_prefixes(observation)
    found: Bools = place == names.index(prefix) if prefix in names else np.zeros(len(place), bool)
    return found


def most_common_prefix(observation: Observation, attempts: Ints | Bools | slice = slice(None)) -> str:
    names, place = task_prefixes(observation)
    return names[int(np.bincount(place[attempts]).argmax())]


def worker_of_rows(observation: Observation, table: str, column: str = "worker") -> Ints:
    """The worker of each row of a table: an index into `Attempts.addresses`, -1 for the scheduler, -2 for any other."""
    index = {address: i for i, address in enumerate(observation.measured.addresses)} | {"scheduler": -1}
    names = observation.column(table, column)
    return np.fromiter((index.get(name, -2) for name in names), np.int64, len(names))


def threads_of_workers(observation: Observation) -> Ints:
    attempts = observation.measured
    threads = np.ones(len(attempts.addresses), np.int64)
    threads[attempts.members.worker] = attempts.members.nthreads
    return threads


def largest_prefix(seconds: Floats, observation: Observation) -> tuple[str, float]:
    """The task prefix with most of these seconds, and its share of them."""
    names, code = task_prefixes(observation)
    sums = np.bincount(code, weights=seconds, minlength=len(names))
    first = int(sums.argmax())
    return names[first], float(sums[first] / max(sums.sum(), 1e-12))
