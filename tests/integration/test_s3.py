"""Report, history and raw records on a server that speaks S3: moto's, on loopback."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from support.nights import made_up

from scalescope.nightly.site import write_site
from scalescope.run.request import check
from scalescope.run.runner import Runner
from scalescope.run.sweep import REPORT, carry_out


@pytest.fixture
def bucket(missing: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if absent := [name for name in ("s3fs", "moto", "flask") if importlib.util.find_spec(name) is None]:
        missing("s3", f"not installed: {', '.join(absent)}")
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    given = {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test"}
    monkeypatch.setitem(fsspec.config.conf, "s3", given)
    files = fsspec.filesystem("s3")
    files.mkdir("bucket")
    yield files
    server.stop()


def test_records_report_and_site_can_be_written_to_a_bucket(fake: Any, address: str, bucket: Any) -> None:
    request = check(
        {"workload": "futures-map", "axes": {"workers": [1, 2]}, "params": {"items": 4}, "store": address},
        records="s3://bucket/records",
    )
    runner = Runner()
    with request.open_store() as store:
        run = carry_out(request, store, runner).run
        assert len(store.tables(run.trials[1])["tasks"]["key"]) == 2
        runner.do(REPORT, store, run, "s3://bucket/reports/report.html")
        assert write_site("s3://bucket/site/", made_up(nights=12, workloads=1)) == "s3://bucket/site/index.html"
    assert b"</html>" in bucket.cat_file("bucket/reports/report.html")
    assert b"</html>" in bucket.cat_file("bucket/site/index.html")
