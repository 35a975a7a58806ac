r"""Small machines on this one, for tests and experiments; Linux, as root.

    sudo python infra/machines/mini.py up 16 --cpu 0.1 --mbit 200
    sudo scalescope sweep -w futures-map -a workers=1,2,4,8,16 -c custom \
      --cluster-option cluster_class=infra.machines.mini:Machines
    sudo python infra/machines/mini.py down

A machine is a network namespace with a link of its own, limited each way, and a control group with a share of a core. A
worker on it is a real process that computes, serialises, sends and receives at that machine's speed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from infra.mini_cluster import LIBC, Keeper, MiniClusterError, come_first, end_with_parent, kill, obey, sh

if TYPE_CHECKING:
    from distributed import Client

NETWORK = 77  # N of the addresses 10.N.0.0/24; this machine is 10.N.0.1, the first small machine 10.N.0.2
MOST = 250  # most machines that the addresses allow
HEADROOM = 0.4  # cores that all machines together leave to scheduler, client and kernel
PERIOD_US, QUOTA_US = 10_000, 1_000  # the usual period of a control group, and the kernel's smallest quota
QUEUE_MS, BURST_MS, LEAST_BURST = 50, 5, 131_072  # buffers of a link; LEAST_BURST (bytes) holds a 64 KiB packet
END_S = 5.0  # seconds that a worker gets to leave its scheduler
# Ten times distributed's defaults, with which profiling alone would take a third of a small machine's 0.1 core.
INTERVALS = {"worker": {"profile": {"interval": "100ms"}}, "admin": {"tick": {"interval": "200ms"}}}
CLONE_NEWNET = 0x40000000
# Modules imported once, at full speed, before workers are forked.
IMPORTS = ("numpy", "pandas", "pyarrow", "dask.array", "dask.bag", "dask.dataframe", "xarray", "flox")
_CGROUPS, _NAMESPACES = Path("/sys/fs/cgroup"), Path("/run/netns")


# ------------------------------------------------------------------ machines


def unmet() -> str:
    """Why machines cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "only root can make machines: use sudo"
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install iproute2)"
    return "" if (_groups() / "cgroup.procs").exists() else f"no control groups at {_groups()}"


def up(count: int, *, cpu: float = 0.1, mbit: float = 200, network: int = NETWORK) -> None:
    """Make machines of `cpu` cores and a link of `mbit` megabits a second each way."""
    if reason := unmet():
        raise MiniClusterError(reason)
    if not 1 <= count <= MOST:
        raise MiniClusterError(f"expected 1 to {MOST} machines, got {count}")
    if (wanted := count * cpu) > (room := (os.cpu_count() or 1) - HEADROOM):
        raise MiniClusterError(f"{count} machines of {cpu:g} cores need {wanted:g} cores; this host can spare {room:g}")
    if (_NAMESPACES / _hub(network)).exists():
        raise MiniClusterError(f"network {network} has machines already: `down --network {network}` removes them")
    sh("ip", "netns", "add", _hub(network))
    try:
        _connect_host(network)
        _group(network).mkdir(exist_ok=True)
        for machine in range(1, count + 1):
            _make(machine, cpu, mbit, network)
        come_first(_group(network))
    except BaseException:
        down(network)
        raise


def down(network: int = NETWORK) -> None:
    """End all processes on the machines and remove the machines, even if they are half made."""
    group = _group(network)
    while pids := [pid for folder in (group, *group.glob("*/")) for pid in _processes(folder)]:
        for pid in pids:
            kill(pid)
        time.sleep(0.02)
    for folder in (*group.glob("*/"), group):
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
    with contextlib.suppress(MiniClusterError):  # There is no link, or it ends with the namespace of the bridge.
        sh("ip", "link", "delete", _label(network))
    for name in (_hub(network), *(_namespace(machine, network) for machine in machines(network))):
        if (_NAMESPACES / name).exists():
            sh("ip", "netns", "delete", name)
    shutil.rmtree(_scratch(network), ignore_errors=True)


def machines(network: int = NETWORK) -> list[int]:
    """Numbers of the machines that exist, from 1."""
    names = (each.name for each in _NAMESPACES.glob(f"{_label(network)}-*"))
    return sorted(int(number) for number in (name.partition("-")[2] for name in names) if number.isdigit())


def _connect_host(network: int) -> None:
    """Connect this host to a bridge in a separate namespace, where this host's firewall rules do not apply."""
    label, hub = _label(network), _hub(network)
    sh("ip", "link", "add", label, "type", "veth", "peer", "name", "host", "netns", hub)
    sh("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
    sh("ip", "-n", hub, "link", "set", "bridge", "up")
    sh("ip", "-n", hub, "link", "set", "host", "master", "bridge", "up")
    sh("ip", "address", "add", f"{_address(0, network)}/24", "dev", label)
    sh("ip", "link", "set", label, "up")


def _make(machine: int, cpu: float, mbit: float, network: int) -> None:
    hub, name, port = _hub(network), _namespace(machine, network), f"port{machine}"
    sh("ip", "netns", "add", name)
    sh("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    sh("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
    sh("ip", "-n", name, "address", "add", f"{_address(machine, network)}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        sh("ip", "-n", name, "link", "set", device, "up")
    burst = max(LEAST_BURST, round(mbit * 125 * BURST_MS))
    for place, device in ((name, "eth0"), (hub, port)):  # limit sending, then receiving
        bucket = ("tbf", "rate", f"{mbit}mbit", "burst", str(burst), "latency", f"{QUEUE_MS}ms")
        sh("tc", "-n", place, "qdisc", "add", "dev", device, "root", *bucket)
    group = _group(network) / str(machine)
    group.mkdir()
    limit(group, cpu)


def limit(group: Path, cpu: float) -> None:
    """Give the processes of a control group, of version 1 or 2, this share of a core."""
    period = max(PERIOD_US, round(QUOTA_US / cpu))
    quota = round(period * cpu)
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        return
    for above in (group.parent.parent, group.parent):  # version 2 enables controllers one level at a time
        (above / "cgroup.subtree_control").write_text("+cpu")
    (group / "cpu.max").write_text(f"{quota} {period}")


def _enter(machine: int, network: int) -> None:
    """Move this process, which must have only one thread, to a machine."""
    with open(_NAMESPACES / _namespace(machine, network)) as namespace:
        if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {namespace.name}")
    (_group(network) / str(machine) / "cgroup.procs").write_text(str(os.getpid()))


def _groups() -> Path:
    return _CGROUPS if (_CGROUPS / "cgroup.controllers").exists() else _CGROUPS / "cpu"


def _group(network: int) -> Path:
    return _groups() / _label(network)


def _processes(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []


def _label(network: int) -> str:  # start of all names made here
    return f"machines{network}"


def _hub(network: int) -> str:
    return f"{_label(network)}-hub"


def _namespace(machine: int, network: int) -> str:
    return f"{_label(network)}-{machine}"


def _address(machine: int, network: int) -> str:
    return f"10.{network}.0.{machine + 1}"


def _scratch(network: int) -> Path:
    return Path(tempfile.gettempdir()) / _label(network)


# ------------------------------------------------------------------ a Dask cluster on them


class Machines:
    """A Dask cluster: a scheduler on this host, and a worker process on each of the first machines."""

    def __init__(
        self, network: int = NETWORK, threads: int = 1, memory_mb: int = 1024, imports: Sequence[str] = IMPORTS
    ) -> None:
        import dask
        import distributed  # noqa: F401  # adds its defaults to Dask's configuration

        self._count = len(machines(network))
        if not self._count:
            raise MiniClusterError("no machines are up: `python infra/machines/mini.py up 16` makes some")
        environment = {
            name: str(value) for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items()
        }
        environment["DASK_INTERNAL_INHERIT_CONFIG"] = dask.config.serialize(dask.config.global_config)
        given = (_scratch(network), network, threads, memory_mb, *imports)
        self.keeper = Keeper(__file__, "serve", *given, **environment)
        self.address = self._told(self.keeper.answer())

    def get_client(self, set_as_default: bool = True) -> Client:
        from distributed import Client

        return Client(self.address, set_as_default=set_as_default)

    def scale(self, workers: int) -> None:
        if workers > self._count:
            raise MiniClusterError(f"asked for {workers} workers, but {self._count} machines are up")
        self._told(self.keeper.ask(str(workers)))

    def close(self) -> None:
        """End all processes; the machines stay."""
        self.keeper.close()

    def _told(self, answer: str) -> str:
        if answer:
            return answer
        status = self.keeper.process.wait()
        raise MiniClusterError(f"the process that starts the workers ended with status {status}; its output says why")


def serve(folder: str, network: int, threads: int, memory_mb: int, imports: Sequence[str]) -> None:
    """Run a scheduler, and as many workers as the last number on standard input says, until the input ends.

    Workers are forked from this process, which has imported everything, so that they start fast on a small machine.
    """
    if any(_processes(_group(network) / str(machine)) for machine in machines(network)):
        raise MiniClusterError(f"the machines of network {network} run another cluster")
    import dask
    import distributed  # noqa: F401

    dask.config.update_defaults({"distributed": INTERVALS})
    for name in imports:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    gc.freeze()
    answer, told = os.pipe()
    scheduler = _fork(lambda: _scheduler(_address(0, network), told))
    os.close(told)
    with open(answer) as scheduler_says:
        address = scheduler_says.read()
    print(address, flush=True)
    running: dict[int, int] = {}  # process ids by machine

    def worker(machine: int) -> int:
        place = {"host": _address(machine, network), "name": f"m{machine}", "local_directory": f"{folder}/{machine}"}
        size = {"nthreads": threads, "memory_limit": memory_mb * 2**20}
        return _fork(lambda: _worker(address, **place, **size), lambda: _enter(machine, network))

    def act(line: str) -> int:
        wanted = range(1, int(line) + 1)
        _end([running.pop(machine) for machine in list(running) if machine not in wanted])
        for machine in [machine for machine, pid in running.items() if _ended(pid)]:
            del running[machine]
        running.update({machine: worker(machine) for machine in wanted if machine not in running})
        return len(running)

    obey(act, deaf=())
    for pid in (scheduler, *running.values()):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    shutil.rmtree(folder, ignore_errors=True)


async def _scheduler(host: str, told: int) -> None:
    from distributed import Scheduler

    async with Scheduler(host=host, port=0, dashboard=False) as scheduler:
        os.write(told, scheduler.address.encode())
        os.close(told)
        await scheduler.finished()


async def _worker(scheduler: str, **given: Any) -> None:
    from distributed import Worker

    async with Worker(scheduler, dashboard=False, **given) as worker:
        leave = lambda: asyncio.ensure_future(worker.close())  # noqa: E731
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
        await worker.finished()


def _fork(run: Callable[[], Coroutine[Any, Any, None]], before: Callable[[], None] = lambda: None) -> int:
    """Run a coroutine in a child that ends with this process; returns the child's id."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        end_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # standard output only has answers
        before()
        asyncio.run(run())
        status = 0
    except BaseException:  # noqa: BLE001 - the child ends here after any error
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)  # do not wait for threads that still run tasks


def _end(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while pids := [pid for pid in pids if not _ended(pid)]:
        if time.monotonic() > deadline:
            for pid in pids:
                kill(pid)
        time.sleep(0.02)


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Small emulated machines on this one; root only.")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("up", help="make machines")
    making.add_argument("count", type=int, help="number of machines")
    making.add_argument("--cpu", type=float, default=0.1, help="cores of each machine (default: 0.1)")
    making.add_argument("--mbit", type=float, default=200, help="Mbit/s of each link, each way (default: 200)")
    removing = commands.add_parser("down", help="end the machines' processes and remove the machines")
    for each in (making, removing):
        each.add_argument(
            "--network", type=int, default=NETWORK, help=f"N of the addresses 10.N.0.0/24 (default: {NETWORK})"
        )
    serving = commands.add_parser("serve")
    serving.add_argument("folder")
    for name in ("network", "threads", "memory_mb"):
        serving.add_argument(name, type=int)
    serving.add_argument("imports", nargs="*")
    given = vars(parser.parse_args())
    run: dict[str, Callable[..., None]] = {"up": up, "down": down, "serve": serve}
    try:
        run[given.pop("command")](**given)
    except MiniClusterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
