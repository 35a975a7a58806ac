"""Unusual hosts: the real command works in each, or tells at once what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from scalescope.cli.main import main; main()"]
WORKLOAD = '''
"""Größer."""
def run(client, items: int = 4, seed: int = 0, label: str = ""):
    assert seed in (0, 2**70) and label in ("", "größer")
    assert client.gather(client.map(abs, range(-2, 2), pure=False)) == [2, 1, 0, 1]
'''
NOBODY = ["unshare", "--user", "--map-user=12345"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROXY = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
NUMBERS = [f"items={2**64}", f"seed={2**70}"]


def scalescope(folder: Path, prefix: list[str], env: dict[str, str | None], *more: str) -> subprocess.CompletedProcess:
    home = folder / "my home ü"
    for name in ("my jobs ü", "tmp dir"):
        (home / name).mkdir(parents=True)
    (home / "my jobs ü" / "my job.py").write_text(WORKLOAD, encoding="utf-8")
    paths = {"HOME": str(home), "TMPDIR": str(home / "tmp dir"), "XDG_STATE_HOME": str(home / "a state")}
    paths["PREFECT_HOME"] = str(home / "prefect")
    known = {**os.environ, **paths, **env}
    for name in ("no_proxy", "NO_PROXY", "SCALESCOPE_STORE", "SCALESCOPE_STATE"):
        known.pop(name, None)
    arguments = ["sweep", "-a", "workers=2", *more]
    return subprocess.run(
        [*prefix, *COMMAND, *arguments],
        env={name: value for name, value in known.items() if value is not None},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )


def unless_root_of_a_namespace() -> None:
    if shutil.which("unshare") is None or subprocess.run([*NOBODY, "true"], check=False).returncode:
        pytest.skip("this host gives no user a name space of its own")


@pytest.mark.parametrize(
    ("prefix", "env", "more"),
    [
        pytest.param(NOBODY, ASCII, ["-p", NUMBERS[0], "-p", NUMBERS[1], "-p", "label=größer"], id="all"),
        pytest.param([], {}, ["-a", NUMBERS[0]], id="numbers", marks=pytest.mark.thorough),
        pytest.param(NOBODY, {"LOGNAME": None, "USER": None}, [], id="nobody", marks=pytest.mark.thorough),
        pytest.param([], ASCII, [], id="ascii", marks=pytest.mark.thorough),
        pytest.param([], {"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0"}, [], id="latin", marks=pytest.mark.thorough),
        pytest.param([], PROXY, ["--prefect"], id="proxy", marks=pytest.mark.thorough),
    ],
)
def test_a_sweep_works_on_hosts_with_unusual_users_locales_or_proxies(
    tmp_path: Path, prefix: list[str], env: dict[str, str | None], more: list[str]
) -> None:
    if prefix:
        unless_root_of_a_namespace()
    more = more if "--prefect" in more else [*more, "--no-prefect"]
    done = scalescope(tmp_path, prefix, env, "-w", "~/my jobs ü/my job.py:run", "--store", "~/a store/ö.db", *more)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode in (0, 1), said
    assert "Lost to:" in said
    assert "unexpected" not in said
    assert (tmp_path / "my home ü" / "a store" / "ö.db").exists()


def test_a_sweep_without_a_home_folder_is_refused_with_the_next_step(tmp_path: Path) -> None:
    unless_root_of_a_namespace()
    nothing = dict.fromkeys(("HOME", "LOGNAME", "USER", "XDG_STATE_HOME", "XDG_DATA_HOME"))
    done = scalescope(tmp_path, NOBODY, nothing, "-w", "futures-map", "--no-prefect")
    assert done.returncode == 2
    assert b"set HOME to a folder" in done.stderr
