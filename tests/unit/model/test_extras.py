from __future__ import annotations

import json
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.model.extras import install_command

GIT = {"vcs": "git", "commit_id": "1f2e3d"}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///src/my%20scope", "dir_info": {"editable": True}}, 'pip install -e "/src/my scope[beam]"'),
        ({"url": "file:///src/scope", "dir_info": {}}, 'pip install "/src/scope[beam]"'),
        (
            {"url": "https://host/scope", "vcs_info": GIT},
            'pip install "scalescope[beam] @ git+https://host/scope@1f2e3d"',
        ),
        ({"url": "file:///a.whl", "archive_info": {}}, 'pip install "scalescope[beam] @ file:///a.whl"'),
        (None, 'pip install "scalescope[beam]"'),
    ],
)
def test_the_install_command_of_an_extra_names_the_origin_of_the_package(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SimpleNamespace(read_text=lambda name: origin and json.dumps(origin))
    monkeypatch.setattr(metadata, "distribution", lambda name: read)
    assert install_command("beam") == command


def test_the_install_command_names_the_working_folder_if_scalescope_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert install_command("beam").startswith('pip install ".[beam]"')
