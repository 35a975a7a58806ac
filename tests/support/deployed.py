"""What the header of deployments/local.yaml tells to do, once for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from support.groups import until_the_last
from support.site import WORKER, Site, header


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with blocks, pools, automation and deployments; its files are served."""
    made = Site(
        tmp_path_factory.mktemp("deployed"),
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY="30",
        PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS="1",
    )
    later = (". .venv/bin/activate", "scalescope serve", "prefect worker start")
    with until_the_last(request) as stack:
        stack.callback(made.close)
        for command in header("local.yaml"):
            if command == "prefect server start":
                made.start_server(command)
            elif not command.startswith(later):
                made.give(command)
        made.serve()
        yield made


@pytest.fixture(scope="session")
def worker(site: Site) -> psutil.Popen:
    """The worker of the process pool, which runs one flow run at a time."""
    assert WORKER in header("local.yaml")
    return site.stay(WORKER)
