"""Where the threads of running tasks spent their time: on a core or not, and in which function, by task prefix.

Workers report CPU seconds and other seconds of all tasks of a prefix (`records.FINE_METRICS`). The worker time `busy`
is divided among prefixes by the durations of their tasks, and within a prefix by the reported seconds. Workers also
report how long their threads waited for a core: prefixes share these seconds in proportion to their CPU seconds. The
rest is `unknown`, so that the parts of all prefixes add up to `busy`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scalescope.analysis.attempts import Attempts, codes
from scalescope.analysis.events import Tables, fine_seconds

_LINE = re.compile(r":\d+ \S+$")  # `my_job.py:61 load`
COROUTINE, COROUTINE_S = "event-loop", 0.01  # first frame of stacks on an event loop; seconds per such sample


@dataclass(frozen=True)
class Stack:
    """Samples with equal frames, outermost first; the last frame may be a call out of Python such as `time.sleep()`."""

    frames: tuple[str, ...]
    samples: int

    @property
    def user(self) -> str:
        """The innermost line of the user's code, such as `my_job.py:61 load`; empty if there is none."""
        return next((frame for frame in reversed(self.frames) if is_users(frame)), "")

    @property
    def call(self) -> str:
        """The call out of Python that ends the stack, such as `time.sleep`; empty if Python code ran."""
        return self.frames[-1].removesuffix("()") if self.frames[-1:] and self.frames[-1].endswith("()") else ""


@dataclass(frozen=True)
class InsidePrefix:
    """Time of the threads of one prefix."""

    seconds: Mapping[str, float]  # busy thread-seconds by part of `BUSY_PARTS`
    stacks: tuple[Stack, ...]  # the commonest stacks
    samples: int  # number of samples, including those whose stack is unknown

    def share(self, stacks: Sequence[Stack]) -> float:
        """The share of these stacks among all samples, from 0 to 1."""
        return sum(stack.samples for stack in stacks) / self.samples if self.samples else 0.0

    def alike(self, other: InsidePrefix) -> float:
        """Overlap, from 0 to 1, of the stacks in which both prefixes spend their time."""
        theirs = {stack.frames: other.share([stack]) for stack in other.stacks}
        return sum(min(self.share([stack]), theirs.get(stack.frames, 0.0)) for stack in self.stacks)

    @property
    def busy_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def mostly(self) -> tuple[str, str, float]:
        """The commonest pair of a line of the user's code and the function it calls, and the share of its samples."""
        counted = Counter[tuple[str, str]]()
        for stack in self.stacks:
            counted[stack.user, called_by_user(stack)] += stack.samples
        if not counted:
            return "", "", 0.0
        (where, what), samples = counted.most_common(1)[0]
        return where, what, samples / self.samples


@lru_cache(maxsize=10_000)
def is_users(frame: str) -> bool:
    """Whether a frame is a line of the user's own code, not a function of a library."""
    return _LINE.search(frame) is not None


def called_by_user(stack: Stack) -> str:
    """Function that the innermost line of the user's code calls, or empty; without such a line, the outermost frame."""
    below = stack.frames[stack.frames.index(stack.user) + 1 :] if stack.user else stack.frames
    return below[0].removesuffix("()") if below else ""


def inside_tasks(tables: Tables, attempts: Attempts, busy_s: float) -> dict[str, InsidePrefix] | None:
    """Divide `busy_s` thread-seconds, by prefix; None if the workers reported no seconds."""
    told = thread_seconds(tables)
    if not any(map(any, told.values())):
        return None
    stacks: dict[str, list[Stack]] = {}
    samples = Counter[str]()
    table = tables.get("inside", {})
    for prefix, stack, count in zip(*(table.get(name, ()) for name in ("prefix", "stack", "samples")), strict=True):
        samples[prefix] += int(count)
        if stack:
            stacks.setdefault(prefix, []).append(Stack(tuple(stack.split(";")), int(count)))
    names, place = codes(attempts.prefix)
    lasted, away = attempts.seconds, attempts.stop - attempts.start - attempts.seconds
    away_s = np.bincount(place, weights=away, minlength=len(names))
    every = np.bincount(place, weights=lasted, minlength=len(names))
    useful = np.bincount(place, weights=lasted * attempts.useful, minlength=len(names))
    whole = float(useful.sum())
    used_s = sum(max(cpu, 0.0) for cpu, _ in told.values())
    lacked = sum(tables.get("workers", {}).get("core_wait_s", ())) / used_s if used_s > 0 else 0.0  # per CPU second
    found = {}
    for name, all_s, useful_s, gone_s in zip(names, *(each.tolist() for each in (every, useful, away_s)), strict=True):
        own_s = busy_s * useful_s / whole if whole > 0 else 0.0
        cpu, noncpu = told.get(name, (0.0, 0.0))
        cpu, noncpu = max(cpu, 0.0), max(noncpu - gone_s, 0.0)  # `gone_s`: waits that freed the thread
        # Scale down, because workers also report the seconds of lost tasks.
        scale = own_s / max(all_s, cpu + noncpu) if all_s > 0 else 0.0
        computing, waiting = cpu * scale, noncpu * scale
        for_core, unknown = min(lacked * computing, waiting), max(own_s - computing - waiting, 0.0)
        seconds = {"computing": computing, "for_core": for_core, "waiting": waiting - for_core, "unknown": unknown}
        own = sorted(stacks.get(name, ()), key=lambda stack: -stack.samples)
        if any(stack.frames[0] == COROUTINE for stack in own):  # a coroutine that awaits is not sampled
            samples[name] = max(samples[name], round(all_s / COROUTINE_S))
        found[name] = InsidePrefix(seconds, tuple(own), samples[name])
    return found


def thread_seconds(tables: Tables) -> dict[str, list[float]]:
    # For each prefix, the seconds on a core and the other seconds.
    found: dict[str, list[float]] = {}
    for context, prefix, activity, seconds in fine_seconds(tables):
        if context == "execute" and activity.endswith("cpu"):
            found.setdefault(prefix, [0.0, 0.0])[activity.endswith("noncpu")] += seconds
    return found
