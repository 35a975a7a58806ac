"""Short answers about a script, a run or a study, for people in a hurry, programs and coding agents.

An answer has at most `MOST` characters, as JSON and as text. It counts what it leaves out; `scalescope show` has all.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalescope.model.cluster import MEMORY_LIMIT_MB
from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding, Gain, Severity, Verdict
from scalescope.model.mapping import Mapped
from scalescope.model.sweep import WORKERS, Point
from scalescope.model.trial import ran_what
from scalescope.model.words import number, percent
from scalescope.report import run_tables
from scalescope.report.run_tables import ShownRun, verdict_of
from scalescope.report.table import ReportTable

SCHEMA = 1  # increased when a key changes its meaning or is removed
MOST = 6_000  # most characters of an answer, some 1,500 tokens
FINDINGS, EVIDENCE, ROWS = 3, 6, 8  # most findings, numbers of evidence per finding, and rows of the table
WIDTH = 100  # most characters of a row of the table
PROVEN_THERE = ("simulated", "light")  # kinds of clusters on which `fix` can run; for others it uses a `LocalCluster`
TEXT = 400  # texts of an answer that is too long are cut to twice this length, then to this length


@dataclass(frozen=True)
class BriefEvidence(Mapped):
    """A number that a finding rests on."""

    id: str  # the finding's id and a number: `too-few-partitions.1`
    what: str  # the quantity in words, with its unit
    value: float | int | str


@dataclass(frozen=True)
class BriefFinding(Mapped):
    """A cause: its place, fix, gain, confidence, and what would refute it."""

    id: str  # code of the cause; the second finding of the same cause is `CODE~2`
    severity: Severity
    place: str  # `FILE:LINE`; empty if unknown
    summary: str  # what is wrong and why, in a sentence
    fix: str  # what to change, with code in backticks; empty if unknown
    confidence: float  # confidence from 0 to 1
    refuted_if: str  # observation that would show that the cause is another one
    change: Mapping[str, Scalar] = field(default_factory=dict)  # parameters or configuration to change, by name
    now_s: float | None = None  # measured seconds
    predicted_s: float | None = None  # predicted seconds with the fix
    measured_s: float | None = None  # measured seconds with the fix; None if it was not run
    evidence: tuple[BriefEvidence, ...] = ()
    link: str = ""  # address of a page with more; may be empty


@dataclass(frozen=True)
class BriefTable(Mapped):
    """Measured or predicted numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0  # number of rows left out


@dataclass(frozen=True)
class BriefAnswer(Mapped):
    """Answer about a script, a run or a study."""

    about: str  # script, workload or study
    id: str  # id of the run or study, for `scalescope show`; empty if nothing was kept
    line: str  # verdict of a run, or answer of a study
    trust: tuple[str, ...] = ()  # limits of trust in the numbers, in sentences
    findings: tuple[BriefFinding, ...] = ()  # the worst first
    table: BriefTable | None = None
    notes: tuple[str, ...] = ()  # further remarks, in sentences
    next: tuple[str, ...] = ()  # commands, the most useful first
    left_out: int = 0  # number of findings left out
    schema_version: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """The answer for JSON, of at most `MOST` characters; what does not fit is left out."""
        return self.fitting(lambda each: json.dumps(each.to_mapping())).to_mapping()

    def text(self) -> str:
        """The answer as text of at most `MOST` characters; what does not fit is left out."""
        return "\n".join(_lines(self.fitting(lambda each: "\n".join(_lines(each)))))

    def fitting(self, written: Callable[[BriefAnswer], str]) -> BriefAnswer:
        """This answer, shortened step by step until `written(answer)` has at most `MOST` characters."""
        found = self
        for cut in CUTS:
            if len(written(found)) <= MOST:
                break
            found = cut(found)
        return found


# ------------------------------------------------------------------ answers from runs and studies


def of_run(run: ShownRun, id: str = "", *, notes: Iterable[str] = (), next: Sequence[str] = ()) -> BriefAnswer:
    """The answer about a run. `id`: empty if the run was not stored. `next`: commands to list before others."""
    verdict, points = verdict_of(run), run_tables.points(run.trials)
    findings = [(name, each) for name, each in named(verdict.findings) if each not in verdict.trust]
    kept = findings[:FINDINGS]
    details = [f"scalescope show {id} --finding {name}" for name, _ in kept[:1]] if id else []
    return BriefAnswer(
        run.sweep.workload,
        id,
        verdict.line,
        tuple(each.summary for each in verdict.trust),
        tuple(_finding(name, each) for name, each in kept),
        _table(run_tables.points_table(points, width=WIDTH)[0] if points else None),
        tuple(notes),
        (*next, *_commands(run, verdict), *details),
        left_out=len(findings) - len(kept),
    )


def of_answer(
    about: str,
    line: str,
    *,
    id: str = "",
    table: ReportTable | None = None,
    notes: Iterable[str] = (),
    next: Sequence[str] = (),
) -> BriefAnswer:
    """An answer without a verdict, such as a study's."""
    details = [f"scalescope show {id}"] if id else []
    return BriefAnswer(about, id, line, table=_table(table), notes=tuple(notes), next=(*next, *details))


def of_findings(
    about: str, line: str, findings: Sequence[Finding], *, table: ReportTable, notes: Iterable[str], next: Sequence[str]
) -> BriefAnswer:
    """An answer from findings alone, such as those of a graph that was checked but not run."""
    kept = tuple(_finding(name, each) for name, each in named(findings)[:FINDINGS])
    answer = BriefAnswer(about, "", line, findings=kept, table=_table(table), notes=tuple(notes), next=tuple(next))
    return replace(answer, left_out=len(findings) - len(kept))


def named(findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Findings with their ids."""
    found: dict[str, Finding] = {}
    for each in findings:
        same = sum(other.code == each.code for other in found.values())
        found[f"{each.code}~{same + 1}" if same else each.code] = each
    return list(found.items())


def _commands(run: ShownRun, verdict: Verdict) -> list[str]:
    """Commands that continue from the first finding: measure the suggested change, or patch the user's function.

    Empty if the run recorded a script.
    """
    first = verdict.findings[0] if verdict.findings else None
    if first is None or ran_what(run.trials):
        return []
    point = next((each.point for each in run.trials if each.point.id in first.points), None)
    changed = first.gain.change if first.gain and first.gain.measured_s is None else {}
    workload, cluster = ["-w", run.sweep.workload], run.sweep.cluster
    if changed:
        fields = {name: value for name, value in changed.items() if name == MEMORY_LIMIT_MB}
        values = {name: value for name, value in changed.items() if name not in fields}
        axes = _axes({WORKERS: 1, **_given(run, point), **values})
        return [shlex.join(["scalescope", "sweep", *workload, *replace(cluster, **fields).words, *axes])]
    from scalescope.remedies import REWRITES  # imported here, because importing libcst takes a second

    if ":" in run.sweep.workload and first.code in REWRITES:
        where = cluster.words if cluster.kind in PROVEN_THERE else []
        return [shlex.join(["scalescope", "fix", *workload, *where, *_axes(_given(run, point))])]
    return []


def _given(run: ShownRun, point: Point | None) -> dict[str, Scalar]:
    """The values of a point that the sweep sets; other values are defaults."""
    names = {WORKERS, *run.sweep.axes, *run.sweep.params, *(name for each in run.sweep.points for name in each)}
    return {name: value for name, value in (point.values if point else {}).items() if name in names}


def _axes(values: Mapping[str, Scalar]) -> list[str]:
    return [each for name, value in values.items() for each in ("-a", f"{name}={value}")]


def _finding(name: str, found: Finding) -> BriefFinding:
    gain, place = found.gain, found.place
    return BriefFinding(
        name,
        found.severity,
        f"{place.file}:{place.line}" if place else "",
        found.summary,
        found.remedy,
        round(found.confidence, 2),
        _refuted_if(found),
        dict(gain.change) if gain else {},
        _rounded(gain.now_s if gain else None),
        _rounded(gain.predicted_s if gain else None),
        _rounded(gain.measured_s if gain else None),
        tuple(
            BriefEvidence(f"{name}.{n}", each.what, _rounded(each.value))
            for n, each in enumerate(found.evidence[:EVIDENCE], 1)
        ),
        found.link,
    )


def _refuted_if(found: Finding) -> str:
    if found.gain is None:
        return "the time stays the same with the fix" if found.remedy else ""
    half = (found.gain.now_s + found.gain.predicted_s) / 2  # longer times are nearer to `now_s` than to `predicted_s`
    return f"the workload takes more than {number(half)} s with the fix"


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _table(table: ReportTable | None) -> BriefTable | None:
    if table is None:
        return None
    rows = [row.cells for row in table.rows]
    return BriefTable(table.heads, tuple(rows[:ROWS]), max(len(rows) - ROWS, 0))


# ------------------------------------------------------------------ shortening


def _of_first(answer: BriefAnswer, **changes: Any) -> tuple[BriefFinding, ...]:
    return tuple(replace(each, **(changes if n else {})) for n, each in enumerate(answer.findings))


def _texts(answer: BriefAnswer, limit: int) -> BriefAnswer:
    def short(text: str) -> str:
        return text if len(text) <= limit else f"{text[: limit - 1]}…"

    findings = [replace(each, summary=short(each.summary), fix=short(each.fix)) for each in answer.findings]
    notes, trust = (tuple(map(short, each[:4])) for each in (answer.notes, answer.trust))
    return replace(answer, line=short(answer.line), findings=tuple(findings), notes=notes, trust=trust)


def _small_table(answer: BriefAnswer) -> BriefAnswer:
    if answer.table is None:
        return answer
    rows = answer.table.rows
    return replace(answer, table=replace(answer.table, rows=rows[:3], left_out=answer.table.left_out + len(rows[3:])))


# Steps that shorten an answer, the least important parts first
CUTS: Sequence[Callable[[BriefAnswer], BriefAnswer]] = (
    lambda answer: replace(answer, findings=_of_first(answer, evidence=())),
    _small_table,
    lambda answer: _texts(answer, 2 * TEXT),
    lambda answer: replace(
        answer, findings=answer.findings[:1], left_out=answer.left_out + len(answer.findings[1:]), notes=()
    ),
    lambda answer: _texts(replace(answer, table=None), TEXT),
    lambda answer: replace(answer, findings=tuple(replace(each, evidence=()) for each in answer.findings)),
)


# ------------------------------------------------------------------ text


def _lines(answer: BriefAnswer) -> Iterable[str]:
    yield answer.about + (f" ({answer.id})" if answer.id else "")
    yield from (f"Trust: {each}" for each in answer.trust)
    if not answer.findings:
        yield answer.line
    for each in answer.findings:
        at = f" at {each.place}" if each.place else ""
        yield f"{each.id}{at} ({each.severity.word.lower()}, confidence {percent(each.confidence)}): {each.summary}"
        if each.evidence:
            yield "  Evidence: " + "; ".join(f"{one.what} {_value(one.value)} [{one.id}]" for one in each.evidence)
        if each.fix:
            yield f"  Fix: {each.fix}{_gain(each)}"
        if each.refuted_if:
            yield f"  Refuted if {each.refuted_if}."
    if answer.left_out:
        yield f"Findings left out: {answer.left_out}"
    if answer.table is not None:
        yield " | ".join(answer.table.heads)
        yield from (" | ".join(row) for row in answer.table.rows)
        if answer.table.left_out:
            yield f"Rows left out: {answer.table.left_out}"
    yield from answer.notes
    yield from (f"Next: {each}" for each in answer.next)


def _value(value: float | int | str) -> str:
    return value if isinstance(value, str) else number(value, 4)


def _gain(found: BriefFinding) -> str:
    if found.predicted_s is None or found.now_s is None:
        return ""
    return f" ({Gain(found.now_s, found.predicted_s, measured_s=found.measured_s)})"
