"""The keeper of a small Kubernetes: makes its nodes, runs their programs, and ends everything.

A node is a process with its own mount, network, PID, IPC and UTS namespaces. When it ends, the kernel ends all
processes in these namespaces, with their mounts, interfaces and firewall rules. On the machine itself, the keeper uses
a network interface, which disappears with the nodes, and a folder of control groups, which the keeper removes.

The keeper executes lines of JSON from standard input until its owner closes the pipe or dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from infra.mini_cluster import MiniClusterError, come_first, kill, obey, sh, spawn

ADDRESSES = {"control": 1, "cpu": 2, "gpu": 3}  # `n` in addresses of a node (10.N.0.n) and its pods (10.N.n.*)
HOST, SERVICES = 254, 10
NETWORKS = range(89, 100)  # 10.89.0.0/16, ...
CGROUPS = Path("/sys/fs/cgroup")
# Kernel settings that a kubelet requires: it sees these files, and so does not change the machine's settings.
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def enter(pid: int, *command: str) -> list[str]:
    """The command line that runs a command on the node whose first process is `pid`."""
    return ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--ipc", "--uts", "--", *command]


class Nodes:
    """Nodes and programs of one cluster, below the existing `folder`."""

    def __init__(self, folder: Path, network: int | None) -> None:
        self.folder, self.candidates = folder, [network] if network is not None else list(NETWORKS)
        self.network = 0
        self.nodes: dict[str, int] = {}
        self.started: list[subprocess.Popen[Any]] = []

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order; returns the answer."""
        node = order["node"]
        if "command" not in order:
            return self.make_node(node)
        log = self.folder / "log" / f"{node}-{order['name']}.log"
        process = spawn(enter(self.nodes[node], *order["command"]), log)
        self.started.append(process)
        return {"pid": process.pid}

    def make_node(self, name: str) -> dict[str, Any]:
        data = self.folder / name
        for each in ("lib/cni/net.d", "log"):
            (data / each).mkdir(parents=True, exist_ok=True)
        unshare = shlex.split("unshare --fork --kill-child --pid --mount --net --ipc --uts --mount-proc")
        log = self.folder / "log" / f"{name}.log"
        node = [*unshare, sys.executable, __file__, "--node", name, str(data)]
        process = spawn(node, log, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise MiniClusterError(f"the node {name} could not be made; see {log}")
        pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        self.nodes[name] = pid
        if name == "control":
            self.connect_host(pid)
        else:
            self.connect_node(name, pid)
        return {"pid": pid, "network": self.network}

    def connect_host(self, pid: int) -> None:
        """Choose the first free network, and connect this machine to a bridge in the API server's node."""
        used = sh("ip", "-4", "route")
        for network in self.candidates:
            link = f"kube{network}"
            if f"10.{network}." in used:
                continue
            with contextlib.suppress(MiniClusterError):  # another cluster was faster and took this link
                sh("ip", "link", "add", link, "type", "veth", "peer", "name", "host", "netns", pid)
                break
        else:
            taken = ", ".join(f"10.{each}.0.0/16" for each in self.candidates)
            raise MiniClusterError(f"these networks are in use: {taken} (`ip route`); name another with --network")
        self.network, base = network, f"10.{network}"
        ip = _ip(pid)
        sh(*ip, "link", "add", "nodes", "type", "bridge")
        sh(*ip, "link", "set", "host", "master", "nodes", "up")
        sh(*ip, "address", "add", f"{base}.0.{ADDRESSES['control']}/24", "dev", "nodes")
        sh(*ip, "link", "set", "nodes", "up")
        sh("ip", "address", "add", f"{base}.0.{HOST}/24", "dev", link)
        sh("ip", "link", "set", link, "up")
        self.routes(["ip"])
        self.routes(ip)

    def connect_node(self, name: str, pid: int) -> None:
        ip, control = _ip(pid), _ip(self.nodes["control"])
        with contextlib.suppress(MiniClusterError):  # left by a stopped node of this name
            sh(*control, "link", "delete", name)
        sh(*control, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        sh(*control, "link", "set", name, "master", "nodes", "up")
        sh(*ip, "address", "add", f"10.{self.network}.0.{ADDRESSES[name]}/24", "dev", "eth0")
        sh(*ip, "link", "set", "eth0", "up")
        self.routes(ip, name)
        self.make_cgroup(name)

    def routes(self, ip: list[str], at: str = "") -> None:
        """Add routes to other nodes' pods and, unless `at` is a node of pods, to services through the node `cpu`."""
        base = f"10.{self.network}"
        for name in ("cpu", "gpu"):
            if name != at:
                sh(*ip, "route", "add", f"{base}.{ADDRESSES[name]}.0/24", "via", f"{base}.0.{ADDRESSES[name]}")
        if not at:
            sh(*ip, "route", "add", f"{base}.{SERVICES}.0/24", "via", f"{base}.0.{ADDRESSES['cpu']}")

    def make_cgroup(self, node: str) -> None:
        """Make a folder for the pods of a node: two kubelets in one would remove each other's pods."""
        for top in _hierarchies():
            folder = top / f"kube{self.network}" / node
            folder.mkdir(parents=True, exist_ok=True)
            for each in (folder.parent, folder):
                for name in ("cpuset.cpus", "cpuset.mems"):  # cgroup version 1; empty at first
                    if (each / name).exists() and top.name == "cpuset":
                        (each / name).write_text((top / name).read_text())
            come_first(folder.parent)

    def remove_cgroups(self) -> None:
        deadline = time.monotonic() + 10
        for ours in [top / f"kube{self.network}" for top in _hierarchies()]:
            while ours.exists():
                for folder, _, _ in os.walk(ours, topdown=False):
                    with contextlib.suppress(OSError):  # still busy: its processes are ending
                        os.rmdir(folder)
                if time.monotonic() > deadline:
                    raise MiniClusterError(
                        f"cannot remove the control group {ours}: its cgroup.procs lists what still runs"
                    )
                time.sleep(0.02)

    def end(self) -> None:
        """End all nodes, and wait until nothing is left of them."""
        for pid in self.nodes.values():
            kill(pid)
        for process in self.started:
            process.wait()
        self.remove_cgroups()
        with contextlib.suppress(MiniClusterError):  # by itself, the link would end later
            sh("ip", "link", "delete", f"kube{self.network}")
        self.remove_data()

    def remove_data(self) -> None:
        for name in ADDRESSES:
            shutil.rmtree(self.folder / name, ignore_errors=True)


def _ip(pid: int) -> list[str]:
    return ["nsenter", f"--target={pid}", "--net", "ip"]


def _hierarchies() -> Iterable[Path]:
    if (CGROUPS / "cgroup.controllers").exists():  # cgroup version 2
        return [CGROUPS]
    return [each for each in CGROUPS.iterdir() if (each / "cgroup.procs").exists() and not each.is_symlink()]


def keep(folder: Path, network: int | None) -> None:
    with open(folder / "keeper", "a+") as mine:
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(json.dumps({"error": f"a cluster is running in {folder}"}), flush=True)
            return
        mine.truncate(0)
        mine.write(str(os.getpid()))
        mine.flush()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        nodes = Nodes(folder, network)
        nodes.remove_data()  # remains of a killed keeper

        def act(line: str) -> str:
            try:
                return json.dumps(nodes.obey(json.loads(line)))
            except (MiniClusterError, OSError) as error:
                return json.dumps({"error": str(error)})

        with contextlib.suppress(KeyboardInterrupt):
            obey(act, deaf=(signal.SIGHUP,))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        nodes.end()


def be_node(name: str, data: Path) -> None:
    """Be the first process of a node: prepare its namespaces, then reap its ended processes."""
    sh("mount", "--make-rshared", "/")
    sh("mount", "--bind", data / "lib", "/var/lib")
    sh("mount", "--bind", data / "log", "/var/log")
    sh("mount", "-t", "tmpfs", "node", "/run")
    sh("hostname", name)
    for key, value in SYSCTLS.items():
        file = Path("/run/sysctl") / key.replace("/", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{value}\n")
        sh("mount", "--bind", file, f"/proc/sys/{key}")
    sh("ip", "link", "set", "lo", "up")
    for key in ("ip_forward", "tcp_orphan_retries", "tcp_fin_timeout"):  # the last two: end dead links fast
        Path("/proc/sys/net/ipv4", key).write_text("1")
    Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")
    print("ready", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1] == "--node":
        be_node(sys.argv[2], Path(sys.argv[3]))
    else:
        keep(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
