"""Runs a real Slurm with many virtual nodes on this machine. A keeper process ends all of it when the owner dies."""

from __future__ import annotations

import argparse
import os
import pwd
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from infra.mini_cluster import LIBC, Keeper, MiniCluster, MiniClusterError, alive, kill, obey, poll, serve, spawn

CONTROLLER = "slurmctld"
PROGRAMS = (CONTROLLER, "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
FAKE_GPUS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
PARTITIONS = {"main": "Default=YES MaxTime=04:00:00", "short": "MaxTime=00:02:00", "closed": "State=DOWN", "paid": ""}
# job_submit.lua: jobs need an account in the partition `paid`.
RULES = """\
function slurm_job_submit(job, partition, uid)
  if job.partition == "paid" and job.account == nil then
    slurm.log_user("Please give an account: --account=research")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partition, uid)
  return slurm.SUCCESS
end
"""
# Rules of a stricter site: jobs need an account in every partition, and their comments are rewritten.
STRICT_RULES = RULES.replace('job.partition == "paid" and ', "").replace(
    "return slurm.SUCCESS", 'job.comment = "checked by the site"\n  return slurm.SUCCESS', 1
)
# Arguments of `MiniSlurm` for the stricter site, which also rejects jobs that exceed the limits of their partition.
STRICT: dict[str, Any] = {
    "sizes": (
        "CPUs=7 RealMemory=3333",
        "CPUs=4 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=2101",
        "CPUs=3 RealMemory=1799",
    ),
    "partitions": {"main": "Default=YES MaxTime=04:00:00", "short": "MaxTime=00:02:00"},
    "rules": STRICT_RULES,
    "kill_wait_s": 4,
    "extra": "EnforcePartLimits=ALL\nPrivateData=jobs\nMessageTimeout=3",
}
START_S = 60.0
TERM_S = 1.0  # seconds between SIGTERM and SIGKILL of jobs when the whole cluster ends
PR_SET_CHILD_SUBREAPER = 36
SOCKET_PATH = 107  # most bytes of a Unix socket's path

_CONF = """\
ClusterName=mini
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
# Not linuxproc: it loses processes that ignore SIGTERM.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
# Jobs start and end within a second, as nobody waits for a nightly backfill here.
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait={kill_wait_s}
SlurmdTimeout=10
SlurmctldTimeout=10
MinJobAge=300
EpilogMsgTime=0
ReturnToService=2
JobRequeue=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.txt
DefMemPerCPU=100
# The nodes promise more than the machine has.
SlurmdParameters=config_overrides
JobSubmitPlugins=lua
{gpu_types}
{power}
{extra}
NodeName=DEFAULT CPUs={cpus} RealMemory={memory_mb} {gres}
{nodes}
{partitions}
"""


_POWER = """\
ResumeProgram={folder}/resume
SuspendProgram=/bin/true
SuspendTime=3600
ResumeTimeout={resume_timeout_s}
"""
# Slurm's resume program, which starts daemons of nodes as a cloud would; if a file `no-power` exists, it does nothing.
_RESUME = """\
#!/bin/sh
export PATH="{path}"
sleep 3  # seconds that a node takes to boot
test -e {folder}/no-power || for node in $(scontrol show hostnames "$1"); do
  setsid --fork slurmd -D -b -N $node -f {folder}/slurm.conf </dev/null >>{folder}/log/$node.out 2>&1
done
sleep 1  # when this ends, slurmctld kills what is not in a session of its own yet
"""


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=MiniCluster.search_path) is None]


class MiniSlurm(MiniCluster):
    """A Slurm cluster owned by this process. The path `folder` must be short, because it holds sockets."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        nodes: int = 16,
        cpus: int = 8,
        memory_mb: int = 4000,
        gpus: int = 2,
        partitions: Mapping[str, str] = PARTITIONS,  # options of partitions in slurm.conf, by name; each has all nodes
        extra: str = "",  # further lines of slurm.conf
        sizes: Sequence[str] = (),  # options of nodes, as in slurm.conf; nodes take turns
        rules: str = RULES,  # text of job_submit.lua
        kill_wait_s: int = 2,  # seconds between SIGTERM and SIGKILL of a cancelled job
        cloud: int = 0,  # number of nodes (the last ones) that are powered off until a job needs them
        resume_timeout_s: int = 60,  # seconds within which a powered-on node must register
    ) -> None:
        self.folder = Path(folder).resolve()
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self.cpus, self.memory_mb, self.gpus = cpus, memory_mb, gpus
        self.partitions, self.extra = dict(partitions), extra
        self.sizes, self.rules, self.kill_wait_s = sizes, rules, kill_wait_s
        self.awake, self.asleep = self.nodes[: nodes - cloud], self.nodes[nodes - cloud :]
        self.resume_timeout_s = resume_timeout_s
        self.conf = self.folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf)}
        self._pids: dict[str, int] = {}
        self._healthy = ""
        if not 1 <= nodes <= 1000:
            raise MiniClusterError(f"nodes: expected 1 to 1000, got {nodes}")
        if not 0 <= gpus <= len(FAKE_GPUS):
            raise MiniClusterError(f"gpus: expected 0 to {len(FAKE_GPUS)}, got {gpus}")
        if len(os.fsencode(self.folder / "spool/n1000/n1000_1000000.4294967294")) > SOCKET_PATH:
            raise MiniClusterError(f"the path of the folder is too long for sockets: {self.folder}")

    def unmet(self) -> str:
        missing = missing_programs()
        return f"not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm)" if missing else ""

    def _start(self) -> None:
        for attempt in (3, 2, 1):
            self._configure()
            self.keeper = Keeper(__file__, "--keeper", self.folder)
            try:
                self._pids = {name: self._order("start", name) for name in (CONTROLLER, *self.awake)}
                self._await_nodes()
                self._healthy = self._partitions()
                return
            except MiniClusterError as error:
                self.close()
                if attempt == 1 or "in use" not in str(error):  # otherwise another process took a port: try again
                    raise

    def close(self) -> None:
        """End all daemons and all processes of all jobs; returns when none is left."""
        super().close()
        for pid in self.strays():  # there are some only if the keeper itself was killed
            kill(pid)

    # ------------------------------------------------------------------ use

    def submit(self, *options: str, command: str = "sleep 600") -> str:
        """Submit a shell command as a job and return the job's number."""
        output = f"-o{self.folder}/job-%j.out"  # The last -o counts, so the options may name another file.
        return self.run("sbatch", "--parsable", output, *options, "--wrap", command).split(";")[0]

    def cancel_all(self) -> None:
        def empty() -> bool:
            jobs = [line.split() for line in self.run("squeue", "-h", "-o%A %T").splitlines()]
            if alive := {job for job, state in jobs if state != "COMPLETING"}:  # ask again, since jobs may submit jobs
                self.run("scancel", *alive, check=False)
            for pid in self.strays():  # at once: Slurm would wait some seconds for them
                kill(pid)
            return not jobs

        self._until(empty, lambda: f"jobs do not end:\n{self.run('squeue')}")

    def reset(self) -> None:
        """Restore the initial state: no jobs, no reservations, all nodes up, partitions as given."""
        self.freeze(False)
        for name in self.awake:  # wake nodes first, since jobs on stopped nodes end late
            if not alive(self._pids[name]):
                self.start_node(name)
        self.cancel_all()
        for name in re.findall(r"ReservationName=\S+", self.run("scontrol", "show", "reservation")):
            self.run("scontrol", "delete", name)
        if self._partitions() != self._healthy:
            self.run("scontrol", "reconfigure")
            self._until(
                lambda: self._partitions() == self._healthy,
                lambda: "the partitions did not return to their initial state",
            )
        self._await_nodes(resume=True)

    def stop_node(self, name: str, *, jobs: bool = True) -> None:
        """Kill the daemon of a node and, as a power failure does, the processes of its jobs."""
        self._order("stop", name)
        for pid in self.strays(name) if jobs else ():
            kill(pid)

    def start_node(self, name: str) -> None:
        self._pids[name] = self._order("start", name)

    def resume_controller(self) -> None:
        self._pids[CONTROLLER] = self._order("resume", CONTROLLER)

    def freeze(self, frozen: bool = True) -> None:
        """Stop the controller's process, or let it continue. While it is stopped, commands time out, but jobs run."""
        os.kill(self._pids[CONTROLLER], signal.SIGSTOP if frozen else signal.SIGCONT)

    def strays(self, node: str = "") -> list[int]:
        """Processes of all jobs (on one node), whatever their parents are; those of Slurm itself come first."""
        jobs, steps, parents = [], [], set()
        for process in psutil.process_iter(["name", "ppid", "environ"]):
            variables = process.info["environ"] or {}  # None for processes of other users
            if variables.get("SLURM_CONF") != str(self.conf):
                continue
            if process.info["name"] == "slurmstepd":
                steps.append(process.pid)
            elif (
                "SLURM_JOB_ID" in variables
                and process.pid != os.getpid()
                and (not node or variables.get("SLURMD_NODENAME") == node)
            ):
                jobs.append(process.pid)
                parents.add(process.info["ppid"])
        return [pid for pid in steps if not node or pid in parents] + jobs

    def _configure(self) -> None:
        for name in ("state", "log", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        everywhere = ",".join(self.nodes)
        port = _free_ports(1 + len(self.nodes))
        text = _CONF.format(
            host=_host(),
            port=port,
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=self.folder,
            nodes="\n".join(self._node(i, port + 1 + i) for i in range(len(self.nodes))),
            cpus=self.cpus,
            memory_mb=self.memory_mb,
            gpu_types="GresTypes=gpu" if self.gpus else "",
            gres=f"Gres=gpu:{self.gpus}" if self.gpus else "",
            kill_wait_s=self.kill_wait_s,
            power=_POWER.format(folder=self.folder, resume_timeout_s=self.resume_timeout_s) if self.asleep else "",
            extra=self.extra,
            partitions="\n".join(f"PartitionName={n} Nodes={everywhere} {o}" for n, o in self.partitions.items()),
        )
        self.conf.write_text(text)
        (self.folder / "job_submit.lua").write_text(self.rules)
        resume = self.folder / "resume"
        resume.write_text(_RESUME.format(folder=self.folder, path=self.search_path))
        resume.chmod(0o755)
        devices = ",".join(FAKE_GPUS[: self.gpus])
        gres = f"NodeName=n[1-{len(self.nodes)}] Name=gpu File={devices}\n" if self.gpus else ""
        (self.folder / "gres.conf").write_text(gres)
        # Control groups are not used, but the default plugin (version 2) does not start without systemd.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _node(self, index: int, port: int) -> str:
        size = self.sizes[index % len(self.sizes)] if self.sizes else ""
        size += " State=CLOUD" if self.nodes[index] in self.asleep else ""
        return f"NodeName={self.nodes[index]} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port} {size}"

    def _order(self, verb: str, name: str) -> int:
        return int(self.ask(f"{verb} {name}"))

    def _await_nodes(self, *, resume: bool = False) -> None:
        def idle() -> bool:
            for name, pid in self._pids.items():
                if not alive(pid):
                    log = self.folder / "log" / f"{name}.out"
                    raise MiniClusterError(f"{name} ended:\n{log.read_text(errors='replace')[-2000:]}")
            states = dict(line.split() for line in self.run("sinfo", "-hN", "-o%N %T", check=False).splitlines())
            lazy = [name for name in self.awake if states.get(name) not in {"idle", "idle*"}]
            if lazy and resume and states:
                self.run("scontrol", "update", f"NodeName={','.join(lazy)}", "State=RESUME", check=False)
            return not lazy and not any(states[name].endswith("*") for name in self.awake)

        self._until(idle, lambda: f"not all nodes are idle:\n{self.run('sinfo', '-R', check=False)}")

    def _partitions(self) -> str:
        return self.run("scontrol", "-o", "show", "partition")

    def _until(self, done: Callable[[], bool], complaint: Callable[[], str]) -> None:
        if not poll(done, START_S):
            raise MiniClusterError(complaint())


# ------------------------------------------------------------------ the keeper


def keep(folder: Path) -> None:
    """Follow orders `start NAME`, `resume NAME` (with saved state) and `stop NAME`; when the input ends, end all."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    conf = str(folder / "slurm.conf")
    environment = {**os.environ, "PATH": MiniSlurm.search_path, "SLURM_CONF": conf}
    pids: dict[str, int] = {}

    def act(line: str) -> int:
        verb, name = line.split()
        if verb == "stop":
            kill(pids[name])
            while alive(pids[name]):
                time.sleep(0.01)
            return pids[name]
        fresh = ["-c"] if verb == "start" else []  # -c: without the controller's saved state
        command = [CONTROLLER, "-D", *fresh] if name == CONTROLLER else ["slurmd", "-D", "-N", name]
        log = folder / "log" / f"{name}.out"
        pids[name] = spawn([*command, "-f", conf], log, env=environment, start_new_session=True).pid
        return pids[name]

    obey(act)
    _end_descendants()


def _end_descendants() -> None:
    told: set[int] = set()
    deadline = time.monotonic() + TERM_S
    while left := psutil.Process().children(recursive=True):
        for pid in (process.pid for process in left):
            if time.monotonic() > deadline:
                kill(pid)
            elif pid not in told:
                kill(pid, signal.SIGTERM)
                told.add(pid)
        _reap()
        time.sleep(0.02)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _free_ports(count: int) -> int:
    for _ in range(100):
        first = random.randrange(10000, 32000 - count)
        taken: list[socket.socket] = []
        try:
            for port in range(first, first + count):
                taken.append(socket.socket())
                taken[-1].bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for each in taken:
                each.close()
        return first
    raise MiniClusterError(f"no {count} consecutive free ports")


def _host() -> str:
    return socket.gethostname().split(".")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="A real Slurm of many virtual nodes on this machine; Ctrl-C ends it.")
    sizes = (("nodes", 16, "virtual nodes"), ("cpus", 8, "CPUs of each node, as Slurm counts them"))
    for name, default, words in (
        *sizes,
        ("memory-mb", 4000, "memory of each node in MiB"),
        ("gpus", 2, "fake GPUs of each node"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{words} (default: {default})")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="act as a strict site, which requires accounts and rewrites comments of jobs",
    )
    parser.add_argument("--folder", type=Path, help="folder for configuration, logs, state (default: temporary)")
    parser.add_argument("--keeper", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.keeper:
        keep(given.keeper)
        return
    with tempfile.TemporaryDirectory(prefix="slurm-") as temporary:
        options: dict[str, Any] = {name: getattr(given, name) for name in ("nodes", "cpus", "memory_mb", "gpus")}
        slurm = MiniSlurm(given.folder or temporary, **options, **(STRICT if given.strict else {}))
        serve(slurm, slurm.environment, "sinfo, sbatch, ...")


if __name__ == "__main__":
    main()
