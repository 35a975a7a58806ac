"""Where output files go and how a browser reaches them: in a folder, in memory, and in a deployment."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import _registry

from scalescope.errors import InvalidField, StoreError, UsageError
from scalescope.report import files
from scalescope.report.table import markdown_text
from scalescope.run.output_paths import VARIABLE, OutputPath, WrittenFile
from scalescope.run.progress import Progress
from scalescope.run.runner import Publication, Runner
from scalescope.store.store import Store
from scalescope.studies.running import run_study

BASE = "https://files.example.org/records"


class Temporary(Runner):
    """A runner as in a deployment, whose working folder is deleted afterwards."""

    keeps_folder = False


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(str(tmp_path / "results.db")) as opened:
        yield opened


@pytest.fixture
def in_memory(tmp_path: Path) -> Any:
    with Store.open(str(tmp_path / "results.db"), "memory://team/records") as opened:
        yield opened
    fsspec.filesystem("memory").store.clear()


def test_a_relative_name_is_a_file_in_the_working_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = OutputPath.of("report", "report.html", store, Runner())
    assert place.made("run-1") == str(tmp_path / "report.html")


def test_a_relative_name_in_a_deployment_goes_to_the_folder_of_the_run(store: Store, tmp_path: Path) -> None:
    place = OutputPath.of("report", "charts/report.html", store, Temporary())
    assert list((tmp_path / "records").iterdir()) == []  # the write check left no file
    assert place.made("run-1") == str(tmp_path / "records" / "run-1" / "charts" / "report.html")
    assert (tmp_path / "records" / "run-1" / "charts").is_dir()


def test_a_file_in_a_deployment_is_written_to_records_in_object_storage(in_memory: Store) -> None:
    place = OutputPath.of("report", "report.html", in_memory, Temporary())
    heard: list[Progress] = []
    written = place.write("run-1", Runner(heard.append), lambda address: files.write(address, "a report", "report"))
    assert str(written) == "memory://team/records/run-1/report.html"
    assert fsspec.filesystem("memory").cat("team/records/run-1/report.html") == b"a report"
    assert fsspec.filesystem("memory").find("team") == ["/team/records/run-1/report.html"]
    assert [each.text for each in heard] == ["Report: memory://team/records/run-1/report.html"]


@pytest.mark.parametrize("runner", [Runner(), Temporary()])
def test_absolute_paths_and_addresses_are_not_changed(store: Store, tmp_path: Path, runner: Runner) -> None:
    for name in (str(tmp_path / "a.html"), "memory://elsewhere/a.html"):
        place = OutputPath.of_report(name, store, runner)
        assert place is not None
        assert place.made("run-1") == name
    home = OutputPath.of("folder", "~/isolated", store, runner)
    assert home.made("run-1") == str(Path.home() / "isolated")
    assert OutputPath.of_report("", store, runner) is None


@pytest.mark.parametrize("name", ["../x.html", "../../x.html", "a/../../x.html", ".", "..", ".hidden", "a/.b/c.html"])
def test_a_relative_name_outside_the_folder_of_the_run_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidField) as caught:
        OutputPath.of("report", name, store, Temporary())
    assert "absolute path" in caught.value.next_step


def test_a_folder_of_records_that_cannot_be_written_is_refused_at_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "records").write_text("in the way")
    with pytest.raises(StoreError, match="report could not"):
        OutputPath.of("report", "report.html", store, Temporary())


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("nosuch://bucket/a.html", StoreError, "Protocol not known"),
        ("memory://folder/", UsageError, "is a folder"),
        ("s3://key:hunter2@bucket/a.html", InvalidField, "without a password"),
    ],
)
def test_an_invalid_address_of_a_report_is_refused_without_its_password(
    store: Store, name: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        OutputPath.of_report(name, store, Runner())
    assert "hunter2" not in str(caught.value)


def test_an_address_whose_package_is_missing_names_the_package_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(_registry, "s3", raising=False)  # the class, once it was imported
    with pytest.raises(StoreError, match="Install s3fs") as caught:
        OutputPath.of_report("s3://bucket/report.html", store, Runner())
    assert "[s3]" in caught.value.next_step


def test_the_report_of_a_study_goes_to_the_folder_of_the_study(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, BASE)
    shown: list[Publication] = []
    runner = Temporary()
    monkeypatch.setattr(runner, "publish", lambda make: shown.append(make()))
    given = {"workload": "futures-map", "axes": {"items": "1..3", "workers": 2}}
    study = run_study("threshold", {**given, "store": address, "report": "a b.html"}, runner).study_id
    with Store.open(address) as store:
        assert study in Path(store.folder(study), "a b.html").read_text(encoding="utf-8")
    assert f"[a b.html]({BASE}/{study}/a%20b.html)" in shown[-1].markdown


def test_a_written_file_without_web_address_names_its_path_and_host(store: Store) -> None:
    written = WrittenFile.at("/data/re_port.html", store)
    assert written.link == ""
    assert str(written) == "/data/re_port.html"
    assert written.markdown() == markdown_text(f"/data/re_port.html on {socket.gethostname()}")


def test_a_written_file_has_a_quoted_link_if_a_web_address_is_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, BASE + "/")
    written = WrittenFile.at(f"{store.records}/run-1/a report](x) [é.html", store)
    assert str(written) == f"{BASE}/run-1/a%20report%5D%28x%29%20%5B%C3%A9.html"
    assert written.markdown() == rf"[a report\](x) \[é.html]({written.link})"
    assert WrittenFile.at("/elsewhere/report.html", store).link == ""
    assert WrittenFile.at(f"{store.records}-of-others/report.html", store).link == ""


def test_a_file_in_a_bucket_has_a_link_too(in_memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, BASE)
    assert WrittenFile.at("memory://team/records/run-1/r.html", in_memory).link == f"{BASE}/run-1/r.html"


@pytest.mark.parametrize(
    "url",
    ["file:///data", "javascript:alert(1)", "https://me:hunter2@host/x", "https://h/x?sig=hunter2", "https://h/)x"],
)
def test_an_invalid_web_address_is_refused_without_its_password(
    store: Store, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(InvalidField, match=VARIABLE) as caught:
        OutputPath.of("report", "report.html", store, Runner())
    assert "me:hunter2" not in str(caught.value)
