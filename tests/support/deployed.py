"""deployments/local.yaml on the server of the session, with a worker and its files."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from support.site import DEPLOY, POOL, WORKER, Site


@pytest.fixture(scope="session")
def site(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Deployed, and ready for a worker; its files are served."""
    from prefect.settings import PREFECT_API_URL

    made = Site(tmp_path_factory.mktemp("deployed"), PREFECT_API_URL=str(PREFECT_API_URL.value()))
    try:
        made.give(POOL)
        made.give(DEPLOY)
        made.serve()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def worker(site: Site) -> psutil.Process:
    """Of the pool; one run at a time."""
    return site.stay(WORKER)
