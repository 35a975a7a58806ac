from __future__ import annotations

import distributed
import pytest

from scalescope.clusters import light_workers


@pytest.mark.parametrize("versions", [True, False])
def test_patches_that_make_workers_start_cheaply_are_undone_afterwards(versions: bool) -> None:
    before = (distributed.versions.error_message, distributed.worker.get_versions, distributed.core.SystemMonitor)
    with light_workers.cheap_start(versions=versions):
        assert (
            distributed.versions.error_message({}, {"a": {"packages": {"dask": "1"}}}, {}) == light_workers._no_error()
        )
        assert ("packages" in distributed.worker.get_versions()) is versions
    after = (distributed.versions.error_message, distributed.worker.get_versions, distributed.core.SystemMonitor)
    assert after == before


def test_errors_of_a_starting_worker_are_still_reported() -> None:
    with light_workers.cheap_start():
        assert distributed.worker.error_message(ValueError("no"))["status"] == "error"
        assert distributed.core.error_message(ValueError("no"))["status"] == "error"
