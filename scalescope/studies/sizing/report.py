"""Report of a search for a cluster: the configurations that were tried, what limits each, and what is uncertain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from scalescope.diagnosis import causes
from scalescope.model.study import Study
from scalescope.model.words import MISSING, capital, number, pairs, plural, seconds, size
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.report import common
from scalescope.studies.report.pictures import Picture
from scalescope.studies.report.sheet import Note, Sheet
from scalescope.studies.sizing.choice import Configuration, Sizing
from scalescope.studies.sizing.parameters import ASKED, seconds_of

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

ROLES = ("chosen", "best", "cheapest", "smallest")
OTHERS = 5  # other configurations in the table: the fastest ones


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    asked = [*common.asked(study, runs[:1]), ("Asked for", pairs(_asked(study)))]
    asked = [(term, text) for term, text in asked if text]
    if not study.result:
        return Sheet(None, asked=tuple(asked), sure=tuple(common.trials(runs)))
    found = Sizing.from_mapping(study.result)
    sure = [("Simulated", plural(len(found.configurations), "cluster")), *common.trials(runs)]
    others = ", ".join(name for name in found.code if name != found.form)
    code = (f"Code ({found.form}; other forms with --as: {others})", found.code[found.form]) if found.code else ("", "")
    deadline_s = seconds_of("deadline", study.question.get("deadline", ""))
    return Sheet(_table(found, deadline_s), tuple(_notes(found)), tuple(asked), tuple(sure), code=code)


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    return Picture()


def _asked(study: Study) -> dict[str, object]:
    return {name: study.question[name] for name in ASKED if study.question.get(name)}


def _table(found: Sizing, deadline_s: float | None) -> ReportTable:
    named: dict[tuple[int, int], tuple[list[str], Configuration]] = {}
    for role in ROLES:
        if (each := getattr(found, role)) is not None:
            named.setdefault((each.workers, each.threads), ([], each))[0].append(role)
    rows = [Row(_cells(each, ", ".join(roles), deadline_s)) for roles, each in named.values()]
    others = [each for each in found.configurations if (each.workers, each.threads) not in named]
    others = sorted(others, key=lambda each: (bool(each.unfit), each.predicted_s))[:OTHERS]
    rows += [Row(_cells(each, "", deadline_s), Tone.FAINT) for each in others]
    heads = ("workers × threads", "memory", "seconds", "80 % interval", found.currency or "core-hours", "remarks")
    return ReportTable("Clusters, from what was measured", heads, tuple(rows), frozenset({0, 1, 2, 3, 4}))


def _cells(each: Configuration, role: str, deadline_s: float | None) -> tuple[str, ...]:
    limits = [each.limit_text, *(causes.by_code()[code].title for code in each.also)]
    in_time = f"in time in {each.in_time(deadline_s)} of runs" if deadline_s and not each.unfit else ""
    remarks = [role, in_time, *([f"does not fit: {each.unfit}"] if each.unfit else limits)]
    return (
        f"{each.workers:,} × {each.threads:,}" + ("" if each.measured_threads else " ?"),
        size(each.memory_mb * 2**20) if each.memory_mb else MISSING,
        seconds(each.predicted_s),
        f"{seconds(each.low_s)} to {seconds(each.high_s)}",
        number(each.core_hours, 2) if each.money is None else f"{each.money:,.2f}",
        "; ".join(filter(None, remarks)),
    )


def _notes(found: Sizing) -> Iterator[Note]:
    if any(not each.measured_threads for each in found.configurations):
        yield Note("?: workers with this number of threads were not measured.")
    if found.too_long:
        yield Note(f"{capital(found.too_long.text)}.", Tone.BAD)
    if group := found.second_group:
        small, large = (size(each * 2**20) for each in (group.others_mb, group.memory_mb))
        yield Note(
            f"`{group.prefix}` ({plural(group.tasks, 'task')}) needs more memory than any other stage: "
            f"{plural(group.workers, 'worker')} with {large} each, and {small} for each other worker, suffice. The "
            "code makes both groups."
        )
    for each in found.unsure:
        yield Note(f"Unsure: {each}.", Tone.DOUBT)
    how = "--measure runs it" if "sweep" in found.code else "run the script on such a cluster, then size that run"
    for one in found.measurements:
        shape = f"{plural(one.workers, 'worker')} × {plural(one.threads, 'thread')}"
        yield Note(f"A run on {shape} would make the choice surer: {one.why} ({how}).", Tone.DOUBT)
