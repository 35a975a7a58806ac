"""The result of a check, as data and as text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalescope.errors import ExitStatus
from scalescope.model.finding import Finding, Severity
from scalescope.model.mapping import Mapped
from scalescope.model.words import duration, percent, plural, size

if TYPE_CHECKING:
    from scalescope.report.brief import BriefAnswer
    from scalescope.report.table import ReportTable

LAYERS = 8  # most layers that are shown
FINDS = (Severity.HIGH, Severity.MEDIUM)  # severities for which the command exits with 1


@dataclass(frozen=True)
class Layer(Mapped):
    """A layer of the graph: the tasks of one step."""

    name: str
    tasks: int
    nbytes: float  # bytes of all results of the layer
    block: float  # bytes of the layer's largest result
    where: str = ""  # line of the user's code that made the layer, such as `my_job.py:14 in run`; empty if unknown


@dataclass(frozen=True)
class PeakMemory(Mapped):
    """Most memory that results take; Dask's own scheduler placed the tasks, on a virtual clock."""

    workers: int
    threads: int  # threads of each worker
    nbytes: float  # most bytes that all workers together hold at any moment
    fullest: float  # most bytes that a single worker holds at any moment


@dataclass(frozen=True)
class Checked(Mapped):
    """Answer of a check; sizes are in bytes, times in seconds."""

    about: str
    tasks: int
    widest: int  # number of tasks that can run at once; more threads have nothing to do
    critical_path: int  # number of tasks that must run one after another
    input_bytes: float
    result_bytes: float  # bytes of the results of all tasks
    largest_block: float
    sizes_told: float  # share of tasks, from 0 to 1, whose size is known from metadata; other sizes are assumed
    graph_bytes: int  # bytes of the graph that the client sends
    plan_s: float  # seconds to optimise the graph
    materialise_s: float  # seconds to make the tasks of the graph
    pack_s: float  # seconds to pack the graph
    analysis_s: float  # seconds of the whole check, without scheduling on the virtual clock
    findings: tuple[Finding, ...] = ()
    layers: tuple[Layer, ...] = ()  # the layers with most tasks
    memory: PeakMemory | None = None
    no_memory: str = ""  # reason why peak memory is unknown
    stopped_at: str = ""  # line of the user's code at which the check stopped, since it needs a value
    stopped_by: str = ""  # call that needs a value, such as `compute`
    notes: tuple[str, ...] = ()

    @property
    def cap(self) -> int:
        """Most threads that can work at once; with one thread each, also most workers."""
        return self.widest

    @property
    def stands_out(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.severity in FINDS)

    @property
    def status(self) -> ExitStatus:
        return ExitStatus.FINDING if self.stands_out else ExitStatus.OK

    @property
    def line(self) -> str:
        if not self.stands_out:
            return f"Nothing stands out: {plural(self.tasks, 'task')}, at most {plural(self.cap, 'thread')} can work."
        return self.stands_out[0].summary

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the result, as text for people."""
        told = "" if self.sizes_told > 0.995 else f" (sizes of {percent(1 - self.sizes_told)} of the tasks are assumed)"
        rows = [
            ("tasks", f"{self.tasks:,}"),
            ("cap on threads", f"at most {plural(self.cap, 'thread')} can work at once; more would idle"),
            ("critical path", f"{plural(self.critical_path, 'task')} one after another"),
            ("inputs", f"{size(self.input_bytes)}; all results {size(self.result_bytes)}{told}"),
            ("largest block", size(self.largest_block)),
            ("peak memory", self._memory()),
            (
                "planning",
                f"{duration(self.plan_s + self.materialise_s)}, of which {duration(self.materialise_s)} on "
                "the scheduler",
            ),
            ("sending", f"{size(self.graph_bytes)}, packed in {duration(self.pack_s)}"),
        ]
        if self.stopped_at:
            rows.append(("stopped at", f"{self.stopped_at}, by `{self.stopped_by}`; nothing was computed"))
        return rows

    def _memory(self) -> str:
        if self.memory is None:
            return self.no_memory or "unknown without a number of workers"
        shape = f"{plural(self.memory.workers, 'worker')} x {plural(self.memory.threads, 'thread')}"
        return f"{size(self.memory.nbytes)} in all on {shape}; {size(self.memory.fullest)} on the fullest worker"

    def table(self) -> ReportTable:
        from scalescope.report.table import ReportTable

        cells = [
            (each.name, f"{each.tasks:,}", size(each.nbytes), size(each.block), each.where)
            for each in self.layers[:LAYERS]
        ]
        return ReportTable.of("Steps", ("step", "tasks", "bytes", "largest block", "line"), cells)

    def brief(self, next: Sequence[str] = ()) -> BriefAnswer:
        from scalescope.report.brief import of_findings

        notes = [f"{name}: {value}" for name, value in self.facts()] + list(self.notes)
        return of_findings(self.about, self.line, self.findings, table=self.table(), notes=notes, next=next)

    def __str__(self) -> str:
        lines = [self.line if not self.findings else ""]
        for each in self.findings:
            at = f" ({each.place.file}:{each.place.line})" if each.place else ""
            lines.append(f"{each.severity.word}: {each.code}{at}: {each.line}")
        width = max(len(name) for name, _ in self.facts())
        lines += ["", *(f"{name:{width}}  {value}" for name, value in self.facts()), *self.notes]
        return "\n".join(lines).strip()

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>{html.escape(value)}"
            "</td></tr>"
            for name, value in self.facts()
        )
        found = "".join(f"<li><b>{html.escape(each.code)}</b>: {html.escape(each.line)}</li>" for each in self.findings)
        return f"<p>{html.escape(self.line)}</p><ul>{found}</ul><table>{rows}</table>"
