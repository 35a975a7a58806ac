"""Facts of this host and this Python, and how busy the host was with other work. Standard library only."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
NAMED, MOST_NAMES = 0.05, 3  # fewest busy cores of a foreign process that is named; most names


def facts() -> dict[str, Any]:
    """Facts of this machine; a value is None if the platform does not tell it."""
    return {
        "hostname": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu_model": _after_colon(_PROC / "cpuinfo", "model name"),
        "memory_bytes": _kilobytes(_PROC / "meminfo", "MemTotal"),
        "available_bytes": _kilobytes(_PROC / "meminfo", "MemAvailable"),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "cgroup_cpus": _cgroup_cpus(),
        "cgroup_memory_bytes": _cgroup_memory(),
    }


def packages() -> dict[str, str]:
    """Versions of all distributions that this Python finds, by normalised name.

    The version of a distribution that was built from a repository is `VERSION @ git+ADDRESS@COMMIT`.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        metadata = distribution.metadata  # read and parsed at each access
        if name := metadata["Name"]:  # None if the distribution has no metadata
            version = f"{metadata['Version']}{_source(distribution)}"
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)  # the first on the path counts
    return dict(sorted(found.items()))


def _source(distribution: importlib.metadata.Distribution) -> str:
    direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    source = direct.get("vcs_info", {})
    return f" @ git+{direct['url']}@{source['commit_id']}" if source.get("vcs") == "git" else ""


def packages_digest(versions: dict[str, str]) -> str:
    lines = "\n".join(f"{name}=={version}" for name, version in sorted(versions.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class CpuShares:
    """How the host's CPU time was used; shares of all its CPUs, from 0 to 1."""

    ours: float  # used by our processes
    own: float = 0.0  # the part of `ours` used by the root processes themselves, such as a driver
    others: float = 0.0  # used by all other processes and the kernel
    stolen: float = 0.0  # taken by the hypervisor for other machines
    idle: float  # not used
    cpus: int  # CPUs of the host
    seconds: float  # length of the interval
    names: tuple[str, ...] = ()  # names of other processes that used at least `NAMED` cores, the busiest first

    def to_mapping(self) -> dict[str, Any]:
        return asdict(self)


AGAIN_S = 10.0  # seconds between two looks at all processes, which take some milliseconds


class HostLoad:
    """Measures how processes share the CPU time of the host while the body runs, from `/proc`, in ticks of 10 ms.

    Our processes are the trees below `roots` (process ids; default: this process), including children that have been
    waited for. A process that leaves its tree is foreign. `load` is the result; if None, `reason` says why.
    """

    def __init__(self, roots: Iterable[int] | None = None) -> None:
        self.roots = {os.getpid()} if roots is None else set(roots)
        self.load: CpuShares | None = None
        self.reason = "not measured yet"
        self._before: dict[str, int] | None = None
        # CPU ticks of foreign processes, by id and name: at the last look, and at the first look
        self._foreign: dict[tuple[int, str], int] = {}
        self._begun: dict[tuple[int, str], int] = {}
        self._looked = 0.0

    def __enter__(self) -> HostLoad:
        self._before = self._look()
        self._begun = self._foreign
        return self

    def __exit__(self, *exception: object) -> None:
        self._measure()

    def so_far(self) -> CpuShares | None:
        """The load until now, at most `AGAIN_S` old; for callers that may be killed before the body ends."""
        if time.monotonic() - self._looked >= AGAIN_S:
            self._measure()
        return self.load

    def _measure(self) -> None:
        foreign, after = self._begun, self._look()
        if self._before is None or after is None:
            return
        spent = {name: ticks - self._before[name] for name, ticks in after.items()}
        elapsed = spent.pop("total")
        if elapsed <= 0:
            self.reason = "the interval is shorter than a tick of the kernel"
            return
        spent["ours"] = min(max(spent["ours"], 0), elapsed)
        spent["own"] = min(max(spent["own"], 0), spent["ours"])
        spent["others"] = max(elapsed - spent["idle"] - spent["stolen"] - spent["ours"], 0)
        cpus = os.cpu_count() or 1
        seconds = elapsed / os.sysconf("SC_CLK_TCK") / cpus
        self.reason = ""
        by_name: Counter[str] = Counter()
        for process, ticks in self._foreign.items():
            by_name[process[1].partition("/")[0]] += ticks - foreign.get(process, 0)
        names = tuple(name for name, ticks in by_name.most_common(MOST_NAMES) if ticks * cpus >= NAMED * elapsed)
        shares = {name: ticks / elapsed for name, ticks in spent.items()}
        self.load = CpuShares(**shares, cpus=cpus, seconds=seconds, names=names)

    def _look(self) -> dict[str, int] | None:
        self._looked = time.monotonic()
        try:
            with (_PROC / "stat").open() as file:
                # user, nice, system, idle, waiting, interrupts, soft interrupts, stolen
                ticks = [int(each) for each in file.readline().split()[1:9]]
            ours, own, self._foreign = _tree_ticks(self.roots)
            return {"total": sum(ticks), "idle": ticks[3] + ticks[4], "stolen": ticks[7], "ours": ours, "own": own}
        except (OSError, ValueError, IndexError) as error:
            self.reason = f"this platform does not report how CPU time is used: {error}"
            return None


def _tree_ticks(roots: Collection[int]) -> tuple[int, int, dict[tuple[int, str], int]]:
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    names: dict[int, str] = {}
    own = 0
    for process in map(int, filter(str.isdigit, os.listdir(_PROC))):
        try:
            with open(f"{_PROC}/{process}/stat", "rb") as file:
                stat = file.read()
        except OSError:  # the process has ended meanwhile
            continue
        # the name of a process, in parentheses, may contain anything
        name, _, rest = stat.partition(b"(")[2].rpartition(b")")
        values, names[process] = rest.split(), name.decode(errors="replace")
        parents[process] = int(values[1])
        ticks[process] = sum(map(int, values[11:15]))  # utime, stime, cutime, cstime
        own += sum(map(int, values[11:13])) if process in roots else 0
    ours = {process for process in ticks if _descends(process, roots, parents)}
    foreign = {(process, names[process]): spent for process, spent in ticks.items() if process not in ours}
    return sum(ticks[process] for process in ours), own, foreign


def _descends(process: int, roots: Collection[int], parents: dict[int, int]) -> bool:
    while process:
        if process in roots:
            return True
        process = parents.get(process, 0)
    return False


def _after_colon(path: Path, name: str) -> str | None:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def _kilobytes(path: Path, name: str) -> int | None:
    value = _after_colon(path, name)
    return int(value.split()[0]) * 1024 if value else None


def _cgroup_cpus() -> float | None:  # CPUs by control groups of version 2, or else of version 1
    quota, _, period = _first_line(_CGROUP / "cpu.max").partition(" ")
    if not quota:
        quota = _first_line(_CGROUP / "cpu" / "cpu.cfs_quota_us")
        period = _first_line(_CGROUP / "cpu" / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:  # "max", "-1" or nothing
        return None
    return int(quota) / int(period)


def _cgroup_memory() -> int | None:
    limit = _first_line(_CGROUP / "memory.max") or _first_line(_CGROUP / "memory" / "memory.limit_in_bytes")
    if not limit.isdigit() or int(limit) >= 1 << 60:  # version 1 says "no limit" with a huge number
        return None
    return int(limit)


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return ""
