"""The process that owns a resource, and whether it still lives."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from scalescope.errors import UsageError

CLOCK_SLACK_S = 5.0  # seconds by which a recorded start may differ without /proc: the host's clock may be set meanwhile
SHARED = "SCALESCOPE_SHARED"  # set to 1 by a team whose members read each other's store and reports
_GONE = ("Z", "X")  # states of a process that has ended (`proc_pid_stat(5)`)


@dataclass(frozen=True)
class Owner:
    """A process, identified among all processes of all hosts.

    On Linux, `host` is four words: the host's name, the process name space (containers may share the rest), the id of
    the machine (hosts may share a name) and the id of its boot. Elsewhere it is the host's name.
    """

    host: str
    pid: int
    process_started: float  # clock ticks since that boot, which nobody can set; elsewhere seconds since the epoch

    @classmethod
    def current(cls) -> Owner:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """A process of this host, or `ProcessLookupError`."""
        host = _host()
        try:
            return cls(host, pid, _start(pid)[1] if " " in host else psutil.Process(pid).create_time())
        except (FileNotFoundError, psutil.NoSuchProcess) as error:
            raise ProcessLookupError(f"there is no process {pid}") from error

    @property
    def is_here(self) -> bool:
        """Whether it ran on this host, so that `is_alive` can tell."""
        return self.host.split()[:3] == _host().split()[:3]

    def is_alive(self) -> bool:
        """Whether this process of this host still runs; a zombie does not."""
        host = _host()
        if self.host != host:  # another host, or this machine after a restart
            return False
        if " " not in host:
            return self._is_alive_by_clock()
        try:
            state, started = _start(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return _is_hidden(self.pid)
        return state not in _GONE and started == self.process_started

    def _is_alive_by_clock(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return abs(process.create_time() - self.process_started) <= CLOCK_SLACK_S
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


def user() -> str:
    """The name of this process's user, or its number if the host knows no name."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def home() -> Path:
    """The home folder of this process's user, or `UsageError`."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise UsageError(
            "the home folder is not known",
            where=f"user {user()}",
            cause="HOME is not set, and the host knows no such user",
            next_step="set HOME to a folder in which this user may write",
        ) from error


def user_folder(variable: str, *usual: str) -> Path:
    """Scalescope's folder of this user, by the XDG base directory specification; `usual` is the default below home."""
    base = os.environ.get(variable, "")
    return (Path(base) if os.path.isabs(base) else home().joinpath(*usual)) / "scalescope"


def opener(path: str, flags: int) -> int:
    """Opener for `open`: a new file is for this user only; where a team shares files (`SHARED`), the umask decides."""
    return os.open(path, flags, 0o666 if _is_shared() else 0o600)


def make_folder(path: Path, *, may_share: bool = False) -> None:
    """Make a folder and its missing parents, for this user only; with `may_share` and `SHARED`, the umask decides."""
    for each in reversed([path, *path.parents]):
        each.mkdir(mode=0o777 if may_share and _is_shared() else 0o700, exist_ok=True)


def replace_file(path: Path, text: str) -> None:
    """Write a file for this user only, and make its folder; a reader sees either the old text or the new one."""
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)


def _is_shared() -> bool:
    return os.environ.get(SHARED, "") not in ("", "0")


def _start(pid: int) -> tuple[str, float]:
    """State of a process, and its start in clock ticks after the boot."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    words = text.rpartition(")")[2].split()  # the process name, in parentheses before them, may hold any character
    return words[0], float(words[19])


def _is_hidden(pid: int) -> bool:
    """Whether /proc hides a process of another user, which may be the owner."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        pass
    return False


def _host() -> str:
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{name} {os.readlink('/proc/self/ns/pid')} {_machine()} {boot}"
    except OSError:
        return name


def _machine() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if text := Path(path).read_text(encoding="ascii").strip():
                return text
        except (OSError, ValueError):
            continue
    return "-"
