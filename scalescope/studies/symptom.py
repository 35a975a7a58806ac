"""Symptoms that studies look for in trials: a number, a comparison of numbers, or a finding."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField
from scalescope.model.fields import suggest
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.metrics import METRICS, WORKER_TIME, Metrics, numbers
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState

# Names allowed in comparisons: numbers of the point, metrics, and shares of worker time (0 to 1).
NAMES = ("workers", "threads", "items", *METRICS, *WORKER_TIME)
# Metrics whose larger values are better; for all others, smaller values are better.
LARGER_IS_BETTER = frozenset(name for name, metric in METRICS.items() if metric.larger_is_better) | {"busy"}

_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FORM = "a comparison of numbers, such as `workers_used < 0.5 * workers` or `efficiency < 0.6`"
_NUMBER = "a number that is measured, such as `makespan_s`, `tasks` or `workers_used / workers`"


@dataclass(frozen=True)
class Quantity:
    """A number computed from a valid trial, such as a metric; made by `quantity`."""

    text: str
    _tree: ast.expr

    def of(self, trial: Trial) -> float | None:
        """The value for a trial; None if the trial is not valid or the value is not finite."""
        if trial.state is not TrialState.VALID or trial.metrics is None:
            return None
        numbers = numbers_of(trial.point, trial.metrics)
        _check_present(self.text, self._tree, numbers)
        value = _value(self._tree, numbers)
        return value if math.isfinite(value) else None


@dataclass(frozen=True)
class FindingSymptom:
    """A finding that a trial must show if it is diagnosed alone, without other trials."""

    code: str
    severity: Severity = Severity.INFO  # lowest severity that counts
    state: TrialState = TrialState.VALID  # state of trials that show it: invalid if the cause makes workers end

    @property
    def words(self) -> str:
        worse = "" if self.severity is Severity.HIGH else " or worse"
        least = "" if self.severity is Severity.INFO else f", {self.severity.word}{worse}"
        return f"finding {self.code}{least}"

    def shows(self, sweep: Sweep, trial: Trial) -> bool:
        return trial.state is self.state and any(
            finding.code == self.code and finding.severity.rank <= self.severity.rank
            for finding in diagnose(sweep, [trial]).findings
        )


@dataclass(frozen=True)
class MetricSymptom:
    """A comparison that the numbers of a valid trial must meet; made by `metric_symptom`."""

    text: str
    _tree: ast.Compare

    @property
    def words(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        return _names(self._tree)

    def shows(self, sweep: Sweep, trial: Trial) -> bool:
        if not trial.counts or trial.metrics is None:
            return False
        return self.holds(numbers_of(trial.point, trial.metrics))

    def holds(self, numbers: Mapping[str, float]) -> bool:
        _check_present(self.text, self._tree, numbers)
        left, right = (_value(side, numbers) for side in (self._tree.left, self._tree.comparators[0]))
        return _COMPARE[type(self._tree.ops[0])](left, right)


Symptom = FindingSymptom | MetricSymptom


def metric_symptom(text: str) -> MetricSymptom:
    """Parse a comparison of `NAMES` and numbers with + - * / and one of < <= > >=."""
    tree = _parse(text, _FORM)
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in _COMPARE:
        raise InvalidField("metric", text, _FORM)
    _check(tree.left, text, _FORM)
    _check(tree.comparators[0], text, _FORM)
    symptom = MetricSymptom(" ".join(text.split()), tree)
    if not symptom.names:
        raise InvalidField("metric", text, f"{_FORM}; this comparison names nothing that was measured")
    return symptom


def quantity(text: str) -> Quantity:
    """Parse an expression of `NAMES` and numbers with + - * /."""
    tree = _parse(text, _NUMBER)
    _check(tree, text, _NUMBER)
    if not _names(tree):
        raise InvalidField("metric", text, f"{_NUMBER}; this expression names nothing that was measured")
    return Quantity(" ".join(text.split()), tree)


def is_comparison(text: str) -> bool:
    """Whether the text of a metric is a comparison (for `metric_symptom`), not a number (for `quantity`)."""
    return any(sign in text for sign in "<>=!")


def first_finding(verdict: Verdict, code: str = "") -> Finding:
    """The finding with this code, by default the first that is not `healthy`; raises `InvalidField` without one."""
    accusing = [finding for finding in verdict.findings if finding.code != "healthy"]
    if code:
        found = [finding for finding in accusing if finding.code == code]
        known = sorted({finding.code for finding in accusing})
        if not found:
            raise InvalidField("finding", code, f"a finding of this run, {suggest(code, known)}")
        return found[0]
    if not accusing:
        raise InvalidField(
            "finding",
            code or None,
            "a run with a finding; this run is healthy",
            next_step="specify a condition, such as the metric 'efficiency < 0.9'",
        )
    return accusing[0]


def finding_symptom(sweep: Sweep, trials: Sequence[Trial], finding: Finding) -> tuple[FindingSymptom, Trial]:
    """The finding as a symptom of single trials, and the worst trial that shows it, a valid one if possible.

    The symptom has the severity of the finding in that trial. Raises `InvalidField` if no single trial shows it.
    """
    having = [
        (alone, trial)
        for trial in trials
        if trial.point.id in finding.points and not trial.warmup
        for alone in diagnose(sweep, [trial]).findings
        if alone.code == finding.code
    ]
    if having:
        alone, trial = min(having, key=lambda item: (not item[1].counts, item[0].severity.rank, -item[0].lost_s))
        return FindingSymptom(finding.code, alone.severity, trial.state), trial
    raise InvalidField(
        "finding",
        finding.code,
        "a finding that a single trial shows; this finding comes from comparing several trials",
        next_step="name the symptom by its numbers, such as the metric 'efficiency < 0.6'",
    )


def worst_showing(symptom: MetricSymptom, sweep: Sweep, trials: Sequence[Trial]) -> Trial:
    """The trial with the smallest busy share among those that show the symptom; raises `InvalidField` without one."""
    showing = [trial for trial in trials if symptom.shows(sweep, trial)]
    if not showing:
        raise InvalidField(
            "metric",
            symptom.text,
            "a comparison that holds for a valid trial of this run",
            next_step="`scalescope show RUN --json` lists the numbers",
        )
    return min(showing, key=lambda trial: numbers_of(trial.point, trial.metrics)["busy"] if trial.metrics else 0.0)


def numbers_of(point: Point, metrics: Metrics) -> dict[str, float]:
    """The values of `NAMES` for a trial: NaN if not measured; `items` is missing if the workload has none."""
    total = sum(metrics.worker_time_s.values())
    shares = {part: metrics.worker_time_s.get(part, 0.0) / total if total > 0 else 0.0 for part in WORKER_TIME}
    items: Mapping[str, float] = {} if point.items is None else {"items": point.items}
    measured = {name: math.nan if value is None else value for name, value in numbers(metrics).items()}
    return {"workers": point.workers, "threads": point.threads, **items, **measured, **shares}


def _parse(text: str, form: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidField("metric", text, form) from error


def _names(tree: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _check_present(text: str, tree: ast.expr, numbers: Mapping[str, float]) -> None:
    if missing := _names(tree) - set(numbers):
        raise InvalidField("metric", text, f"numbers that the workload has; this workload has no {min(missing)!r}")


def _check(node: ast.expr, text: str, form: str) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        _check(node.left, text, form)
        _check(node.right, text, form)
    elif isinstance(node, ast.Name):
        if node.id not in NAMES:
            raise InvalidField("metric", text, f"numbers that are measured, each {suggest(node.id, NAMES)}")
    elif not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
        raise InvalidField("metric", text, form)


def _value(node: Any, numbers: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        if isinstance(node.op, ast.Div) and right == 0:
            return float("nan")  # every comparison with NaN is false
        return _ARITHMETIC[type(node.op)](left, right)
    return numbers[node.id] if isinstance(node, ast.Name) else float(node.value)
