"""What `scalescope.check` says of collections: healthy ones first, then cases of public threads, built anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import scalescope
from scalescope.checking.check import examined
from scalescope.checking.checked import Checked
from scalescope.checking.graph import TaskGraph, planned
from scalescope.checking.interception import Seen, intercepted
from scalescope.checking.sizes import Shape, Sizes, Unknown
from scalescope.cli import main
from scalescope.errors import ExitStatus, UsageError

da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
delayed = pytest.importorskip("dask.delayed").delayed


def codes(checked: Checked) -> list[str]:
    return [each.code for each in checked.findings]


def never(*given):
    raise AssertionError("the user's function was called")


def healthy():
    return da.random.random((4_000, 4_000), chunks=1_000).mean(axis=0)


# ------------------------------------------------------------------ healthy


@pytest.mark.parametrize(
    "build",
    [
        healthy,
        lambda: dd.from_pandas(pd.DataFrame({"k": [1, 2] * 500, "v": 1.0}), npartitions=4).groupby("k").v.sum(),
        lambda: db.from_sequence(range(1_000), npartitions=10).sum(),
        lambda: [delayed(sum)([delayed(abs)(number), 1]) for number in range(20)],
    ],
)
def test_a_healthy_collection_has_no_finding(build):
    checked = scalescope.check(build)
    assert codes(checked) == []
    assert checked.status is ExitStatus.OK


def test_the_check_counts_tasks_width_and_critical_path_as_in_the_optimised_graph():
    x = da.ones((40, 40), chunks=10).rechunk((40, 10)).sum()
    checked = scalescope.check(x)
    graph = dict(x.__dask_optimize__(x.__dask_graph__(), x.__dask_keys__()))
    assert checked.tasks == len(graph)
    assert checked.cap == checked.widest == 16
    assert checked.critical_path >= 3


def test_two_nested_calls_are_two_tasks_with_a_width_of_one_and_a_critical_path_of_two():
    checked = scalescope.check(delayed(np.add)(delayed(np.ones)(4), 1))
    assert (checked.tasks, checked.widest, checked.critical_path) == (2, 1, 2)


def test_sliding_windows_over_a_shape_only_array_have_the_shape_that_numpy_gives():
    windows = np.lib.stride_tricks.sliding_window_view
    assert windows(Shape((20, 30), "f8"), 5, axis=0).shape == (16, 30, 5)
    assert windows(Shape((20, 30), "f8"), window_shape=(5, 3)).shape == (16, 28, 5, 3)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + 1,
        lambda x: x[::2, ::-1],
        lambda x: (x - x.mean(axis=0)).std(axis=1),
        lambda x: x.T @ x,
        lambda x: x.rechunk((200, 25)),
        lambda x: da.concatenate([x, x]).argmax(axis=1),
        lambda x: da.stack([x, x]).astype("f4"),
        lambda x: x.reshape(-1),
        lambda x: x[np.array([5, 3, 199])],
        lambda x: da.where(x > 0.5, x, 0.0),
        lambda x: da.topk(x, 20, axis=0),
        lambda x: da.argtopk(x, 3, axis=1),
    ],
)
def test_estimated_sizes_of_all_tasks_are_those_of_real_results(operation):
    from dask.sizeof import sizeof

    given = operation(da.random.random((200, 200), chunks=50))
    plan = planned([given])
    graph = TaskGraph.of(plan.graph, plan.wanted)
    nbytes, _ = Sizes(graph, {given.name: (given.chunks, given.dtype)}, {}).all()
    values = {}
    for task in graph.order.tolist():
        values[graph.keys[task]] = graph.nodes[task](values)
    assert nbytes.tolist() == pytest.approx([sizeof(values[key]) for key in graph.keys], rel=0.2, abs=64)


def test_a_dataframe_has_the_bytes_of_its_columns():
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(10_000), "b": 1.0}), npartitions=5)
    checked = scalescope.check(frame.assign(c=frame.a + frame.b))
    assert checked.largest_block == pytest.approx(2_000 * 3 * 8, rel=0.05)


def test_the_answer_can_be_shown_as_json_text_and_a_notebook_table():
    checked = scalescope.check(healthy)
    assert Checked.from_mapping(json.loads(json.dumps(checked.to_mapping()))) == checked
    assert f"{checked.tasks:,}" in str(checked)
    assert "<table>" in checked._repr_html_()
    assert len(json.dumps(checked.brief().to_json())) < 6_000


# ------------------------------------------------------------------ nothing is computed


@pytest.mark.parametrize(
    "build",
    [
        lambda: healthy().map_blocks(never, dtype=float),
        lambda: db.from_sequence(range(10)).map(never),
        lambda: dd.from_map(never, range(3), meta={"a": float}).a.sum(),
        lambda: delayed(never)(delayed(open)("no-such-file")),
        lambda: healthy().map_blocks(never, dtype=float).sum().compute(),
    ],
)
def test_no_function_of_the_user_is_called(build):
    assert scalescope.check(build).tasks > 0


@pytest.mark.parametrize("function", [np.asarray, list, np.ma.masked_less])
def test_reading_the_elements_of_a_shape_only_array_is_refused(function):
    with pytest.raises(Unknown):
        function(Shape((10, 10), float), *([0.2] if function is np.ma.masked_less else []))


def test_a_check_writes_nothing_to_the_target_of_a_store():
    target = np.zeros((100, 100))
    kept = da.ones((100, 100), chunks=50).store(target, compute=False)
    assert scalescope.check(kept).tasks >= 4
    assert not target.any()


def test_dask_computes_again_after_a_check():
    scalescope.check(lambda: healthy().compute())
    assert int(da.ones(10, chunks=5).sum().compute(scheduler="threads")) == 10


def test_values_without_a_collection_are_refused():
    with pytest.raises(UsageError):
        scalescope.check(3)


# ------------------------------------------------------------------ public cases


def test_adding_arrays_of_unlike_chunks_is_found_as_multiplied_chunks_with_its_line():
    def build():
        rows = da.random.random((2_800, 4_000), chunks=(100, 4_000))
        columns = da.random.random((2_800, 4_000), chunks=(2_800, 100))
        return rows + columns

    (found,) = [each for each in scalescope.check(build).findings if each.code == "chunks-multiplied"]
    assert [each.value for each in found.evidence] == [28, 1_120]
    assert found.place is not None
    assert found.place.file == Path(__file__).name


def test_400_tiny_files_are_reported_with_their_line(tmp_path):
    for number in range(400):
        (tmp_path / f"{number:03}.csv").write_text("a,b\n" + "1,2.5\n" * 20)
    checked = scalescope.check(lambda: dd.read_csv(str(tmp_path / "*.csv")).b.sum())
    (found,) = [each for each in checked.findings if each.code == "tiny-blocks"]
    assert found.place is not None
    assert found.place.file == Path(__file__).name
    assert checked.status is ExitStatus.FINDING


def test_for_tiny_chunks_larger_ones_are_advised():
    def build():
        return da.random.random((730, 90, 180), chunks=(1, 90, 180)).mean(axis=0)

    (found,) = [each for each in scalescope.check(build).findings if each.code == "tiny-blocks"]
    assert "(512, 90, 180)" in found.remedy


# ------------------------------------------------------------------ other findings


def test_more_threads_than_tasks_are_found_as_too_few_partitions():
    checked, _ = examined([healthy()], Seen(), "x", threads=100)
    assert codes(checked) == ["too-few-partitions"]


def test_equal_calls_are_reported_but_equal_simulations_are_not():
    def load(path):
        return path

    def build():
        return [delayed(max)(delayed(load)("a.nc"), 1), delayed(min)(delayed(load)("a.nc"), 2)]

    assert codes(scalescope.check(build)) == ["computed-twice"]
    assert codes(scalescope.check(lambda: [delayed(load)([["a.nc"], str(end)]) for end in (1, 1)])) == [
        "computed-twice"
    ]
    assert codes(scalescope.check(lambda: [delayed(load)([["a.nc"], str(end)]) for end in (1, 2)])) == []
    assert codes(scalescope.check(lambda: [delayed(load)(100) for _ in range(10)])) == []


def test_a_large_object_in_the_graph_is_named():
    data = np.random.default_rng(0).random(2_000_000)
    checked = scalescope.check(lambda: [delayed(len)(data), delayed(max)(data)])
    assert "large-graph" in codes(checked)


# ------------------------------------------------------------------ scripts

SCRIPT = """
import sys
import dask.array as da
from dask.distributed import Client, LocalCluster
cluster = LocalCluster(n_workers=3, threads_per_worker=2, memory_limit="1GiB")
client = Client(cluster)
x = da.random.random((3_000, 3_000), chunks=1_000).persist()
later = client.submit(sum, [1, 2])
try:
    print(x.mean(axis=0).compute())
except Exception:
    print("went on")
open(sys.argv[1], "w")
"""


def test_a_checked_script_stops_at_its_first_computed_value_and_its_memory_need_is_reported(tmp_path, capfd):
    script, after = tmp_path / "script.py", tmp_path / "after"
    script.write_text(SCRIPT)
    status = main.run(["check", "--json", str(script), str(after)])
    told = json.loads(capfd.readouterr().out)
    assert told["stopped_at"].startswith("script.py:10 ")
    assert not after.exists()
    assert (told["memory"]["workers"], told["memory"]["threads"]) == (3, 2)
    assert told["memory"]["nbytes"] >= 9 * 8_000_000
    assert status == ExitStatus.OK


def slurm():
    from dask_jobqueue import SLURMCluster

    SLURMCluster(cores=8, processes=2, memory="16GiB", queue="cpu", interface="lo").scale(jobs=5)


def kubernetes():
    from dask_kubernetes.operator import KubeCluster

    KubeCluster(n_workers=4, resources={"requests": {"cpu": "4000m"}, "limits": {"memory": "8Gi"}}).scale(10)


@pytest.mark.parametrize("build", [slurm, kubernetes])
def test_a_check_notes_slurm_and_kubernetes_clusters_without_requesting_them(build):
    pytest.importorskip("dask_jobqueue")
    pytest.importorskip("dask_kubernetes")
    seen = Seen()
    with intercepted(seen):
        build()
    assert (seen.workers, seen.threads, seen.memory) == (10, 4, 8 * 2**30)


@pytest.mark.parametrize("target", ["job:run", "job.py:run"])
def test_a_function_given_by_module_or_by_file_is_checked(tmp_path, monkeypatch, target):
    from scalescope.checking import program

    (tmp_path / "job.py").write_text("import dask.bag as db\ndef run():\n    return db.from_sequence(range(10))\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scalescope.checking.check.with_memory", lambda checked, *_: checked)
    assert program.check_program(target).tasks == 10


@pytest.mark.parametrize("target", ["nothing.py", "words", "nothing.py:run", "nothing:run"])
def test_a_missing_file_module_or_function_is_refused(target):
    assert main.run(["check", target]) == ExitStatus.USAGE
