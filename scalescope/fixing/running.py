"""From a script to proven patches: record it, rewrite what a finding names, prove the patch, and record again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import libcst

from scalescope.analysis.difference import Account
from scalescope.errors import InfrastructureError, UsageError
from scalescope.fixing import page, swept
from scalescope.fixing.copies import copy
from scalescope.fixing.outcome import Guarded, Outcome, run
from scalescope.fixing.parameters import FixParameters
from scalescope.fixing.proof import HOPELESS, LOOKS, Proof, Which, prove
from scalescope.fixing.result import Fix, LeftAlone, Tried, diff, shown
from scalescope.fixing.subject import Subject
from scalescope.fixing.usage import Usage
from scalescope.model import parameters
from scalescope.model.fields import Scalar
from scalescope.model.finding import META_OF, Evidence, Finding, Severity
from scalescope.model.trial import Trial
from scalescope.model.words import duration
from scalescope.own_code.script import Program, run_script
from scalescope.remedies import REWRITES, rewrites
from scalescope.remedies.meta_given import common
from scalescope.remedies.source import NotHere, Patched, Setting, Values
from scalescope.report import run_difference
from scalescope.run import price_table
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner, RunStep

SCRIPTS = 5  # time limit of all pairs of a patch, as a multiple of the script's own time, unless the user sets one
MOST = 6  # most proven patches, each on top of the ones before
LIMIT = 10.0  # time limit of a run, as a multiple of the script's own time
LEAST_S = 60.0  # seconds that a run may always take
FEWEST = LOOKS[0]
PARTS = 3  # most parts of the saved seconds that an answer names
SETTING = "setting"  # takes the place of a rewrite's name, if the finding itself names the value

Says = Callable[[str], object]

RETRIED = (OSError, InfrastructureError)
RECORD: RunStep[Any] = RunStep("record", lambda record: record(), lambda record: "Record the program", RETRIED)
PROVE: RunStep[Proof] = RunStep(
    "prove",
    lambda what, prove: prove(),
    lambda what, prove: f"Prove: {what}",
    RETRIED,
    outcome=lambda proof: ("" if proof.proven else "Withdrawn", proof.line),
)


def fix(
    program: Program | Subject,
    *,
    budget_s: float | None = None,  # seconds for the pairs of each patch; None: `SCRIPTS` times the script's time
    side_effects: bool = False,  # True if the script may write elsewhere and connect to other machines
    says: Says = lambda text: None,
    agrees: Callable[[], bool] = lambda: True,  # called before anything runs; True: go on
    runner: Runner | None = None,  # carries out the recordings and proofs; None: this process
) -> Fix:
    """Find proven patches of a script; the user's own files are not changed.

    Raises `UsageError` for a program that cannot be patched or if `agrees` returns False, and `SideEffect`.
    """
    subject = program if isinstance(program, Subject) else Subject.of(program)
    budget = f"{SCRIPTS} times as long as the first run" if budget_s is None else duration(budget_s)
    often = f"{2 * FEWEST} times or more ({2 * HOPELESS} if the patch makes it slower)"
    if subject.virtual:
        often = "twice or more"
    says(
        f"{subject.name} runs in copies of {subject.root}: once to record it, then {often} for each patch. Half "
        f"of these runs are without the patch. The runs for a patch take up to {budget}."
    )
    if not agrees():
        raise UsageError("nothing was run")
    with tempfile.TemporaryDirectory(prefix="scalescope-fix-") as folder:
        found = _Fixing(subject, Path(folder).resolve(), budget_s, side_effects, says, runner or Runner())()
    if runner:
        runner.publish(lambda: page.publication(subject, found))
    return found


def fix_asked(given: Mapping[str, Any], runner: Runner) -> Fix:
    """Fix what declared parameters (`FixParameters`) name; raises `InvalidField`, and what `fix` raises."""
    parameters.reject_unknown(given, FixParameters)
    asked = parameters.check(FixParameters, given)
    subject = Subject.asked(asked)
    runner.label([f"workload:{subject.name}"])

    def says(text: str) -> None:
        runner.tell(Progress(0, 0, text, notable=True))

    return fix(subject, budget_s=asked.budget_s or None, side_effects=asked.side_effects, says=says, runner=runner)


@dataclass(frozen=True)
class _Version:
    """Files and values that a run of the subject uses in place of the user's own."""

    files: Mapping[Path, bytes] = field(default_factory=dict)  # contents of the files, by relative path
    values: Mapping[str, Scalar] = field(default_factory=dict)
    gets: Values = "same"  # values that its client gets, compared with the version before it


@dataclass(frozen=True)
class _Recording:
    """A recorded run of the current version, and its findings."""

    outcome: Outcome
    findings: Sequence[Finding]
    usage: Usage
    hints: Sequence[str] = ()
    accounts: Sequence[tuple[Trial, Account]] = ()  # trial and account of each cluster


class _Fixing:
    def __init__(
        self,
        subject: Subject,
        folder: Path,
        budget_s: float | None,
        side_effects: bool,
        says: Says,
        runner: Runner,
    ) -> None:
        self.runner, self.prices = runner, price_table.load()
        self.subject, self.root, self.folder = subject, subject.root, folder
        self.budget_s, self.side_effects, self.says = budget_s, side_effects, says
        self.before: dict[Path, bytes] = {}
        self.current = _Version(values=subject.values)  # files and values with all proven patches
        self.runs = 0

    def __call__(self) -> Fix:
        proven: list[Tried] = []
        withdrawn: list[Tried] = []
        left: list[LeftAlone] = []
        refused: list[_Version] = []
        notes: list[str] = []
        record = self.runner.do(RECORD, self._record)
        while True:
            if record.outcome.status != 0:
                ends = f"{self.subject.name} ends with status {record.outcome.status} ({record.outcome.error})"
                notes.append(f"{ends}: fix that first.")
                break
            notes = [] if record.findings else list(record.hints)
            before = self.current
            tried = self._next(record, refused, withdrawn, left)
            if tried is None:
                break
            again, proof = self.runner.do(RECORD, self._record), tried.proof
            if dear := record.usage.dearer(again.usage, proof.original_s or 0.0, proof.patched_s or 0.0, self.prices):
                withdrawn.append(replace(tried, proof=replace(proof, proven=False, reason=dear)))
                self.says(f"  {withdrawn[-1].proof.line}")
                refused.append(self.current)
                self.current = before
                continue
            proof = replace(proof, uses=record.usage.words(again.usage))
            proven.append(replace(tried, proof=proof, why=_why(record.accounts, again.accounts)))
            left.clear()
            record = again
            if len(proven) == MOST:
                break
        return Fix(
            *(self.subject.file, self.root, self.before, self.current.files),
            self.subject.difference(self.subject.values, self.current.values),
            self.subject.sweep(self.current.values),
            *(tuple(proven), tuple(withdrawn), tuple(left), tuple(notes)),
        )

    def _record(self) -> _Recording:
        guarded = self._guarded(self.current)
        if self.subject.cluster:
            outcome = self._run(self.current, guarded, swept.LIMIT_S)
            if outcome.status:
                return _Recording(outcome, (), Usage(0, 0))
            trial, findings, account = swept.trial_of(guarded)
            return _Recording(outcome, _worth(findings), Usage.of([trial]), (), [(trial, account)])
        program = self.subject.at(guarded.copy.folder, self.current.values, guarded.environ())
        with guarded.file("out").open("wb") as out:
            done = run_script(program, says=self.says, stdout=out.fileno())
        guarded.check()
        outcome = guarded.outcome(done.status or 0, done.real_s, 0)
        accounts = [(each.trial, known) for each in done.found if (known := each.account)]
        hints = (*done.problems, *done.hints)
        findings = [each for diagnosis in done.found for each in diagnosis.findings]
        findings = _with_metas(_worth(findings), outcome)
        return _Recording(outcome, findings, Usage.of([each.trial for each in done.found]), hints, accounts)

    def _next(
        self, record: _Recording, refused: list[_Version], withdrawn: list[Tried], left: list[LeftAlone]
    ) -> Tried | None:
        """The first proven patch, or None; the lists get the patches that failed and the findings without a patch."""
        for finding in record.findings:
            reasons: list[str] = []
            is_tried = False
            for name, what, version in self._versions(finding, reasons):
                if version in refused or version == self.current:
                    continue
                text = self._difference(version)
                self.says(f"✗ {finding.line}\n{text}")
                proof = self.runner.do(PROVE, what, partial(self._prove, record.outcome, version))
                tried = Tried(finding.code, finding.line, name, what, text, proof)
                self.says(("✓ " if proof.proven else "  ") + proof.line)
                if proof.proven:
                    for file in version.files:
                        self.before.setdefault(file, (self.root / file).read_bytes())
                    self.current = replace(version, gets="same")
                    return tried
                is_tried = True
                refused.append(version)
                withdrawn.append(tried)
            if reasons and not is_tried and finding.severity is not Severity.INFO:
                left.append(LeftAlone(finding.code, finding.line, reasons[0]))
        return None

    def _versions(self, finding: Finding, reasons: list[str]) -> Iterator[tuple[str, str, _Version]]:
        """(rewrite, its change in words, version) of each remedy that applies; `reasons` collects why others do not."""
        current = self.current
        if settings := self.subject.settings(finding, current.values):
            yield SETTING, self._told(settings), replace(current, values={**current.values, **settings})
        elif finding.code not in REWRITES:
            reasons.append("Scalescope knows no safe rewrite of code for this remedy")
        for name, rewrite in rewrites(finding.code):
            file = self._file(finding)
            if file is None:
                reasons.append("the file of this finding is not in the script's folder")
                return
            source = current.files.get(file) or (self.root / file).read_bytes()
            try:
                answer = rewrite(libcst.parse_module(source), finding, finding.place)
            except libcst.ParserSyntaxError as error:
                answer = NotHere(f"the file cannot be read ({error.message})")
            match answer:
                case NotHere(reason):
                    reasons.append(f"not here, because {reason}")
                case Setting():
                    now = current.values.get(answer.name)
                    if not self.subject.workload.endswith(f":{answer.function}") or not isinstance(now, int):
                        reasons.append(
                            f"not here, because `{answer.name}` is a parameter of `{answer.function}`: "
                            "its callers choose it"
                        )
                        continue
                    values: dict[str, Scalar] = {answer.name: answer.change(now)}
                    yield name, self._told(values), replace(current, values={**current.values, **values})
                case Patched() if answer.module.bytes != source:
                    files = {**current.files, file: answer.module.bytes}
                    yield name, answer.what, replace(current, files=files, gets=answer.values)

    def _told(self, values: Mapping[str, Scalar]) -> str:
        return ", ".join(self.subject.written(values))

    def _difference(self, version: _Version) -> str:
        """Diff from the current, proven version to this one."""
        patched = [
            diff(name, self.current.files.get(name) or (self.root / name).read_bytes(), content)
            for name, content in version.files.items()
        ]
        return shown("".join(patched)) + self.subject.difference(self.current.values, version.values)

    def _prove(self, recorded: Outcome, patched: _Version) -> Proof:
        versions: Mapping[Which, _Version] = {"a": self.current, "b": patched}
        limit_s = swept.LIMIT_S if self.subject.cluster else max(LEAST_S, LIMIT * recorded.seconds)

        def once(which: Which) -> Outcome:
            return self._run(versions[which], self._guarded(versions[which]), limit_s)

        budget_s = SCRIPTS * recorded.seconds if self.budget_s is None else self.budget_s
        return prove(
            once,
            recorded,
            budget_s=budget_s,
            says=self.says,
            values=patched.gets,
            virtual=self.subject.virtual,
        )

    def _run(self, version: _Version, guarded: Guarded, limit_s: float) -> Outcome:
        """Run the program; if it runs as a sweep, the seconds are those of the trial."""
        store = swept.address(guarded) if self.subject.cluster else ""
        program = self.subject.at(guarded.copy.folder, version.values, guarded.environ(), store)
        outcome = run(program.command, guarded, cwd=Path(program.folder or "."), limit_s=limit_s)
        if not store or outcome.status:
            return outcome
        metrics = swept.trial_of(guarded)[0].metrics
        assert metrics is not None
        return replace(outcome, seconds=metrics.elapsed_s)

    def _guarded(self, version: _Version) -> Guarded:
        self.runs += 1
        made = copy(self.root, self.folder / str(self.runs) / self.root.name, version.files)
        return Guarded(self.folder, made, self.side_effects)

    def _file(self, finding: Finding) -> Path | None:
        """The finding's file relative to the folder (by default the script); None unless exactly one file fits."""
        place = finding.place
        script = self.subject.file
        if place is None or place.file == script.name:
            return script.relative_to(self.root)
        found = [each for each in script.parent.rglob(place.file) if each.is_file()]
        inside = [each for each in found if "site-packages" not in each.parts]
        return inside[0].relative_to(self.root) if len(inside) == 1 else None


def _with_metas(findings: Sequence[Finding], outcome: Outcome) -> list[Finding]:
    """The findings, with the `meta=` of functions that Dask called to learn what they return."""
    known = {name: meta for name, metas in outcome.metas.items() if (meta := common(metas))}
    more = tuple(Evidence(META_OF + name, meta, "this run") for name, meta in known.items())
    return [replace(each, evidence=(*each.evidence, *more)) if more else each for each in findings]


def _why(before: Sequence[tuple[Trial, Account]], after: Sequence[tuple[Trial, Account]]) -> str:
    """Largest parts of the saved seconds, on the cluster that saved most; empty if none saved any."""
    if len(before) != len(after):
        return ""
    sides = zip(before, after, strict=True)
    found = [run_difference.of_accounts([a], [b], labels=("original", "patched")) for a, b in sides]
    best = min(found, key=lambda each: each.found.seconds, default=None)
    return best.largest(PARTS) if best and best.found.seconds < 0 else ""


def _worth(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that may be worth a patch, the worst first."""
    trusted = [each for each in findings if not each.limits_trust]
    named = [each for each in trusted if each.severity is not Severity.INFO or each.code in REWRITES]
    return sorted((each for each in named if each.remedy and each.code != "healthy"), key=Finding.rank)
