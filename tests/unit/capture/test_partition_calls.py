"""Calls that make partitions, recorded with the real libraries; lines of the tests count as user code."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
from dask.bag import from_sequence

from scalescope.capture import partition_calls
from scalescope.capture.partition_calls import noted
from scalescope.errors import InvalidField
from scalescope.model.partition_calls import NPARTITIONS, READ_TEXT, PartitionCall


def here() -> str:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{Path(__file__).name}:{frame.f_back.f_lineno} in {frame.f_back.f_code.co_name}"


def test_making_a_bag_is_recorded_with_its_line_items_and_partitions():
    with noted(()) as notes:
        bag, line = dask.bag.from_sequence(range(300), npartitions=3), here()
        twice = bag.map(abs).filter(None).sum()
    assert twice.compute(scheduler="sync") == sum(range(300))
    assert notes == [PartitionCall("dask.bag.from_sequence", line, 300, 3)]


def test_calls_of_a_function_imported_by_name_count_once_in_a_loop():
    with noted(()) as notes:
        for _ in range(100):
            from_sequence([1, 2, 3])
    assert [(note.items, note.partitions) for note in notes] == [(3, 3)]


def test_making_arrays_and_dataframes_is_recorded_with_items_and_partitions():
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    with noted(()) as notes:
        dask.array.from_array(np.ones((6, 4)), chunks=(2, 4))
        dataframe.from_pandas(pandas.DataFrame({"a": range(10)}), npartitions=2)
    assert [(note.call, note.items, note.partitions) for note in notes] == [
        ("dask.array.from_array", 6, 3),
        ("dask.dataframe.from_pandas", 10, 2),
    ]


def test_the_bytes_of_splittable_files_are_recorded_and_those_of_compressed_ones_count_as_0(tmp_path):
    (tmp_path / "a.txt").write_text("x\n" * 500)
    (tmp_path / "b.txt.gz").write_bytes(b"")
    with noted({"dask.bag"}) as notes:
        dask.bag.read_text(str(tmp_path / "*.txt"))
        dask.bag.read_text(str(tmp_path / "b.txt.gz"))
    assert [(note.call, note.nbytes) for note in notes] == [(READ_TEXT, 1000), (READ_TEXT, 0)]


def test_an_iterator_of_paths_is_not_used_up_by_measuring_its_files():
    paths = iter(["a.txt"])
    assert partition_calls._bytes_to_cut(paths) is None
    assert list(paths) == ["a.txt"]
    assert partition_calls._bytes_to_cut(None) is None


def test_chunks_are_recorded_for_arrays_and_for_random_numbers():
    with noted({"dask.array"}) as notes:
        dask.array.random.random((6, 4), chunks=(4, 2))
        dask.array.random.default_rng(0).normal(size=9, chunks=3)
        dask.array.ones(8, chunks=2)
    assert [(note.call, note.shape, note.chunk) for note in notes] == [
        ("dask.array.random", (6, 4), (4, 2)),
        ("dask.array.random", (9,), (3,)),
        ("dask.array.ones", (8,), (2,)),
    ]


def test_no_number_of_items_is_recorded_where_dask_turns_a_number_into_an_array():
    with noted({"dask.array"}) as notes:
        assert dask.array.asarray(np.float32(2)).sum().compute() == 2
        assert dask.array.pad(dask.array.ones((4, 4), chunks=2), 1).shape == (6, 6)
    assert all(each.items is None for each in notes if each.call == "dask.array.from_array")


def test_the_npartitions_setting_changes_partitions_where_data_can_be_divided():
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    with dask.config.set({NPARTITIONS: 8}), noted(()) as notes:
        bag = dask.bag.from_sequence(range(300), partition_size=150)
        from_sequence("abc", 2)
        dask.bag.from_sequence(range(20), npartitions=10)
        frame = dataframe.from_pandas(pandas.DataFrame({"a": range(10)}), chunksize=5)
        dask.array.from_array(np.ones((6, 4)), chunks=(2, 4))
    assert [note.partitions for note in notes] == [9, 3, 10, 8, 3]  # bags of more than 100 items round down
    assert bag.sum().compute(scheduler="sync") == sum(range(300))
    assert frame.a.sum().compute(scheduler="sync") == 45
    with dask.config.set({NPARTITIONS: "many"}), noted(()), pytest.raises(InvalidField, match="npartitions"):
        from_sequence([1])


def test_the_call_in_user_code_is_recorded_and_calls_inside_it_are_not(tmp_path):
    dataframe = pytest.importorskip("dask.dataframe")
    (tmp_path / "a.csv").write_text("a\n1\n")
    with noted(()) as notes:
        dataframe.read_csv(tmp_path / "a.csv")
        dask.array.ones((6, 4), chunks=(2, 4))
    expected = [("dask.dataframe.read_csv", None, 1), ("dask.array.ones", None, 3)]
    assert [(note.call, note.items, note.partitions) for note in notes] == expected


def test_reading_files_is_recorded_without_a_number_of_items(tmp_path):
    (tmp_path / "one.txt").write_text("1\n2\n")
    with noted(()) as notes:
        dask.bag.read_text([str(tmp_path / "one.txt")])
    assert [(note.items, note.partitions) for note in notes] == [(None, 1)]


def test_beams_create_is_recorded_and_the_calls_of_its_runner_are_not():
    beam = pytest.importorskip("apache_beam")
    evaluator = pytest.importorskip("apache_beam.runners.dask.transform_evaluator")
    with noted(()) as notes:
        _, line = beam.Create(list(range(80))), here()
        # as the runner does, which takes the pipeline apart and puts it together again
        runner = {**vars(evaluator), "from_sequence": dask.bag.from_sequence}
        exec("from_sequence(list(range(80)), partition_size=128)", runner)
    assert notes == [PartitionCall("apache_beam.Create", line, 80, 1)]


# ------------------------------------------------------------------ no effect


def test_patched_functions_stay_the_same_objects_and_get_their_code_back():
    functions = dask.bag.from_sequence, dask.bag.read_text, dask.array.from_array
    before = [(function, function.__code__) for function in functions]
    with noted(()):
        assert from_sequence.__code__ is not before[0][1]
    assert [(function, function.__code__) for function in functions] == before
    assert (dask.bag.from_sequence, dask.array.from_array) == (functions[0], functions[2])


def test_tracebacks_through_patched_functions_show_no_frames_of_ours():
    with noted(()), pytest.raises(TypeError) as raised:
        from_sequence(3)
    assert [each.path.name for each in raised.traceback] == [Path(__file__).name, "core.py"]


def test_errors_of_patched_functions_are_those_of_the_library():
    with noted(()) as notes, pytest.raises(TypeError):
        from_sequence(3)
    assert notes == []


def test_a_function_replaced_by_the_user_is_not_recorded(monkeypatch):
    monkeypatch.setattr(dask.bag, "from_sequence", lambda items: items)
    with noted(()) as notes:
        dask.bag.from_sequence([1, 2])
    assert notes == []


def test_libraries_that_the_workload_does_not_import_stay_unloaded():
    script = """
        import sys
        from scalescope.capture.partition_calls import noted
        with noted(("time", "dask.bag")):
            print("dask.bag" in sys.modules, "dask.dataframe" in sys.modules, "apache_beam" in sys.modules)
        """
    told = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True", "False", "False"]


def test_a_library_that_is_not_installed_raises_no_error(monkeypatch):
    monkeypatch.setitem(partition_calls.CALLS, "dask.nothing", ("from_nothing",))
    with noted(("dask.nothing",)) as notes:
        from_sequence([1])
    assert len(notes) == 1
