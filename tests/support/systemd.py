"""systemd as the first process of namespaces of its own, so that services run as on a machine that was booted by it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from support.waiting import wait_for

PROGRAM = Path("/usr/lib/systemd/systemd")
NAMESPACES = ("--mount", "--pid", "--ipc", "--uts")
RUNTIME = f"/run/user/{os.getuid()}"
# Nothing of the host is written to but HOME: no unit that systemd starts by itself is (one of them empties /tmp), and
# the socket of the log would be a link in /dev.
BOOT = """
set -e
mount --bind -o ro /proc/sys /proc/sys
for folder in /run /etc/systemd/system /var/lib/systemd /var/log /usr/lib/systemd/system/*.wants; do
    mount -t tmpfs tmpfs $folder
done
mkdir -p /run/systemd/system /run/lock
mkdir /etc/systemd/system/user@0.service.d
printf "[Service]\\nEnvironment=HOME=$HOME\\n" > /etc/systemd/system/user@0.service.d/home.conf
ln -s /dev/null /etc/systemd/system/systemd-journald-dev-log.socket
printf '[Unit]\\nDefaultDependencies=no\\nWants=dbus.service systemd-logind.service systemd-journald.service\\n' \
    > /etc/systemd/system/few.target
exec env -i PATH=/usr/sbin:/usr/bin container=tests %s --system --unit=few.target --log-target=console
"""


class Systemd:
    """Services of root, whose home is a folder of the test; `close` ends all of them."""

    def __init__(self, home: Path, missing: Any) -> None:
        if os.getuid() or not PROGRAM.exists() or not all(map(shutil.which, ("unshare", "dbus-daemon", "loginctl"))):
            missing("systemd", "services need root, systemd, dbus and util-linux")
        self.home = home
        self._groups = [
            Path(mount.mountpoint, f"scalescope-{os.getpid()}")
            for mount in psutil.disk_partitions(all=True)
            if mount.fstype == "cgroup2" or (mount.fstype == "cgroup" and "cpuset" not in mount.opts)
        ]
        joined = ""
        for group in self._groups:
            group.mkdir(exist_ok=True)
            joined += f"echo $$ > {group}/cgroup.procs; "
        inner = ["unshare", "--fork", "--mount-proc", "--propagation=private", "--kill-child", *NAMESPACES]
        with (home / "boot.log").open("wb") as log:
            self._started = psutil.Popen(
                ["bash", "-c", f'{joined} exec "$@"', "bash", *inner, "bash", "-c", BOOT % PROGRAM],
                env={**os.environ, "HOME": str(home)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._first = wait_for(self._booted, lambda: (home / "boot.log").read_text())

    def _booted(self) -> psutil.Process | None:
        assert self._started.poll() is None, (self.home / "boot.log").read_text()
        for child in self._started.children():
            # a person who has logged in has services of their own
            own = f"loginctl enable-linger root && test -S {RUNTIME}/systemd/private"
            if child.name() == "systemd" and not self._inside(child, own).returncode:
                return child
        return None

    def _inside(self, first: psutil.Process, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--target={first.pid}", "--mount", "--pid", "--ipc", "--uts", "bash", "-ec", script],
            env={**os.environ, "HOME": str(self.home), "XDG_RUNTIME_DIR": RUNTIME, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run(self, script: str, **environ: str) -> str:
        """Give commands as a person who is logged in there; return what they print."""
        done = self._inside(self._first, script, **environ)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        for process in (*self._started.children(), self._started):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)  # the first process takes all others with it
        self._started.wait(30)
        for group in self._groups:
            wait_for(lambda group=group: _removed(group), f"{group} is still in use")


def _removed(group: Path) -> bool:
    try:
        for folder in (*sorted(group.rglob("*/"), reverse=True), group):
            folder.rmdir()
    except FileNotFoundError:
        return not group.exists()  # one hierarchy can have two mount points
    except OSError:  # a process of it is just ending
        return False
    return True
