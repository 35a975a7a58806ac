"""Report of a search for a release: the candidates, their results, and the boundary."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalescope.model.study import Study
from scalescope.model.trial import Trial
from scalescope.model.words import pairs, plural
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.release.judge import ALPHA, CandidateState, Mode, ReleaseDecision
from scalescope.studies.report import common
from scalescope.studies.report.pictures import Picture
from scalescope.studies.report.sheet import Note, Sheet, number, share
from scalescope.studies.symptom import quantity

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

WORDS = {
    CandidateState.GOOD: "good",
    CandidateState.BAD: "bad",
    CandidateState.UNAVAILABLE: "could not be installed",
    CandidateState.UNDECIDED: "undecided",
    CandidateState.OPEN: "not decided yet",
}
TONES = {CandidateState.GOOD: Tone.GOOD, CandidateState.BAD: Tone.BAD}
ENDED = {
    ReleaseDecision.FOUND: "two neighbours were seen: one good, the next bad",
    ReleaseDecision.BETWEEN: "some candidates between the last good and the first bad one could not be judged",
    ReleaseDecision.NO_DIFFERENCE: "the bad end is no worse than the good end, so nothing was searched",
    ReleaseDecision.GOOD_END_BAD: "the good end already shows the symptom, so nothing was searched",
    ReleaseDecision.NO_END: "the good end or the bad end could not be judged, so nothing was searched",
    ReleaseDecision.UNFINISHED: "not yet, since there is more to try",
}


@dataclass(frozen=True)
class CandidateRow:
    """A candidate's row in the table; `state` is None if it was not tried."""

    label: str
    state: CandidateState | None
    words: str = ""
    trials: int = 0
    measured: float | None = None  # median of the metric; None if the search is for a finding, or no trial is valid
    boundary: str = ""  # `last good`, `first bad` or empty

    @property
    def word(self) -> str:
        return WORDS[self.state] if self.state else "not tried"

    @property
    def style(self) -> str:
        return "open" if self.state is None else "undecided" if self.state is CandidateState.OPEN else str(self.state)


def candidates(study: Study, runs: Sequence[SweepRun]) -> tuple[CandidateRow, ...]:
    tried = {each["index"]: each for each in study.result.get("tried", ())}
    trials = _trials(study, runs)
    ends = {
        study.result[name]["index"]: name.replace("_", " ")
        for name in ("last_good", "first_bad")
        if study.result.get(name)
    }
    found = []
    for index, label in enumerate(_question(study)["labels"]):
        own, one = trials.get(index, []), tried.get(index)
        measured = _measured(study, own)
        if one is None:
            found.append(CandidateRow(label, None, trials=len(own), measured=measured))
            continue
        state = CandidateState(one["state"])
        words = _reason(own) if state is CandidateState.UNAVAILABLE else ""
        found.append(CandidateRow(label, state, words or one["words"], one["trials"], measured, ends.get(index, "")))
    return tuple(found)


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    every = candidates(study, runs)
    return Sheet(
        table=_table(study, every) if any(each.state for each in every) else None,
        notes=tuple(_notes(study, every)),
        asked=tuple(_asked(study, runs)),
        sure=(*_sure(study), *common.trials(runs)),
        changelog=str(study.result.get("changelog", "")),
    )


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    return Picture(strip=candidates(study, runs))


def _question(study: Study) -> Mapping[str, Any]:
    """Question of the search that gave the answer: the first one, or a later one among commits."""
    found: Mapping[str, Any] = {**study.question, **study.result.get("question", {})}
    return found


def _trials(study: Study, runs: Sequence[SweepRun]) -> dict[int, list[Trial]]:
    texts = study.result.get("environments") or study.question["environments"]
    places = {text: index for index, text in enumerate(texts)}
    found: dict[int, list[Trial]] = {}
    for trial in (trial for run in runs for trial in run.trials if not trial.warmup):
        if trial.point.environment in places:
            found.setdefault(places[trial.point.environment], []).append(trial)
    return found


def _measured(study: Study, trials: Sequence[Trial]) -> float | None:
    if study.question["mode"] != Mode.METRIC:
        return None
    metric = quantity(study.question["metric"])
    values = [value for trial in trials if (value := metric.of(trial)) is not None]
    return statistics.median(values) if values else None


def _reason(trials: Sequence[Trial]) -> str:
    return next((trial.reason.strip().splitlines()[0] for trial in trials if trial.reason.strip()), "")


def _table(study: Study, every: Sequence[CandidateRow]) -> ReportTable:
    subject = study.question.get("subject") or "with the change of"
    metric = study.question["metric"] if any(each.measured is not None for each in every) else ""
    rows = []
    for each in every:
        if each.state is None:
            continue
        is_it = each.word + (f", the {each.boundary.split()[0]}" if each.boundary else "")
        cells = (each.label, is_it, *((number(each.measured),) if metric else ()), f"{each.trials:,}", each.words)
        rows.append(Row(cells, TONES.get(each.state, Tone.DOUBT)))
    heads = (subject, "is", *((metric,) if metric else ()), "trials", "what was seen")
    numeric = frozenset(range(2, len(heads) - 1))
    return ReportTable("What was tried, in the order of the releases", heads, tuple(rows), numeric)


def _notes(study: Study, every: Sequence[CandidateRow]) -> list[Note]:
    result = study.result
    notes = [Note(line) for line in result.get("earlier", ())]
    good, bad = (next((each for each in every if each.boundary == name), None) for name in ("last good", "first bad"))
    if good and bad:
        notes.append(Note(f"Last good: {good.label} → first bad: {bad.label}."))
    skipped = [each["label"] for each in result.get("skipped", ())]
    if skipped:
        notes.append(Note(f"Between them, neither good nor bad: {', '.join(skipped)}.", Tone.DOUBT))
    if result.get("also_changed"):
        notes.append(Note(f"Also changed between them: {result['also_changed']}.", Tone.DOUBT))
    if result.get("further"):
        notes.append(Note(f"Not narrowed down further: {result['further']}", Tone.DOUBT))
    untried = sum(each.state is None for each in every)
    if untried and result:
        notes.append(Note(f"{untried:,} of {len(every):,} candidates were not tried.", Tone.FAINT))
    return notes


def _asked(study: Study, runs: Sequence[SweepRun]) -> list[tuple[str, str]]:
    question = _question(study)
    labels = question["labels"]
    subject = question.get("subject") or "a change between two lock files"
    return [
        ("Which", f"{subject}: the first of {plural(len(labels), 'candidate')} that {question['symptom']}"),
        ("From", f"{labels[0]} (good) to {labels[-1]} (bad)"),
        *([("Together with", str(question["together_with"]))] if question.get("together_with") else []),
        *common.asked(study, runs, environment=False),
        ("Limits", pairs({"max_environments": question["max_candidates"], "max_pairs": question["max_pairs"]})),
    ]


def _sure(study: Study) -> list[tuple[str, str]]:
    result: Mapping[str, Any] = study.result
    if not result:
        return []
    rule = f"once the probability of a wrong decision, estimated from all trials, is at most {share(ALPHA)}"
    if study.question["mode"] == Mode.METRIC:
        smallest = share(study.question["smallest_effect"])
        rule = (
            f"by interleaved pairs with the good end; at most {share(ALPHA)} of decisions may be wrong. The ends must "
            f"differ by {smallest}"
        )
    return [
        ("How it ended", ENDED[ReleaseDecision(result["decision"])]),
        ("A candidate is decided", rule),
        ("Several changes", "if the symptom came, went and came back, this boundary is not always the first one"),
    ]
