"""The code blocks of README.md and docs/: each is run, or at least checked without starting anything."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from scalescope import clusters
from scalescope.cli import main as cli
from scalescope.errors import ExitStatus
from scalescope.model.cluster import KINDS, cluster_spec
from scalescope.run.request import check

ROOT = Path(__file__).parents[2]
# What these add is added to the package; tests/unit/diagnosis/test_cause_table.py has docs/adding-a-cause.md
CLUSTER, METRIC, CAUSE = (f"docs/adding-a-{name}.md" for name in ("cluster", "metric", "cause"))
PAGES = (
    "README.md",
    *sorted({f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - {CLUSTER, METRIC, CAUSE}),
)
ELSEWHERE = {
    "$ scalescope watch tcp://10.0.0.7:8786 --for 60s": "tests/integration/test_watch.py",
    "NOTHING MOVES": "tests/integration/test_watch.py",
    "$ scalescope run my_script.py its arguments": "tests/integration/test_script.py",
    "$ scalescope run score.py": "tests/integration/test_pages.py",
    "$ scalescope run locked.py": "tests/unit/capture/test_inside_tasks.py",
    "16 workers are 1.00 times as fast as 4": "tests/integration/test_pytest_plugin.py",
    "$ scalescope find-release --before before.txt": "evidence/methods/known_regressions.py",
    "pip install": "tests/integration/test_installed.py",
    "$ scalescope size latest": "tests/unit/studies/test_sizing.py",
    "$ scalescope fix score.py": "tests/fixing/test_fix.py",
    "$ scalescope fix -w my_job.py:run": "tests/fixing/test_fix.py",
    "$ scalescope serve": "tests/unit/cli/test_file_server.py",
    '{"mcpServers"': "tests/integration/test_agent_tools.py",
    # Prefect
    **dict.fromkeys(
        (
            *("$ scalescope run my_flow.py", "@flow(task_runner=DaskTaskRunner())", "loaded = load.map("),
            *(
                "with scalescope.diagnose(client):\n    runner",
                "@task(persist_result=False",
                "futures = say_hello.map(",
            ),
        ),
        "tests/flows/test_flow_on_dask.py",
    ),
    "$ prefect server start": "tests/support/site.py",
    **dict.fromkeys(
        (
            *("createuser --pwprompt", "git clone REPOSITORY", "PREFECT_API_DATABASE_CONNECTION_URL="),
            *("mkdir -p ~/.config/systemd", "systemctl --user enable", "PREFECT_API_URL="),
        ),
        "tests/integration/test_team.py",
    ),
    "prefect block register": "tests/support/site.py",
    "prefect deployment schedule ls": "tests/integration/test_schedules.py",
    "python -c 'from getpass": "tests/blocks/test_blocks.py",
    # Kubernetes
    "kubectl apply --namespace team": "tests/support/kubernetes.py",
    "echo '{": "tests/kubernetes/test_story.py",
    "with dask.annotate(resources=": "tests/kubernetes/test_cluster.py",
    "currency: USD": "tests/unit/analysis/test_cost.py",
}
"""How blocks begin whose commands need more than a page has, and the tests that run them."""
TUTORIAL = (pytest.mark.timeout(1200), pytest.mark.thorough)
LONG_COMMANDS = ("scalescope predict ",)
"""Environments are built first, and `find-release` builds six."""
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
CLOSE = 0.1
"""Numbers may differ by this part: even simulated workers are charged for the time that Python takes."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_elsewhere(self) -> bool:
        return self.text.startswith(tuple(ELSEWHERE))

    @property
    def command(self) -> str:
        """The command whose output the block shows; empty if it shows none."""
        shown = re.match(r"\$ ((?:.*\\\n)*.*)\n", self.text)
        return shown[1].replace("\\\n", " ") if shown and not self.is_elsewhere else ""

    @property
    def output(self) -> str:
        """The output that the page shows for the command."""
        return re.sub(r"\A\$ (?:.*\\\n)*.*\n", "", self.text)


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.M | re.S):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], textwrap.dedent(found[2]))


BLOCKS = [block for page in PAGES for block in blocks(page)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the pages show, for a terminal of 80 columns."""
    for block in BLOCKS:
        if named := re.match(r"# (\w+\.(?:py|yaml))\b", block.text):
            (tmp_path / named[1]).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SCALESCOPE_STORE", str(tmp_path / "results.db"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def differences(expected: str, shown: str) -> Iterator[str]:
    """Lines of a page missing in the real output, in order; `...` and the end of the page stand for any lines."""
    lines = iter(shown.splitlines())
    anywhere = False
    for line in expected.splitlines():
        if line.strip() == "...":
            anywhere = True
            continue
        found = next((each for each in lines if not anywhere or same(line, each)), "(the end)")
        if not same(line, found):
            yield f"{line!r} is {found!r}"
        anywhere = False


def same(left: str, right: str, close: float = CLOSE) -> bool:
    """Whether lines are equal except for small differences of numbers, lengths of bars, and spaces."""
    if plain(left) != plain(right):
        return False
    numbers = ([float(each.replace(",", "")) for each in NUMBER.findall(line)] for line in (left, right))
    return all(a == pytest.approx(b, rel=close, abs=0.03) for a, b in zip(*numbers, strict=True))


def plain(line: str) -> str:
    return re.sub(r"([█·o?~─])\1+", r"\1", " ".join(NUMBER.sub("0", line).split()))


# ------------------------------------------------------------------ what is fine


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            each,
            marks=TUTORIAL if each.page == "docs/tutorial.md" or each.command.startswith(LONG_COMMANDS) else (),
            id=str(each),
        )
        for each in BLOCKS
        if each.command
    ],
)
def test_commands_print_the_output_shown_on_the_page(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    if "beam" in block.command:
        pytest.importorskip("apache_beam")
    if "==2023" in block.command and sys.version_info >= (3, 12):
        pytest.skip("Beam and Dask of 2023 have no wheels for this Python")
    command = shlex.split(block.command)
    assert command[0] == "scalescope"
    wrong = block.output.startswith("error: ")
    assert cli.run(command[1:]) in ((ExitStatus.USAGE,) if wrong else (ExitStatus.OK, ExitStatus.FINDING))
    shown = capsys.readouterr()[wrong]
    assert not [*differences(block.output, shown)], shown


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "python" and not each.is_elsewhere], ids=str
)
def test_python_blocks_of_the_pages_run(
    block: Block, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if "scale_sweep(" in block.text:  # tests/flows run the flow; here only its parameters are checked
        [call] = [each for each in ast.walk(ast.parse(block.text)) if isinstance(each, ast.Call) and each.keywords]
        assert check({str(each.arg): ast.literal_eval(each.value) for each in call.keywords}).plan
        return
    names: dict[str, Any] = {"__name__": "page", "load": str}
    if "diagnose(" in block.text:
        dask, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
        distributed = pytest.importorskip("distributed")
        cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
        request.addfinalizer(cluster.close)
        names["client"] = client = distributed.Client(cluster)
        request.addfinalizer(client.close)
        names["frame"] = dask.from_pandas(pandas.DataFrame({"name": ["a", "b"], "x": [1, 2]}), npartitions=2)
    exec(compile(block.text, str(block), "exec"), names)
    if "diagnose(" in block.text:
        assert names["found"].verdict in capsys.readouterr().out
    elif "run_sweep(" in block.text:
        assert names["result"].valid == len(names["result"].points)


def test_the_first_script_gets_the_verdict_shown_in_the_readme() -> None:
    [block] = [each for each in BLOCKS if each.text.startswith("$ scalescope run score.py")]
    run = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "run", "score.py"]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stderr
    expected = block.output.removesuffix("...\n").split()  # a pipe is wider than a terminal of 80 columns
    shown = told[told.index("✗") :].split()[: len(expected)]
    assert same(" ".join(expected), " ".join(shown), close=0.4), told  # real seconds, beside other tests


def test_the_cluster_kind_from_the_page_on_adding_kinds_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = folder / "kinds" / "threads"
    kind.mkdir(parents=True)
    for name, block in zip(("spec", "cluster"), blocks(CLUSTER), strict=True):
        (kind / f"{name}.py").write_text(block.text)
    (kind / "__init__.py").touch()
    monkeypatch.setattr(clusters, "__path__", [*clusters.__path__, str(kind.parent)])
    monkeypatch.setitem(KINDS.own, "threads", "scalescope.clusters.threads.spec:ThreadsSpec")
    try:  # the memory limit is above what this process itself uses
        with closing(clusters.build(cluster_spec({"kind": "threads", "memory_limit_mb": 2**16}))) as cluster:
            cluster.open()
            cluster.scale(2, 1)
            with cluster.client() as client:
                assert client.submit(sum, [1, 2]).result(timeout=60) == 3
                assert len(client.nthreads()) == 2
            assert cluster.facts()["layout"]
    finally:
        for name in [name for name in sys.modules if name.startswith("scalescope.clusters.threads")]:
            del sys.modules[name]


@pytest.mark.thorough
def test_the_metric_from_the_page_on_adding_metrics_is_shown(folder: Path) -> None:
    declared, computed, shown = blocks(METRIC)
    shutil.copytree(ROOT / "scalescope", folder / "copy" / "scalescope", ignore=shutil.ignore_patterns("__pycache__"))
    metrics, measure = (folder / "copy" / "scalescope" / name for name in ("model/metrics.py", "analysis/measure.py"))
    text = metrics.read_text()
    [last] = (node.body[-1].end_lineno for node in ast.parse(text).body if getattr(node, "name", "") == "Metrics")
    lines = text.splitlines(keepends=True)
    metrics.write_text("".join([*lines[:last], textwrap.indent(declared.text, "    "), *lines[last:]]))
    [argument] = re.findall(r"    (task_p95_s=.*),", computed.text)
    measure.write_text(measure.read_text().replace("return Metrics(\n", f"return Metrics(\n        {argument},\n", 1))
    for command, output in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", shown.text, re.M):
        environ = {**os.environ, "PYTHONPATH": str(folder / "copy")}
        run = [sys.executable, "-c", "from scalescope.cli.main import main; main()", *shlex.split(command)[1:]]
        printed = subprocess.run(run, capture_output=True, text=True, env=environ, check=False).stdout
        texts = [re.sub(r"p = [\d.e-]+", "p = 0", text) for text in (output, printed)]  # p values differ without noise
        assert not [*differences(*texts)], printed


def test_commands_shown_without_output_have_valid_options() -> None:
    """Sweeps are planned; of other commands only the options are checked."""
    group, seen = typer.main.get_command(cli.app()), 0
    for block in BLOCKS:
        if block.language or block.text.startswith("$") or block.is_elsewhere:
            continue
        for line in re.findall(r"^scalescope .*", block.text.replace("\\\n", " "), re.M):
            _, name, *options = shlex.split(line, comments=True)
            seen += 1
            if name == "sweep":
                assert cli.run([name, *options, "--estimate"]) == 0, line
            else:
                group.commands[name].make_context(name, options)  # type: ignore[attr-defined]
    assert seen >= 5


def test_the_commands_of_the_start_page_exist() -> None:
    group = typer.main.get_command(cli.app())
    commands = re.findall(r"`scalescope ([^`]+)`", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    for name, *options in map(shlex.split, commands):
        group.commands[name].make_context(name, options)  # type: ignore[attr-defined]
    assert len(commands) > 15


def test_the_readme_is_short_and_states_the_measured_error_rate() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    assert len(text.split()) <= 1200
    outside = (ROOT / "docs" / "outside-set.md").read_text(encoding="utf-8")
    [(right, cases)] = re.findall(r"the first cause was right in (\d+) of (\d+)", " ".join(text.split()))
    assert f"{right} of {cases}" in " ".join(outside.split())


def test_yaml_blocks_of_the_pages_are_valid_sweeps(folder: Path) -> None:
    pytest.importorskip("apache_beam")
    assert cli.run(["sweep", "sweep.yaml", "--estimate"]) == 0
    assert cli.run(["sweep", "gpus.yaml", "--estimate"]) == 0
    for block in BLOCKS:  # the examples for CI
        for line in re.findall(r"scalescope sweep .*", block.text if block.language == "yaml" else ""):
            if ".yaml" not in line:
                yaml.safe_load(block.text)
                assert cli.run([*shlex.split(line)[1:], "--estimate"]) == 0, line


# ------------------------------------------------------------------ what breaks


def test_every_block_of_the_pages_is_run_by_a_test() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    for block in BLOCKS:
        made = re.findall(r"^make (\w+)(?: +#.*)?$", block.text, re.M)
        commands = block.text.startswith("scalescope ")
        assert block.language or block.command or block.is_elsewhere or made or commands, f"{block} is run by no test"
        assert set(made) <= targets
    for beginning in ELSEWHERE:
        assert any(block.text.startswith(beginning) for block in BLOCKS), beginning
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).is_file()] == []


def test_differences_between_a_page_and_real_output_are_found() -> None:
    page = "✗ 3 used\n...\n300   0.25\n████··\n"
    assert [*differences(page, "✗ 3 used\nmore\n300 0.251\n██████···\nmore")] == []
    assert [*differences(page, "✗ 4 used\nmore\n300 0.25\n██··")]
    assert [*differences(page, "✗ 3 used\nmore\n300 0.5\n██··")]
    assert [*differences(page, "✗ 3 used\n300 0.25\n··")]
