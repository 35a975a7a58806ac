"""Files that a sweep, a report and a script leave are readable only by their user, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope import owner
from scalescope.errors import ExitStatus

SCRIPT = """
import distributed
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        print(cluster.get_client().submit(sum, [1, 2]).result())
"""


def left_open(folder: Path) -> list[str]:
    """Files and folders below `folder` that other users may read, write or enter."""
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    assert len(found) > 5
    return [str(path.relative_to(folder)) for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.thorough
def test_files_of_a_sweep_and_a_report_are_readable_only_by_their_user(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "work").chmod(0o700)
    (home / "job.py").touch(mode=0o600)
    (home / "job.py").write_text(SCRIPT)
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "STATE", "CACHE", "CONFIG")}
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SCALESCOPE_", "PREFECT_"))}
    environ |= {"HOME": str(home), **folders}
    sweep = ["sweep", "-w", "futures-map", "-c", "local", "-a", "workers=1", "--report", "report.html"]
    sweep += ["-p", "items=4", "-p", "seconds=0.1", "--repeats", "1"]
    for command in (sweep, ["run", str(home / "job.py")]):
        done = subprocess.run(
            [Path(sys.executable).with_name("scalescope"), *command],
            env=environ,
            cwd=home / "work",
            umask=0,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode in (0, ExitStatus.INFRASTRUCTURE), done.stdout + done.stderr  # the host may be busy
    assert {path.suffix for path in home.rglob("*")} >= {".db", ".parquet", ".html"}
    assert left_open(home) == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_store_is_shared_with_the_group_only_by_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setenv(owner.SHARED, "1" if shared else "")
    before = os.umask(0o007)
    try:
        owner.make_folder(tmp_path / "a" / "b", may_share=True)
        owner.make_folder(tmp_path / "state")
        open(tmp_path / "a" / "b" / "file", "w", opener=owner.opener).close()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/file", "state")]
    assert modes == ([0o770, 0o770, 0o660, 0o700] if shared else [0o700, 0o700, 0o600, 0o700])
