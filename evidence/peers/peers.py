"""Runs the tests of other projects plainly and under the recorder.

Each suite is one process of pytest, in which many clusters follow one another. It runs by `python -m pytest`, then by
`scalescope run -m pytest`. Tests that end differently run alone, three times in both ways: one whose plain runs differ
is flaky, each other one must end the same. A run of all suites writes a section of `docs/accuracy.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- peers: begin, written by python -m evidence peers -->", "<!-- peers: end -->"
PLUGINS = ("peers_plugin.py", "peers_older.py")
FIXTURES = ("-p", "no:asyncio", "-p", "distributed.utils_test")  # has those of a `conftest.py` that is in no package
PYTEST = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-env")
# Status of a pytest that died itself: in Python 3.11, `ast.parse` fails if another thread formats a traceback meanwhile
INTERNAL_ERROR = 3
AGAIN = 3  # runs, plainly and recorded, of tests that ended differently; most runs of a suite whose pytest died
QUICK = 6  # tests of a suite with --quick
TEST_LIMIT_S = 120  # a test that takes longer fails, unless it has a limit of its own
SUITE_LIMIT_S = 2400.0  # seconds in which a suite must be over
HEAD = "| tests of | tests | passed | different | flaky | plain s | recorded s | clusters |"


@dataclass(frozen=True)
class Suite:
    """Tests of a project, and what they need."""

    name: str
    paths: tuple[str, ...]  # files with tests: in site-packages, or in the archive
    needs: tuple[str, ...]  # packages, next to dask and distributed
    archive: str = ""  # package whose source archive has the tests; empty: the installed package has them
    older: str = ""  # requirement of an older wheel that still has the tests
    options: tuple[str, ...] = ("-p", "no:asyncio")  # of pytest
    without: tuple[str, ...] = ()  # names of tests that are left out


SUITES = (
    Suite(
        "distributed",
        tuple(
            f"distributed/{file}.py"
            for file in (
                *("deploy/tests/test_local", "deploy/tests/test_spec_cluster", "diagnostics/tests/test_progressbar"),
                *("diagnostics/tests/test_task_stream", "tests/test_actor", "tests/test_as_completed"),
                *("tests/test_client", "tests/test_client_executor", "tests/test_client_loop"),
                *("tests/test_collections", "tests/test_events", "tests/test_failed_workers", "tests/test_locks"),
                *("tests/test_preload", "tests/test_publish", "tests/test_queues", "tests/test_resources"),
                *("tests/test_semaphore", "tests/test_stress", "tests/test_variable", "tests/test_worker"),
                "tests/test_worker_client",
            )
        ),
        ("numpy", "pandas", "pyarrow", "bokeh", "cryptography", "requests", "ipywidgets"),
        older="distributed==2.30.1",
        options=("-p", "no:asyncio", "-p", "peers_older"),
        without=("test_collections_get", "test_client_actions", "test_turn_off_pickle"),  # hang, or are coroutines
    ),
    Suite(
        "dask",
        (
            *("dask/tests/test_distributed.py", "dask/tests/test_layers.py", "dask/tests/test_expr.py"),
            *("dask/tests/test_delayed.py", "dask/dataframe/dask_expr/tests/test_distributed.py"),
            "dask/dataframe/dask_expr/tests/test_diagnostics.py",
            "dask/dataframe/dask_expr/io/tests/test_distributed.py",
        ),
        ("numpy", "pandas", "pyarrow", "zarr", "bokeh", "scipy", "tables"),
        options=FIXTURES,
    ),
    Suite("xarray", ("xarray/tests/test_distributed.py",), ("xarray", "h5netcdf", "h5py", "netcdf4", "scipy", "zarr")),
    Suite("joblib", ("joblib/test/test_dask.py",), ("joblib", "numpy"), options=FIXTURES),
    Suite(
        "apache-beam",
        ("apache_beam/runners/dask/dask_runner_test.py",),
        ("apache-beam", "dask[array,dataframe]"),
        options=("-p", "no:asyncio", "--peers-whole"),
    ),
    Suite("prefect-dask", ("tests",), ("prefect-dask",), archive="prefect-dask", options=("--peers-whole",)),
    Suite(
        "streamz", ("streamz/tests/test_dask.py", "streamz/dataframe/tests"), ("streamz", "flaky"), archive="streamz"
    ),
    Suite("afar", ("afar/tests",), ("afar", "ipython"), archive="afar"),
    Suite(
        "tsfresh",
        ("tests/units/utilities/test_distribution.py",),
        ("tsfresh",),
        archive="tsfresh",
        options=("-p", "no:asyncio", "-o", "addopts="),  # its own need pytest-cov
    ),
    Suite("hats-import", ("tests",), ("hats-import", "pytest-mock"), archive="hats-import"),
    Suite("stumpy", ("tests/test_stumped.py",), ("stumpy", "polars"), archive="stumpy"),
)
LEFT_OUT = {
    "dask-ml": "its archive has no tests",
    "dask-jobqueue": "its tests need fixtures that neither its wheel nor its archive has",
    "dask-kubernetes": "its tests need a Kubernetes cluster",
}


@dataclass(frozen=True)
class Run:
    """How the tests of a suite ended once."""

    tests: Mapping[str, str]  # outcome by id
    why: Mapping[str, str]  # first words of what a test failed with
    seconds: float  # of the whole command
    status: int | None  # of the command; None: it was ended at its limit
    clusters: int = 0  # that were recorded
    problems: tuple[str, ...] = ()  # of the recorder

    @property
    def passed(self) -> int:
        return sum(outcome == "passed" for outcome in self.tests.values())


@dataclass(frozen=True)
class Compared:
    suite: Suite
    plain: Run
    recorded: Run
    again: tuple[tuple[Run, Run], ...] = ()  # plainly and recorded: of the tests that differed, alone

    @property
    def suspects(self) -> list[str]:
        """Tests that ended differently under the recorder at first."""
        tests = dict.fromkeys([*self.plain.tests, *self.recorded.tests])
        return [test for test in tests if _of(self.recorded, test) != _of(self.plain, test)]

    @property
    def flaky(self) -> list[str]:
        """The suspects that end differently in plain runs, too."""
        plain = [self.plain, *(run for run, _ in self.again)]
        return [test for test in self.suspects if len({_of(run, test) for run in plain}) > 1]

    @property
    def different(self) -> list[str]:
        """The other suspects that differed again."""
        flaky = {*self.flaky}
        return [
            test
            for test in self.suspects
            if test not in flaky and any(_of(a, test) != _of(b, test) for a, b in self.again)
        ]

    @property
    def once(self) -> list[str]:
        known = {*self.different, *self.flaky}
        return [test for test in self.suspects if test not in known]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"suites: {', '.join(each.name for each in SUITES)}")
    parser.add_argument("--quick", action="store_true", help=f"run {QUICK} tests of each suite")
    parser.add_argument("--runslow", action="store_true", help="run the tests that are marked slow, too")
    parser.add_argument(
        "--folder",
        type=Path,
        help="keep environment, archives and results here, and go on from those that are there (default: temporary)",
    )
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {each.name for each in SUITES}:
        parser.error(f"no suite is named {', '.join(sorted(unknown))}")
    chosen = [each for each in SUITES if not arguments.names or each.name in arguments.names]
    if arguments.folder is None:
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            return compare(chosen, Path(folder), arguments)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return compare(chosen, arguments.folder.resolve(), arguments)


def compare(chosen: Sequence[Suite], folder: Path, arguments: argparse.Namespace) -> int:
    peers = Peers(folder, most=QUICK if arguments.quick else 0, slow=arguments.runslow)
    peers.install(chosen)
    compared = []
    for suite in chosen:
        found = Compared(suite, peers.run(suite, "plain"), peers.run(suite, "recorded"))
        if suspects := found.suspects:
            rounds = [f", again {number}" for number in range(1, AGAIN + 1)]
            pairs = [[peers.run(suite, how + name, suspects) for how in ("plain", "recorded")] for name in rounds]
            found = replace(found, again=tuple((plain, run) for plain, run in pairs))
        compared.append(found)
        print(f"{row(found)}\n{details(found)}", flush=True)
    empty = [found.suite.name for found in compared if not found.plain.tests]
    if empty:
        print(f"No test of {', '.join(empty)} was run: see {folder / 'notes'}")
    told = section(compared, peers.versions(["dask", "distributed", "pytest"]))
    print(told)
    if not (arguments.quick or arguments.names or empty):
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), told), encoding="utf-8")
    return int(bool(empty) or any(each.different for each in compared))


# ------------------------------------------------------------------ running


class Peers:
    """The environment of the tests, and what was fetched for them."""

    def __init__(self, folder: Path, *, most: int, slow: bool) -> None:
        self._folder, self._most, self._slow = folder, most, slow
        self._python = folder / "environment" / "bin" / "python"
        self._variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "SCALESCOPE_", "DASK_", "PYTEST_"))
            and name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV", "XDG_STATE_HOME")
        }

    def install(self, suites: Sequence[Suite]) -> None:
        for name in ("home", "plugins", "temporary", "notes", "archives"):
            (self._folder / name).mkdir(exist_ok=True)
        for plugin in PLUGINS:
            shutil.copy(HERE / plugin, self._folder / "plugins")
        if not self._python.exists():
            subprocess.run([sys.executable, "-m", "venv", self._folder / "environment"], check=True)
        needs = {"dask", "distributed", *PYTEST, *(need for suite in suites for need in suite.needs)}
        uv: list[str | Path] = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--compile-bytecode"]
        uv += ["--python", self._python, "--constraint", ROOT / "constraints.txt"]
        subprocess.run([*uv, *sorted(needs)], check=True)
        for suite in suites:
            if suite.older:
                self._add_older(suite.older)
            elif suite.archive:
                self._unpack(suite.archive)

    def _add_older(self, requirement: str) -> None:
        """Put the tests of an older wheel into the installed package, where they find their data."""
        (wheel,) = self._downloaded(requirement, ["--only-binary", ":all:"])
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if "/tests/" in name or name.endswith("deploy/utils_test.py")]
            archive.extractall(self._site, names)

    def _unpack(self, package: str) -> None:
        folder = self._folder / "archives" / package
        if folder.exists():
            return
        requirement = f"{package}=={self.versions([package])[package]}"
        (file,) = self._downloaded(requirement, ["--no-binary", package])
        with tarfile.open(file) as archive, tempfile.TemporaryDirectory(dir=self._folder) as unpacked:
            archive.extractall(unpacked, filter="data")
            (only,) = Path(unpacked).iterdir()
            only.rename(folder)

    def _downloaded(self, requirement: str, options: Sequence[str]) -> list[Path]:
        folder = self._folder / "archives" / f"of {requirement}"
        if not folder.exists():
            download = [self._python, "-m", "pip", "download", "--quiet", "--no-deps", *options, requirement]
            subprocess.run([*download, "--dest", folder], check=True)
        return [*folder.iterdir()]

    @property
    def _site(self) -> Path:
        (site,) = (self._folder / "environment" / "lib").glob("python*/site-packages")
        return site

    def versions(self, packages: Sequence[str]) -> dict[str, str]:
        code = "import importlib.metadata, json, sys; v = importlib.metadata.version; "
        code += "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
        told = subprocess.run([self._python, "-c", code, *packages], check=True, capture_output=True, text=True)
        return dict(json.loads(told.stdout))

    def run(self, suite: Suite, how: str, only: Sequence[str] = ()) -> Run:
        """Run the tests of a suite, or only those of these ids; a run that has ended before is read."""
        place = self._folder / "notes" / f"{suite.name}, {how}"
        notes, output, result = (place.with_suffix(each) for each in (".jsonl", ".txt", ".json"))
        if result.exists():
            return Run(**json.loads(result.read_text(encoding="utf-8")))
        for _ in range(AGAIN):
            for file in (notes, output):
                file.unlink(missing_ok=True)
            began = time.monotonic()
            with output.open("wb") as stream:
                status, told = self._ended(self._command(suite, how, notes, only), self._root(suite), stream)
            if status != INTERNAL_ERROR:
                break
        seconds = time.monotonic() - began
        tests, why = outcomes(notes)
        clusters, problems = recorded(told) if how.startswith("recorded") else (0, ())
        print(f"{suite.name}, {how}: {len(tests)} tests in {seconds:.0f} s, status {status}", flush=True)
        run = Run(tests, why, seconds, status, clusters, problems)
        result.write_text(json.dumps(asdict(run)), encoding="utf-8")
        return run

    def _root(self, suite: Suite) -> Path:
        return self._folder / "archives" / suite.archive if suite.archive else self._site

    def _command(self, suite: Suite, how: str, notes: Path, only: Sequence[str]) -> list[str | Path]:
        scalescope = [Path(sys.executable).with_name("scalescope"), "run", "--no-save", "--json", "-e", self._python]
        command: list[str | Path] = [*(scalescope if how.startswith("recorded") else [self._python]), "-m", "pytest"]
        command += ["--quiet", "-p", "no:cacheprovider", "-p", "no:flaky", "-p", "peers_plugin"]
        command += [f"--peers-notes={notes}"]
        command += [f"--timeout={TEST_LIMIT_S}", "--timeout-method=signal", f"--rootdir={self._root(suite)}"]
        if not suite.archive:  # installed packages have no settings of pytest
            empty = self._folder / "plugins" / "pytest.ini"
            empty.write_text("[pytest]\n", encoding="utf-8")
            command += ["-c", empty]
        command += [*suite.options, *(f"--peers-without={name}" for name in suite.without)]
        command += [f"--peers-most={self._most}"] if self._most and not only else []
        command += ["--peers-slow"] if self._slow else []
        return [*command, *(self._root(suite) / path for path in only or suite.paths)]

    def _ended(self, command: Sequence[str | Path], root: Path, stream: Any) -> tuple[int | None, bytes]:
        """Run a command in a session of its own, of which nothing is left when it is over."""
        variables = {**self._variables, "PYTHONPATH": str(self._folder / "plugins"), "HOME": str(self._folder / "home")}
        variables["TMPDIR"] = str(self._folder / "temporary")
        process = subprocess.Popen(
            command, cwd=root, env=variables, stdout=subprocess.PIPE, stderr=stream, start_new_session=True
        )
        try:
            told, _ = process.communicate(timeout=SUITE_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            told, _ = process.communicate()
            return None, told
        finally:
            shutil.rmtree(variables["TMPDIR"], ignore_errors=True)
            Path(variables["TMPDIR"]).mkdir()
        stream.write(told)
        return process.returncode, told


def outcomes(notes: Path) -> tuple[dict[str, str], dict[str, str]]:
    """How each test ended, and the first words of why, from the notes of `peers_plugin`."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for line in notes.read_text(encoding="utf-8").splitlines() if notes.exists() else ():
        step = json.loads(line)
        steps.setdefault(step["test"], []).append(step)
    why = {test: next((step["why"] for step in told if step.get("why")), "") for test, told in steps.items()}
    return {test: _outcome(told) for test, told in steps.items()}, why


def _outcome(steps: Sequence[Mapping[str, Any]]) -> str:
    ended = {step["when"]: step["outcome"] for step in steps if step["when"] != "start"}
    if "collect" not in ended and "teardown" not in ended:
        return "did not end"
    errors = [f"error in {when}" for when in ("collect", "setup", "teardown") if ended.get(when) == "failed"]
    known = ended.get("call", "skipped" if ended.get("setup") == "skipped" else "")
    return " and ".join([*([known] if known and not (errors and known == "passed") else []), *errors]) or "xfailed"


def recorded(told: bytes) -> tuple[int, tuple[str, ...]]:
    """Clusters that were recorded, and the problems with it, from what `scalescope run --json` printed."""
    try:
        answer = json.loads(told)
    except ValueError:
        return 0, ("the answer is no JSON",)
    more = [int(found[1]) for hint in answer["hints"] if (found := re.match(r"(\d+) more clusters", hint))]
    return len(answer["clusters"]) + sum(more), tuple(answer["problems"])


def _of(run: Run, test: str) -> str:
    return run.tests.get(test, "not run")


# ------------------------------------------------------------------ telling


def row(compared: Compared) -> str:
    plain, recorded = compared.plain, compared.recorded
    cells = [compared.suite.name, len(plain.tests), plain.passed, len(compared.different), len(compared.flaky)]
    cells += [f"{plain.seconds:.0f}", f"{recorded.seconds:.0f}", recorded.clusters]
    return f"| {' | '.join(map(str, cells))} |"


def details(compared: Compared) -> str:
    """What did not pass, and each difference, for a person at a terminal."""
    plain, recorded, lines = compared.plain, compared.recorded, []
    if others := Counter(outcome for outcome in plain.tests.values() if outcome != "passed"):
        lines.append(f"  plain: {', '.join(f'{count} {outcome}' for outcome, count in others.items())}")
    if recorded.status != plain.status:
        lines.append(f"  STATUS {recorded.status} under the recorder, plainly {plain.status}")
    for test in compared.suspects:
        mark = "once" if test in compared.once else "flaky" if test in compared.flaky else "DIFFERENT"
        lines.append(f"  {mark} {test}: {_of(plain, test)}, recorded {_of(recorded, test)}")
        lines.append(f"    {_first_line(recorded.why.get(test) or plain.why.get(test, ''))}")
    lines += [f"  recorder: {problem}" for problem in recorded.problems]
    return "\n".join(lines)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def section(compared: Sequence[Compared], versions: Mapping[str, str]) -> str:
    """The section of the page."""
    tests = sum(len(each.plain.tests) for each in compared)
    different = [f"`{test}` of {each.suite.name}" for each in compared for test in each.different]
    once = [f"`{test}` of {each.suite.name}" for each in compared for test in each.once]
    flaky = [f"`{test}` of {each.suite.name}" for each in compared for test in each.flaky]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "## Other projects' tests under the recorder",
        "",
        "`scalescope run -m pytest` must not change how a test ends. `python -m evidence peers` runs the tests",
        "that other projects have for their use of Dask: by `python -m pytest`, then under the recorder. Each suite is",
        f"one process, where many clusters follow one another. Tests that differ run alone, {AGAIN} times each way.",
        "They are those with a synchronous Dask client, without those marked slow. The tests of distributed are of",
        "2.30.1, the last version whose package has them; those that fail with today's distributed must fail the same.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {told}. **{len(different)} of {tests} tests ended",
        f"differently under the recorder.** {len(flaky)} more are flaky: they also differ between runs without it.",
        "",
        HEAD,
        "| --- " * 8 + "|",
        *(row(each) for each in compared),
        "",
        "*plain s* and *recorded s* are seconds of the whole command; *recorded s* includes the verdicts. *clusters*",
        "counts those that were recorded.",
        "",
        *([f"- different: {', '.join(different)}"] if different else []),
        *([f"- different in one run, and the same in {AGAIN} more, alone: {', '.join(once)}"] if once else []),
        *([f"- flaky: {', '.join(flaky)}"] if flaky else []),
        *(f"- {name} is left out: {why}." for name, why in LEFT_OUT.items()),
    ]
    return "\n".join(lines)


def page(text: str, told: str) -> str:
    """The page with this section, at its end if it has none yet."""
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n{BEGIN}\n{told}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{told}\n{END}{rest.partition(END)[2]}"
