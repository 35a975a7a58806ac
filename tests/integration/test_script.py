"""Scripts without any code of Scalescope, run unchanged by `scalescope run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scalescope.cli import main as cli
from scalescope.errors import ExitStatus

# Nothing of the extras `prefect` and `environments`, nor SciPy, can be imported
CLI = """
import sys
sys.modules.update(dict.fromkeys(("prefect", "scipy", "uv")))
from scalescope.cli.main import main
main(sys.argv[1:])
"""
NAP = """
import sys
import time


def nap(number):
    time.sleep(0.1)
    return number


def few(**options):
    from distributed import LocalCluster

    return LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, **options)

"""


def run(folder: Path, script: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "theirs.py").write_text(NAP + script)
    command = [sys.executable, "-c", CLI, "run", *options, "theirs.py", *arguments]
    kept = {**os.environ, "SCALESCOPE_STORE": str(folder / "kept.db")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=200, env=kept)


def test_a_script_keeps_its_exit_status_and_each_of_its_clusters_is_judged(tmp_path: Path) -> None:
    script = """
if __name__ == "__main__":  # its workers are processes that import it
    import dask.bag
    from distributed import Client, LocalCluster

    with few() as first:
        client, other = Client(first), Client(first.scheduler_address, set_as_default=False)
        for number in range(8):
            client.submit(nap, number, pure=False).result()
        client.close()
        other.submit(nap, 0).result()  # part of the same diagnosis, which ends before the cluster
    second = Client(LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None))
    print(dask.bag.from_sequence(range(4), npartitions=1).map(nap).sum().compute(), sys.argv, flush=True)
    sys.exit(3)  # which does not make its work a failure, and leaves a client open
"""
    done = run(tmp_path, script, "--debug", "a b", options=("--json", "--report", "page.html"))
    assert done.returncode == 3, done.stderr
    assert "'--debug', 'a b'" in done.stderr
    shown = json.loads(done.stdout)
    assert (shown["status"], shown["problems"]) == (3, [])
    first, second = shown["clusters"]
    assert (first["points"][0]["tasks"], first["points"][0]["valid"]) == (9, 1)
    assert first["verdict"]["findings"][0]["code"] == "results-awaited-in-loop"
    assert "`dask.bag.from_sequence` at theirs.py:" in json.dumps(second["verdict"])
    assert second["sweep"]["workload"] == "theirs.py, cluster 2"
    assert {page.name for page in tmp_path.glob("*.html")} == {"page.html", "page-2.html"}


def test_the_verdict_on_a_raising_script_names_the_call_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = """
from distributed import Client
with few() as cluster, Client(cluster) as client:
    client.gather(client.map(nap, range(4)))
    client.submit(parse, {"price": "n/a"}).result()
"""
    parse = "def parse(row):\n    return float(row['price'])\n"
    done = run(tmp_path, parse + script, options=("--report", "page.html"))
    assert done.returncode == 1
    assert "scalescope/run/script.py" not in done.stderr
    verdict = done.stderr.partition("ValueError: could not")[2]  # after Python's own traceback
    said, line = " ".join(verdict.split()), NAP.count("\n") + 2
    assert "`parse({'price': 'n/a'})` raised ValueError" in said
    assert f"'n/a' (theirs.py:{line})." in said
    assert "best possible" in verdict
    assert "first at" not in verdict
    page = (tmp_path / "page.html").read_text()
    assert "distributed" in page.partition("Versions")[2].partition("</dd>")[0]
    assert "Script</dt>" in page
    assert "randomised" not in page
    assert cli.run(["show", "list", "--store", str(tmp_path / "kept.db")]) == 0
    assert "theirs.py" in capsys.readouterr().out


def test_requirements_are_judged_for_each_cluster_of_a_script(tmp_path: Path) -> None:
    script = """
import asyncio

from distributed import Client


async def asynchronous(address):
    async with Client(address, asynchronous=True, set_as_default=False) as client:
        print(await client.gather(client.map(nap, range(7))))


with few(silence_logs=50) as cluster:
    asyncio.run(asynchronous(cluster.scheduler_address))
    client = Client(cluster.scheduler_address)  # as Beam makes it, and never closes it
    client.gather(client.map(nap, range(4)))
"""
    done = run(tmp_path, script, options=("--require", "tasks > 3", "--require", "tasks > 6", "--json"))
    assert done.returncode == ExitStatus.FINDING, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["problems"]) == (0, [])
    assert [each["points"][0]["tasks"] for each in told["clusters"]] == [7, 4]
    assert [each["status"] for each in told["requirements"]] == [ExitStatus.OK, ExitStatus.FINDING]


@pytest.mark.thorough
def test_a_script_without_a_client_runs_as_under_python(tmp_path: Path) -> None:
    script = """
import beside
import os
assert {"dask", "distributed"}.isdisjoint(sys.modules)
print(__name__, sys.argv[1:], beside.name)
sys.exit("enough")
"""
    (tmp_path / "beside.py").write_text("name = __name__")
    done = run(tmp_path, script, "--require", "x")
    assert (done.returncode, done.stdout) == (1, "__main__ ['--require', 'x'] beside\n")
    passed = "--require is passed to theirs.py. Scalescope's options go before the script.\n"
    assert done.stderr.startswith(f"{passed}enough\n")
    assert "no Dask client" in done.stderr


def other_python(folder: Path) -> str:
    """A Python whose environment has neither pip nor most of what Scalescope needs itself."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    lacks = ("alembic", "bokeh", "jinja2", "numpy", "pandas", "prefect", "pyarrow", "rich", "sqlalchemy", "typer")
    lines = [sysconfig.get_path("purelib"), f"import sys; sys.modules.update(dict.fromkeys({lacks}))"]
    (Path(sysconfig.get_path("purelib", vars=scheme)) / "theirs.pth").write_text("\n".join(lines))
    return str(folder / "bin" / "python")


@pytest.mark.thorough
def test_a_script_runs_in_another_environment_without_changing_it(tmp_path: Path) -> None:
    script = """
from distributed import Client
print(sys.argv, __name__, "numpy" in sys.modules and sys.modules["numpy"])
with few() as cluster, Client(cluster) as client:
    for number in range(9):
        client.submit(nap, number, pure=False).result()
if sys.argv[1:] == ["killed"]:
    import os
    os._exit(4)
sys.exit(3)
"""

    def there() -> dict[Path, tuple[int, bytes]]:
        files = (path for path in (tmp_path / "there").rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    python = other_python(tmp_path / "there")
    before = there()
    done = run(tmp_path, script, "--debug", "a b", options=("-e", python, "--json", "--report", "page.html"))
    assert done.returncode == 3, done.stderr
    assert "'a b'] __main__ None" in done.stderr
    shown = json.loads(done.stdout)
    assert (shown["status"], shown["problems"]) == (3, [])
    assert shown["clusters"][0]["verdict"]["findings"][0]["code"] == "results-awaited-in-loop"
    assert shown["clusters"][0]["points"][0]["tasks"] == 9
    assert (tmp_path / "page.html").exists()

    done = run(tmp_path, script, "killed", options=("-e", python, "--json"))
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["status"], len(shown["clusters"]), len(shown["problems"])) == (4, 4, 1, 0)
    assert there() == before


def test_an_invalid_requirement_is_refused_before_the_script_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'begun')!r}, 'w')")
    assert cli.run(["run", "--require", "task > 1", str(tmp_path / "theirs.py")]) == ExitStatus.USAGE
    assert "did you mean 'tasks'?" in capsys.readouterr().err
    assert not (tmp_path / "begun").exists()


def test_run_without_a_script_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run"]) == ExitStatus.USAGE
    assert "run -m MODULE" in capsys.readouterr().err


def test_no_module_of_dask_is_imported_before_the_script_imports_it(tmp_path: Path) -> None:
    (tmp_path / "apache_beam").mkdir()
    (tmp_path / "apache_beam" / "__init__.py").write_text("class Create:\n    def __init__(self, values): ...\n")
    script = """
import apache_beam
assert {"dask", "distributed", "cloudpickle"}.isdisjoint(sys.modules)
import dask.bag
assert {"distributed", "dask.dataframe", "dask.array"}.isdisjoint(sys.modules)
print(dask.bag.from_sequence([1, 2]).sum().compute(scheduler="sync"))
"""
    done = run(tmp_path, script, options=("--json",))
    told = json.loads(done.stdout)
    assert (done.returncode, told["problems"], done.stderr) == (0, [], "3\n")
    assert len(told["hints"]) == 2  # one that there was no client, one about the scheduler that computed
