"""From a script to proven patches: record it, rewrite what a finding names, prove that, and look again."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import libcst

from scalescope.errors import UsageError
from scalescope.fixing.copies import copy
from scalescope.fixing.outcome import Guarded, Outcome, run
from scalescope.fixing.proof import LOOKS, Proof, Which, prove
from scalescope.model.finding import Finding, Severity
from scalescope.model.words import duration
from scalescope.own_code.diagnosis import Diagnosis
from scalescope.own_code.script import Program, run_script
from scalescope.remedies import REWRITES, rewrites
from scalescope.remedies.source import NotHere

SCRIPTS = 5  # times the script's own time that all pairs of one patch may take, by default
MOST = 6  # patches that are proven one after another
LIMIT = 10.0  # times the script's own time, after which a run of it is stopped
LEAST_S = 60.0  # seconds that a run may take in any case
FEWEST = LOOKS[0]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

Says = Callable[[str], object]


@dataclass(frozen=True)
class Tried:
    """A patch for one finding, and what its proof says."""

    code: str  # of the cause
    finding: str  # its line
    rewrite: str  # name of the rewrite
    what: str  # what was changed, as a clause
    diff: str
    proof: Proof


@dataclass(frozen=True)
class LeftAlone:
    """A finding whose code was left alone, and why."""

    code: str
    finding: str
    reason: str


@dataclass(frozen=True)
class Fix:
    """What became of a script's findings."""

    script: Path
    root: Path  # folder to which the names of files are relative
    before: Mapping[Path, bytes]  # contents of the files that are patched, by relative path
    after: Mapping[Path, bytes]
    proven: tuple[Tried, ...] = ()
    withdrawn: tuple[Tried, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def patch(self) -> str:
        """All proven patches as one, as `git apply` takes it; empty if there is none."""
        return "".join(diff(name, self.before[name], self.after[name]) for name in sorted(self.after))

    @property
    def times(self) -> float:
        """How many times as fast the script is with all proven patches."""
        product = 1.0
        for each in self.proven:
            product *= each.proof.times or 1.0
        return product

    def to_json(self) -> dict[str, Any]:
        return {
            "script": str(self.script),
            "patch": shown(self.patch),
            "times": self.times,
            **{name: [asdict(each) for each in getattr(self, name)] for name in ("proven", "withdrawn", "left")},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        for each in self.proven:
            yield f"✗ {each.finding}"
            yield each.diff.rstrip("\n")
            yield f"✓ {each.proof.line}."
        for each in self.withdrawn:
            yield f"✗ {each.finding}"
            yield f"  A patch ({each.what}) was {each.proof.line}."
        for alone in self.left:
            yield f"✗ {alone.finding}"
            yield f"  No patch: {alone.reason}."
        yield from self.notes
        if not (self.proven or self.withdrawn or self.left):
            yield "✓ Nothing to patch."


def fix(
    program: Program,
    *,
    budget_s: float | None = None,  # seconds for the pairs of each patch; None: `SCRIPTS` times the script's own
    side_effects: bool = False,  # whether it may write elsewhere and connect to other machines
    says: Says = lambda text: None,
    agrees: Callable[[], bool] = lambda: True,  # asked before anything runs
) -> Fix:
    """Patch a script as far as patches are proven; nothing of the user's is written.

    Raises `UsageError` for what cannot be run several times, and `SideEffect`.
    """
    script, root, cwd = _place(program)
    budget = f"{SCRIPTS} times its own time" if budget_s is None else duration(budget_s)
    says(
        f"{script.name} runs in copies of {root}: once to record it, then for each patch at least {2 * FEWEST} times, "
        f"with and without it, for up to {budget}."
    )
    if not agrees():
        raise UsageError("nothing was run")
    with tempfile.TemporaryDirectory(prefix="scalescope-fix-") as folder:
        return _Fixing(program, script, root, cwd, Path(folder).resolve(), budget_s, side_effects, says)()


def place_of(program: Program) -> Path:
    """The script; `UsageError` if the program is none."""
    return _place(program)[0]


def _place(program: Program) -> tuple[Path, Path, Path]:
    """The script, the folder that is copied, and the one in which it runs; all of them absolute."""
    cwd = Path(program.folder or ".").resolve()
    script = (cwd / program.script).resolve()
    if program.is_module or script.suffix != ".py" or not script.is_file():
        named = program.script
        raise UsageError("fix patches a script", where=named, next_step="scalescope fix SCRIPT.py [ARGUMENT]...")
    root = cwd if script.is_relative_to(cwd) and cwd != Path.home() and cwd.parent != cwd else script.parent
    return script, root, cwd if cwd.is_relative_to(root) else root


class _Fixing:
    def __init__(
        self,
        program: Program,
        script: Path,
        root: Path,
        cwd: Path,
        folder: Path,
        budget_s: float | None,
        side_effects: bool,
        says: Says,
    ) -> None:
        self.program, self.script, self.root, self.cwd, self.folder = program, script, root, cwd, folder
        self.budget_s, self.side_effects, self.says = budget_s, side_effects, says
        self.before: dict[Path, bytes] = {}
        self.current: dict[Path, bytes] = {}  # the user's files with all proven patches, by relative path
        self.runs = 0

    def __call__(self) -> Fix:
        proven: list[Tried] = []
        withdrawn: list[Tried] = []
        left: list[LeftAlone] = []
        refused: set[tuple[str, str]] = set()
        notes: list[str] = []
        while True:
            recorded, found, hints = self._record()
            if recorded.status != 0:
                notes.append(
                    f"{self.script.name} ends with status {recorded.status} ({recorded.error}): mend that first."
                )
                break
            notes = [] if found else hints
            tried = self._next(found, recorded, refused, withdrawn, left)
            if tried is None:
                break
            proven.append(tried)
            left.clear()
            if len(proven) == MOST:
                break
        return Fix(
            *(self.script, self.root, self.before, self.current),
            *(tuple(proven), tuple(withdrawn), tuple(left), tuple(notes)),
        )

    def _record(self) -> tuple[Outcome, list[Finding], list[str]]:
        guarded = self._guarded(self.current)
        program = self._program(guarded)
        with guarded.file("out").open("wb") as out:
            done = run_script(program, says=self.says, stdout=out.fileno())
        guarded.check()
        outcome = guarded.outcome(done.status or 0, done.real_s, 0)
        return outcome, _worth(done.found), [*done.problems, *done.hints]

    def _next(
        self,
        found: Sequence[Finding],
        recorded: Outcome,
        refused: set[tuple[str, str]],
        withdrawn: list[Tried],
        left: list[LeftAlone],
    ) -> Tried | None:
        """The first patch that is proven; what is not is added to the lists."""
        for finding in found:
            reason = "" if finding.code in REWRITES else "its remedy is no change of a line that is known to be safe"
            is_tried = False
            for name, rewrite in rewrites(finding.code):
                file = self._file(finding)
                if file is None:
                    reason = "its file is not in the script's folder"
                    break
                source = self.current.get(file) or (self.root / file).read_bytes()
                try:
                    answer = rewrite(libcst.parse_module(source), finding, finding.place)
                except libcst.ParserSyntaxError as error:
                    answer = NotHere(f"the file cannot be read ({error.message})")
                if isinstance(answer, NotHere):
                    reason = reason or f"not here, because {answer.reason}"
                    continue
                patched = answer.module.bytes
                if patched == source or (name, patched.decode(errors="replace")) in refused:
                    continue
                text = shown(diff(file, source, patched))
                self.says(f"✗ {finding.line}\n{text}")
                proof = self._prove(recorded, {**self.current, file: patched})
                tried = Tried(finding.code, finding.line, name, answer.what, text, proof)
                self.says(("✓ " if proof.proven else "  ") + proof.line)
                if proof.proven:
                    self.before.setdefault(file, source)
                    self.current[file] = patched
                    return tried
                is_tried = True
                refused.add((name, patched.decode(errors="replace")))
                withdrawn.append(tried)
            if reason and not is_tried and finding.severity is not Severity.INFO:
                left.append(LeftAlone(finding.code, finding.line, reason))
        return None

    def _prove(self, recorded: Outcome, patched: Mapping[Path, bytes]) -> Proof:
        versions: Mapping[Which, Mapping[Path, bytes]] = {"a": dict(self.current), "b": patched}
        limit_s = max(LEAST_S, LIMIT * recorded.seconds)

        def once(which: Which) -> Outcome:
            guarded = self._guarded(versions[which])
            program = self._program(guarded)
            return run(program.command, guarded, cwd=Path(program.folder or "."), limit_s=limit_s)

        budget_s = SCRIPTS * recorded.seconds if self.budget_s is None else self.budget_s
        return prove(once, recorded, budget_s=budget_s, says=self.says)

    def _guarded(self, changed: Mapping[Path, bytes]) -> Guarded:
        self.runs += 1
        made = copy(self.root, self.folder / str(self.runs) / self.root.name, changed)
        return Guarded(self.folder, made, self.side_effects)

    def _program(self, guarded: Guarded) -> Program:
        script = guarded.copy.folder / self.script.relative_to(self.root)
        cwd = guarded.copy.folder / self.cwd.relative_to(self.root)
        named = str(script.relative_to(cwd)) if script.is_relative_to(cwd) else str(script)
        python = self.program.python
        return Program(named, self.program.arguments, False, python, str(cwd), guarded.environ())

    def _file(self, finding: Finding) -> Path | None:
        """The file of a finding, relative to the folder; the script itself where the finding names none."""
        place = finding.place
        if place is None or place.file == self.script.name:
            return self.script.relative_to(self.root)
        found = [each for each in self.script.parent.rglob(place.file) if each.is_file()]
        inside = [each for each in found if "site-packages" not in each.parts]
        return inside[0].relative_to(self.root) if len(inside) == 1 else None


def _worth(found: Sequence[Diagnosis]) -> list[Finding]:
    """Findings of all clusters that may be worth a patch, the worst first."""
    findings = [each for diagnosis in found for each in diagnosis.findings if not each.limits_trust]
    named = [each for each in findings if each.severity is not Severity.INFO or each.code in REWRITES]
    return sorted((each for each in named if each.remedy and each.code != "healthy"), key=Finding.rank)


def diff(name: Path, before: bytes, after: bytes) -> str:
    """A unified diff of a file, by its relative path; bytes that are not UTF-8 are surrogates."""
    old, new = (_LINE.findall(each.decode(errors="surrogateescape")) for each in (before, after))
    found = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n" for each in found)


def shown(text: str) -> str:
    """A text without surrogates, for terminals and JSON."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def told(found: Fix) -> str:
    """The last line: what to do."""
    if not found.proven:
        return "No patch is proven."
    count = "1 patch" if len(found.proven) == 1 else f"{len(found.proven)} patches"
    return f"{count}: {found.script.name} is {found.times:.3g} times as fast."
