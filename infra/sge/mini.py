"""Runs a real Grid Engine on this machine; its hosts are namespaces. A keeper ends all of it when the owner dies.

Each host has its own PID, mount and UTS namespaces, and the network of a small machine (`infra/machines/mini.py`). Only
root can start the system; every user may submit jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from infra.machines import mini as machines
from infra.mini_cluster import Keeper, MiniCluster, MiniClusterError, obey, poll, serve, spawn

PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qstat", "qdel", "qconf", "qmod", "qalter", "unshare", "nsenter")
VARIABLES = ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")  # variables that locate the system
NETWORK = 60  # N in the hosts' addresses, 10.N.0.2 and up; tests of small machines use other numbers
START_S = 60.0
MASTER = "qmaster"
_DEBIAN = Path("/usr/share/gridengine")

_BOOTSTRAP = """\
admin_user        none
default_domain    none
ignore_fqdn       true
spooling_method   classic
spooling_lib      libspoolc
spooling_params   {folder}/default/common;{folder}/spool/qmaster
binary_path       /usr/lib/gridengine
qmaster_spool_dir {folder}/spool/qmaster
security_mode     none
listener_threads  1
worker_threads    1
scheduler_threads 1
"""
# Changes to Debian's configuration: root and system users may submit jobs, and changes are reported within seconds.
CONFIGURATION = {
    "min_uid": "0",
    "min_gid": "0",
    "mailer": "/bin/true",
    "administrator_mail": "none",
    "load_report_time": "00:00:01",
    "max_unheard": "00:00:04",
    "gid_range": "20000-20100",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}
# Changes to the template queue. Its shell is the default of other builds: at sites that kept it, csh runs the scripts.
QUEUE = {
    "qname": "all.q",
    "qtype": "BATCH",
    "pe_list": "smp mpi",
    "rerun": "TRUE",
    "h_rt": "04:00:00",
    "load_thresholds": "NONE",
    "shell": "/bin/csh",
}


def unmet() -> str:
    """Why a Grid Engine cannot be started here; empty if it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=MiniGridEngine.search_path) is None]:
        packages = "gridengine-master gridengine-exec gridengine-client"
        return f"no Grid Engine on this machine: {', '.join(missing)} missing (apt-get install {packages})"
    return machines.unmet()


class MiniGridEngine(MiniCluster):
    """A Grid Engine owned by this process."""

    search_path = os.pathsep.join([MiniCluster.search_path, "/usr/lib/gridengine"])

    def __init__(
        self, folder: str | os.PathLike[str], *, hosts: int = 2, slots: int = 4, network: int = NETWORK
    ) -> None:
        self.folder = Path(folder).resolve()
        self.hosts = [f"sge{i + 1}" for i in range(hosts)]
        self._slots, self.network = slots, network
        first, second = _free_ports(2)
        values = (str(self.folder), "default", str(first), str(second))
        self.environment = dict(zip(VARIABLES, values, strict=True))
        self._stopped: set[str] = set()

    def unmet(self) -> str:
        return unmet()

    def _start(self) -> None:
        self._write_cell()
        machines.up(len(self.hosts), mbit=10_000, network=self.network)
        variables = {**self.environment, "SGE_ND": "1", "PATH": self.search_path}
        self.keeper = Keeper(__file__, "--keeper", self.folder, self.network, **variables)
        self.ask(f"start {MASTER}")
        self._until(lambda: self._answers("qconf", "-sh"), "the qmaster does not answer")
        self._define_queue()
        for name in self.hosts:
            self.ask(f"start {name}")
        self._await_hosts()

    # ------------------------------------------------------------------ use

    def _prepared(self, command: Sequence[str]) -> Sequence[str]:
        return ["unshare", "--mount", "sh", "-c", f'{_knows_hosts(self.folder)} && cd / && exec "$@"', "sh", *command]

    def submit(self, *options: str, command: str = "sleep 600", user: str = "") -> str:
        """Submit a command as a job, as `user` of this machine if given; return the job's number."""
        quiet = ("-o", "/dev/null", "-j", "y")  # `options` may override these, because the last option counts
        as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
        return self.run(*as_user, "qsub", "-terse", *quiet, *options, "-b", "y", "-S", "/bin/sh", *command.split())

    def jobs(self) -> dict[str, str]:
        """States of all jobs, by job number."""
        return {row[0]: row[4] for row in self._rows()}

    def slots(self) -> dict[str, int]:
        """Slots of all jobs, by job number."""
        return {row[0]: int(row[-1]) for row in self._rows()}

    def _rows(self) -> list[list[str]]:
        return [line.split() for line in self.run("qstat", "-u", "*").splitlines()[2:]]

    def reset(self) -> None:
        """Restore the initial state: no jobs, all hosts up, the queue open and without errors."""
        for name in sorted(self._stopped):
            self.start_host(name)
        self._await_hosts()
        self.run("qmod", "-e", "*", check=False)
        self.run("qmod", "-cq", "*", check=False)  # clears the error state of all queues
        self.cancel_all()

    def cancel_all(self) -> None:
        self._until(self._is_empty, "jobs do not end")

    def stop_host(self, name: str) -> None:
        """End a host with all processes of its jobs, as a power failure does; or end the master."""
        self.ask(f"stop {name}")
        self._stopped.add(name)

    def start_host(self, name: str) -> None:
        self.ask(f"start {name}")
        self._stopped.discard(name)

    def freeze(self, name: str, frozen: bool = True) -> None:
        """Stop a daemon's process, or let it continue. While it is stopped, commands get no answer, but jobs run."""
        self.ask(f"{'freeze' if frozen else 'thaw'} {name}")

    def _is_empty(self) -> bool:
        jobs = self.jobs()
        if jobs:
            self.run("qdel", "-f", *jobs, check=False)
        return not jobs

    def _write_cell(self) -> None:
        common, spool = self.folder / "default/common", self.folder / "spool"
        for path in (common, spool / MASTER, self.folder / "log"):
            path.mkdir(parents=True, exist_ok=True)
        for name in ("centry", "pe", "usersets"):
            shutil.copytree(_DEBIAN / "util/resources" / name, spool / MASTER / name)
        (common / "bootstrap").write_text(_BOOTSTRAP.format(folder=self.folder))
        changes = {**CONFIGURATION, "execd_spool_dir": spool}
        (common / "configuration").write_text(_changed((_DEBIAN / "default-configuration").read_text(), changes))
        (common / "act_qmaster").write_text(f"{_host()}\n")
        # Commands take all names of this machine for aliases. Daemons need names that resolve to addresses and back.
        (common / "host_aliases").write_text(" ".join(dict.fromkeys((_host(), *_names()))) + "\n")
        names = {f"10.{self.network}.0.1": _host()}  # this name first, because hosts connect to this address
        names |= {f"10.{self.network}.0.{i + 2}": name for i, name in enumerate(self.hosts)}
        names |= {address: f"{_host()} localhost" for address in (*_addresses(), "127.0.0.1")}
        (self.folder / "hosts").write_text("".join(f"{address} {name}\n" for address, name in names.items()))

    def _define_queue(self) -> None:
        self.run("qconf", "-as", _host())
        for name in self.hosts:
            self.run("qconf", "-ah", name)
        queue = {**QUEUE, "hostlist": " ".join(self.hosts), "slots": self._slots}
        self._add("-Aq", _changed(self.run("qconf", "-sq"), queue))
        self._add("-Msconf", _changed(self.run("qconf", "-ssconf"), SCHEDULER))

    def _add(self, option: str, text: str) -> None:
        file = self.folder / "object"
        file.write_text(text)
        self.run("qconf", option, str(file))

    def _answers(self, *command: str) -> bool:
        try:
            self.run(*command)
        except MiniClusterError:
            return False
        return True

    def _await_hosts(self) -> None:
        """Wait until all hosts send their load."""

        def told() -> bool:
            rows = [line.split() for line in self.run("qhost", check=False).splitlines()]
            loads = {row[0]: row[6] for row in rows if len(row) > 6}
            return all(loads.get(name, "-") != "-" for name in self.hosts)

        self._until(told, "not all hosts are up")

    def _until(self, done: Callable[[], bool], complaint: str) -> None:
        if not poll(done, START_S):
            logs = sorted((self.folder / "log").iterdir()) + sorted(self.folder.glob("spool/*/messages"))
            told = "\n".join(f"{log}:\n{log.read_text(errors='replace')[-1500:]}" for log in logs)
            raise MiniClusterError(f"{complaint}\n{told}")


# ------------------------------------------------------------------ the keeper


def keep(folder: Path, network: int) -> None:
    """Follow orders `start`, `stop`, `freeze` and `thaw NAME`; when the input ends, end all and remove the machines."""
    running: dict[str, subprocess.Popen[bytes]] = {}

    def act(line: str) -> str:
        verb, name = line.split()
        if verb == "start":
            running[name] = spawn(_host_command(folder, network, name), folder / "log" / name, cwd="/")
        elif verb == "stop":
            _end(running.pop(name))
        else:
            _signal(running[name], signal.SIGSTOP if verb == "freeze" else signal.SIGCONT)
        return "done"

    obey(act)
    for process in running.values():
        _end(process)
    machines.down(network)


def _host_command(folder: Path, network: int, name: str) -> list[str]:
    prepare = _knows_hosts(folder)
    command = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--uts"]
    if name == MASTER:
        return [*command, "sh", "-c", f"{prepare} && exec sge_qmaster"]
    space = f"/run/netns/machines{network}-{name.removeprefix('sge')}"
    steps = (prepare, f"hostname {name}", f"ip route replace default via 10.{network}.0.1", "exec sge_execd")
    return [*command, "nsenter", f"--net={space}", "sh", "-c", " && ".join(steps)]


def _knows_hosts(folder: Path) -> str:
    return f"mount --bind {folder}/hosts /etc/hosts"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a host by killing its first process, which ends all other processes of the host."""
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), number)


def _changed(text: str, changes: Mapping[str, object]) -> str:
    """A configuration text with new values for some fields."""
    rows = [line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#")]
    return "".join(f"{name} {changes.get(name, value)}\n" for name, value in rows)


def _addresses() -> list[str]:
    """Addresses to which the name of this machine resolves."""
    return socket.gethostbyname_ex(_host())[2]


def _names() -> list[str]:
    """Names to which the addresses of this machine resolve."""
    found = []
    for address in ("127.0.0.1", *_addresses()):
        with contextlib.suppress(OSError):  # the address has no name
            found.append(socket.gethostbyaddr(address)[0])
    return found


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def _host() -> str:
    return socket.gethostname()


def main() -> None:
    parser = argparse.ArgumentParser(description="A real Grid Engine on this machine; root only; Ctrl-C ends it.")
    for name, default, words in (
        ("hosts", 2, "execution hosts"),
        ("slots", 4, "slots of each host"),
        ("network", NETWORK, "N of the addresses 10.N.0.0/24"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{words} (default: {default})")
    parser.add_argument("--keeper", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.keeper:
        keep(Path(given.keeper[0]), int(given.keeper[1]))
        return
    with tempfile.TemporaryDirectory(prefix="sge-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - for commands of other users
        cluster = MiniGridEngine(folder, hosts=given.hosts, slots=given.slots, network=given.network)
        serve(cluster, cluster.environment, "qstat, qsub, ...")


if __name__ == "__main__":
    main()
