from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.errors import InvalidField
from scalescope.run import syntax


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("workers=1,2,4", [1, 2, 4]),
        ("workers=1..4", [1, 2, 3, 4]),
        ("items=50..300:50", [50, 100, 150, 200, 250, 300]),
        ("items=50..299:100", [50, 150, 250]),
        ("workers=1..3, 8", [1, 2, 3, 8]),
        ("x=-2..1", [-2, -1, 0, 1]),
        ("seconds=0.5,1e-3", [0.5, 0.001]),
        ("mode=a,B", ["a", "B"]),
        ("flag=true,False,null", [True, False, None]),
    ],
)
def test_the_text_of_an_axis_is_parsed_into_its_values(text: str, values: list[object]) -> None:
    assert syntax.axes([text]) == {text.partition("=")[0]: values}


@given(st.integers(-1000, 1000), st.integers(0, 200), st.integers(1, 50))
def test_a_range_of_an_axis_includes_its_end(first: int, length: int, step: int) -> None:
    last = first + length
    assert syntax.axes([f"n={first}..{last}:{step}"]) == {"n": list(range(first, last + 1, step))}


@pytest.mark.parametrize(
    "text", ["workers", "=1", "workers=", "workers=1,,2", "workers=4..1", "workers=1..x", "x=1..2:0", "x=0..1000000"]
)
def test_an_invalid_axis_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="--axis"):
        syntax.axes([text])


def test_an_axis_given_twice_is_refused() -> None:
    with pytest.raises(InvalidField, match="twice"):
        syntax.axes(["workers=1", "workers=2"])


def test_names_of_blocks_are_distinguished_from_kinds_paths_and_urls() -> None:
    assert syntax.names_block("cluster", "simulated-cluster/prod")
    assert syntax.names_block("store", "result-store/team")
    assert syntax.names_blocks({"workload": "bag-map", "clusters": ["local", "simulated-cluster/prod"]})
    assert not syntax.names_blocks({"workload": "simulated-cluster/prod", "store": "data/results.db"})
    for text in ("simulated", "/data/results.db", "a/b/c", "sqlite:///x.db", "postgresql://u@h/d", 3, None, {}):
        assert not syntax.names_block("cluster", text)
    assert not syntax.names_block("store", "data/results.db")


def test_options_override_the_values_of_a_file() -> None:
    data = {"axes": {"workers": [1], "items": [5]}, "cluster": {"kind": "light", "hosts": 2}}
    syntax.merge(data, "axes", {"workers": [2]})
    syntax.merge_cluster(data, None, {"check_limit": False})
    assert data["axes"] == {"workers": [2], "items": [5]}
    assert data["cluster"] == {"kind": "light", "hosts": 2, "check_limit": False}
    syntax.merge_cluster(data, "local", {})
    assert data["cluster"] == "local"


def test_a_yaml_file_is_read_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("workload: bag-map\naxes:\n  workers: [1, 2]\n")
    assert syntax.read_file(path) == {"workload": "bag-map", "axes": {"workers": [1, 2]}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"axes: [1, 2", "line 1"),
        (b"- 1\n- 2\n", "a list"),
        (b"", "nothing"),
        (b"just words", "text"),
        (b"seed: 1\nseed: 2\n", "'seed' is there twice"),
        (b"axes:\n  workers: [1]\n  workers: [2]\n", "'workers' is there twice"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"1: 2\n", "names"),
        (b"!!python/object/apply:os.system ['true']\n", "line 1"),
    ],
)
def test_a_file_that_is_no_valid_sweep_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidField, match=says) as error:
        syntax.read_file(path)
    assert error.value.field == "FILE"
    with pytest.raises(InvalidField, match="No such file"):
        syntax.read_file(tmp_path / "none.yaml")
