"""Groups of files that share servers: one process runs a group, and its servers end with its last test.

A fixture of the session would keep them while other tests run, and an idle Kubernetes takes a fifth of a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

_SHARING = ("deployed_files", "missing_nights", "prefect_ui", "schedules")
DEPLOYED = {f"tests/integration/test_{name}.py" for name in _SHARING}
_ends = pytest.StashKey[list[ExitStack]]()


def group(nodeid: str) -> str:
    """The group of a test, or else its file."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/kubernetes/"):
        return "kubernetes"
    return "deployed" if file in DEPLOYED else file


@contextmanager
def until_the_last(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    """A stack that is closed after the last test of the group, before what was opened earlier."""
    with ExitStack() as stack:
        request.config.stash.setdefault(_ends, []).append(stack)
        yield stack


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and group(nextitem.nodeid) == group(item.nodeid):
        return
    stacks = item.config.stash.get(_ends, [])
    while stacks:
        stacks.pop().close()
