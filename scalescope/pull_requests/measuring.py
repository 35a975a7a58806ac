"""Compares base and head of a pull request, at each size of each workload."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalescope.environments import git
from scalescope.errors import ExitStatus, InvalidField
from scalescope.model.environment import ENVIRONMENT
from scalescope.model.fields import Scalar
from scalescope.model.sweep import digest
from scalescope.model.trial import Trial
from scalescope.model.words import change, duration, pairs, plural
from scalescope.pull_requests import checkouts
from scalescope.pull_requests.answer import Notice, PullRequestAnswer
from scalescope.pull_requests.checkouts import Checkout
from scalescope.pull_requests.places import place
from scalescope.report.table import to_markdown
from scalescope.run.runner import Runner
from scalescope.studies import requirement, running
from scalescope.studies.comparison.judge import ComparisonDecision, Family, PairedComparison, family
from scalescope.studies.comparison.report import whole_table
from scalescope.studies.running import StudyResult

# Probability of a false alarm when nothing changed; lower than for `compare`, because every push compares again
ALPHA = 0.005


@dataclass(frozen=True)
class PullRequestQuestion:
    """What to compare."""

    workloads: tuple[str, ...]  # workloads as the user gave them
    axes: Mapping[str, Sequence[Scalar]]  # values by axis (sizes); all combinations are compared
    study: Mapping[str, Any]  # further parameters of a comparison
    folder: str  # folder of the repository
    base: str = ""
    head: str = "HEAD"
    requirements: str = ""  # file in the repository that pins packages
    require: tuple[str, ...] = ()
    minutes: float = 60.0

    @property
    def points(self) -> list[dict[str, Scalar]]:
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    @property
    def digest(self) -> str:
        axes = {name: list(values) for name, values in self.axes.items()}
        return digest([self.workloads, axes, self.study.get("cluster", ""), self.study.get("params", {})])


@dataclass(frozen=True)
class _Compared:
    workload: str
    name: str  # workload and size, as a title
    result: StudyResult

    @property
    def why(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.result.result.get("why", {})
        return found

    @property
    def of_head(self) -> list[Trial]:
        trials = (trial for run in self.result.runs for trial in run.trials)
        return [trial for trial in trials if trial.point.environment.startswith("head = ")]

    @property
    def pairs(self) -> PairedComparison:
        found = PairedComparison.from_mapping(self.result.result)
        return replace(found, question=replace(found.question, name=self.name, a="base", b="head"))


def answer(asked: PullRequestQuestion, runner: Runner) -> PullRequestAnswer:
    """Measure both commits, and say what differs."""
    required = [requirement.requirement(text) for text in asked.require]
    if not asked.workloads:
        raise InvalidField("workload", "", "the name of a workload", next_step="add -w FILE.py:FUNCTION")
    base, head = checkouts.commits(asked.folder, asked.base, asked.head)
    with checkouts.both(asked.folder, base, head, workloads=asked.workloads, requirements=asked.requirements) as sides:
        compared, remarks = _compare(asked, sides, runner)
        found = family([each.pairs for each in compared])
        found = replace(found, members=tuple(map(_told, found.members)))
        changed = git.changed_lines(asked.folder, base, head)
        judged = list(zip(compared, found.members, strict=True))
        slower = [(each, pair) for each, pair in judged if pair.decision is ComparisonDecision.SLOWER]
        notices = tuple(_notice(each, pair, sides[1], changed) for each, pair in slower)
    trials = [trial for each in compared for trial in each.of_head]
    answers = requirement.judge(required, trials) if required else ()
    status = requirement.status(answers) if required else ExitStatus.FINDING if slower else ExitStatus.OK
    if not all(any(trial.counts for trial in each.of_head) for each in compared):
        status = ExitStatus.FAILED
    return PullRequestAnswer(
        asked.digest,
        base,
        head,
        _line(found),
        any(each.different for each in found.members),
        status,
        _table(found),
        tuple(f"{each.name}: {pair.decision}, {_reason(each, pair)}" for each, pair in judged if pair.different),
        (*remarks, *filter(None, itertools.starmap(_remark, judged)), *(each.line for each in answers)),
        notices,
    )


def _compare(
    asked: PullRequestQuestion, sides: tuple[Checkout, Checkout], runner: Runner
) -> tuple[list[_Compared], list[str]]:
    compared, remarks = list[_Compared](), list[str]()
    end = time.monotonic() + 60 * asked.minutes
    known = [each for each in asked.workloads if _on_both(each, sides, remarks)]
    left = len(known) * len(asked.points)
    sys.path[:0] = sides[1].importable  # this process reads the workload's parameters
    for workload, point in itertools.product(known, asked.points):
        minutes = max((end - time.monotonic()) / 60 / left, 0.01)
        arms = {side: {ENVIRONMENT: each.environment} for side, each in zip("ab", sides, strict=True)}
        given = {"workloads": [checkouts.module_of(workload)], "values": point, **arms, "minutes": minutes}
        result = running.run_study("comparison", {**asked.study, **given, "alpha": ALPHA}, runner)
        compared.append(_Compared(workload, ", ".join(filter(None, (workload, pairs(point)))), result))
        left -= 1
    return compared, remarks


def _on_both(workload: str, sides: tuple[Checkout, Checkout], remarks: list[str]) -> bool:
    """Whether both sides have the workload. Adds a remark on a new workload; refuses one that the head lacks."""
    if ":" not in workload:
        return True
    module = checkouts.module_of(workload).rpartition(":")[0]
    if not sides[1].finds(module):
        raise InvalidField("workload", workload, "a module or file that exists at the head of the pull request")
    if not sides[0].finds(module):
        remarks.append(f"{workload} is new in this pull request: there is nothing to compare it with.")
        return False
    return True


def _told(pair: PairedComparison) -> PairedComparison:
    """The comparison; a difference below the smallest effect becomes undecided, even if it is significant."""
    small = pair.different and pair.size < math.log1p(pair.question.smallest_effect)
    return replace(pair, decision=ComparisonDecision.UNDECIDED) if small else pair


# ------------------------------------------------------------------ in words


def _line(found: Family) -> str:
    slower, faster = (found.count(each) for each in (ComparisonDecision.SLOWER, ComparisonDecision.FASTER))
    undecided = found.count(ComparisonDecision.UNDECIDED)
    if not found.members:
        return "Nothing was compared."
    if slower or faster:
        worst = max((each for each in found.members if each.different), key=lambda each: each.size)
        rest = len(found.members) - 1
        size = f"{worst.question.metric} {change(worst.ratio or 0.0)}"
        of = f" ({slower} slower, {faster} faster of {plural(rest + 1, 'comparison')})" if rest else ""
        return f"{str(worst.decision).capitalize()}: {worst.question.name}: {size}{of}."
    if undecided:
        return f"No difference was found: {plural(len(found.members), 'comparison')}, {undecided} undecided."
    return f"Nothing changed: {plural(len(found.members), 'comparison')}."


def _reason(compared: _Compared, pair: PairedComparison) -> str:
    why = compared.why
    seconds = f" ({duration(why['b_s'])} instead of {duration(why['a_s'])})" if why else ""
    reason = str(why.get("reason", "")).partition(f"; {ENVIRONMENT} ")[0]
    return f"{pair.question.metric} {change(pair.ratio or 0.0)}{seconds}" + (f". Why: {reason}." if reason else ".")


def _remark(compared: _Compared, pair: PairedComparison) -> str:
    """Why a comparison is undecided; empty if it is decided."""
    if pair.decision is not ComparisonDecision.UNDECIDED:
        return ""
    if PairedComparison.from_mapping(compared.result.result).different:
        return f"{compared.name}: {_reason(compared, pair)} That is below the smallest effect, and may be chance."
    return f"{compared.name}: {compared.result.line}"


def _table(found: Family) -> str:
    if not found.members:
        return ""
    table = whole_table(found.members)
    return to_markdown(replace(table, heads=tuple(_HEADS.get(each, each) for each in table.heads)))


_HEADS = {"B / A": "head / base", "B is": "head is"}


def _notice(
    compared: _Compared, pair: PairedComparison, head: Checkout, changed: Mapping[str, Sequence[int]]
) -> Notice:
    file, line = place(compared.why, head.folder, changed, compared.workload)
    return Notice(file, line, f"Slower: {compared.name}", _reason(compared, pair))
