"""A real Kubernetes of two nodes on this machine, for the tests and for trying things.

It has an API server with RBAC, scheduler, DNS, two kubelets (each with its own containerd), kube-proxy, the operator of
dask-kubernetes and an image of Scalescope. The scheduler counts GPUs on the node `gpu`, which has none.

    sudo python infra/kubernetes/mini.py up

It runs in its own Linux namespaces, and ends with its owner: by Ctrl-C, `down`, or SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import lzma
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import mini_image  # noqa: E402
from mini_config import GPU, PRODUCT, USERS, Configuration  # noqa: E402
from mini_keeper import ADDRESSES, HOST, enter  # noqa: E402

from infra.mini_cluster import Keeper, MiniCluster, MiniClusterError, alive, kill, poll  # noqa: E402

CONTROL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
PARTS = (*CONTROL, "kubelet", "kube-proxy", "kubectl", "helm")
NEEDED = {name: name for name in ("containerd", "runc", "iptables", "conntrack", "buildah", "openssl")}
NEEDED |= {"ip": "iproute2", "/usr/lib/cni/bridge": "containernetworking-plugins"}  # program: Debian package
NODES = ("cpu", "gpu")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mini-kubernetes"
HOW = "infra/kubernetes/programs/README.md says how to get them"
START_S = 120.0
COMMAND_S = 600.0  # time limit of a command in seconds, long enough to load an image


def programs() -> Path:
    """The folder `KUBEBUILDER_ASSETS`, or one with the unpacked program of `SCALESCOPE_KUBERNETES`."""
    if packed := os.environ.get("SCALESCOPE_KUBERNETES"):
        source = Path(packed)
        if not source.is_file():
            raise MiniClusterError(f"SCALESCOPE_KUBERNETES: no file {source} ({HOW})")
        folder = CACHE / source.name.removesuffix(".xz")
        with mini_image.locked(folder):
            if not (folder / PARTS[-1]).exists():
                with lzma.open(source) as content, open(folder / "kubernetes", "wb") as program:
                    shutil.copyfileobj(content, program, 1 << 20)
                (folder / "kubernetes").chmod(0o755)
                for name in PARTS:
                    (folder / name).unlink(missing_ok=True)
                    (folder / name).symlink_to("kubernetes")
        return folder
    if not (assets := os.environ.get("KUBEBUILDER_ASSETS")):
        raise MiniClusterError(
            "the programs of Kubernetes were not found: set SCALESCOPE_KUBERNETES to the packed file, or "
            f"KUBEBUILDER_ASSETS to the folder with the programs ({HOW})"
        )
    if missing := [name for name in PARTS if not (Path(assets) / name).exists()]:
        raise MiniClusterError(f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(missing)}")
    return Path(assets)


def unmet() -> str:
    """Why a cluster cannot be started on this machine; empty if it can."""
    if os.geteuid() != 0:
        return "only root can make nodes: use sudo"
    if missing := [NEEDED[name] for name in NEEDED if shutil.which(name, path=MiniCluster.search_path) is None]:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})"
    if not Path("/proc/sys/net/bridge").exists():
        return "the kernel's module br_netfilter is not loaded: modprobe br_netfilter"
    try:
        programs()
    except MiniClusterError as error:
        return str(error)
    return ""


class MiniKubernetes(MiniCluster):
    """A Kubernetes owned by this process."""

    image = mini_image.NAME  # Scalescope's image, which is on both nodes
    host: str  # address at which pods reach this machine

    def __init__(
        self,
        folder: str | os.PathLike[str],  # folder for kubeconfig, logs and (until the cluster ends) data of the nodes
        *,
        gpus: int = 4,  # number of pretended GPUs of the node `gpu`
        network: int | None = None,  # N of 10.N.0.0/16 for nodes, pods and services; None: the first free one from 89
        operator: bool = True,  # whether the operator of dask-kubernetes runs
    ) -> None:
        self.folder = Path(folder).resolve()
        self.gpus, self.network, self.operator = gpus, network, operator
        self.kubeconfig = self.folder / "kubeconfig"
        self.environment = {"KUBECONFIG": str(self.kubeconfig)}
        self._asking = threading.Lock()
        self._pids: dict[str, int] = {}

    def unmet(self) -> str:
        return unmet()

    def _start(self) -> None:
        self.programs = programs()
        (self.folder / "log").mkdir(parents=True, exist_ok=True)
        self._store, self._image = mini_image.prepare(CACHE)
        options = (self.folder, *([self.network] if self.network else []))
        self.keeper = Keeper(str(HERE / "mini_keeper.py"), *options)
        answer = self._order(node="control")
        self._pids["control"], self.network = answer["pid"], answer["network"]
        tokens = {user: secrets.token_hex(16) for user in USERS}
        self._config = Configuration(self.folder, answer["network"], tokens, mini_image.BASE)
        self.host = self._config.address(HOST)
        with ThreadPoolExecutor() as pool:
            runtimes = pool.map(self._start_runtime, NODES)
            self._start_control()
            list(runtimes)
        for name in NODES:
            self._start_kubelet(name)
        if self.operator:
            self._install_operator()
        for name in NODES:
            self._await_node(name)
        if self.operator and not poll(self._operator_answers, START_S):
            log = self.kubectl("logs", "-n", "dask-operator", "deployment/dask-kubernetes-operator", "--tail=20")
            raise MiniClusterError(f"the operator of dask-kubernetes does not answer:\n{log}")

    def wait(self) -> None:
        """Wait until `down` ends the cluster; `MiniClusterError` if it ended by itself."""
        if self.keeper is not None and self.keeper.process.wait():
            raise MiniClusterError(
                f"the process that holds the nodes was killed, so the nodes ended; logs: {self.folder / 'log'}"
            )

    # ------------------------------------------------------------------ use

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator; returns its standard output."""
        return self.run(str(self.programs / "kubectl"), *arguments, stdin=stdin, limit_s=COMMAND_S)

    def stop_node(self, name: str) -> None:
        """Stop a node like a power cut: its processes, mounts and interfaces vanish without notice."""
        kill(self._pids[name])

    def start_node(self, name: str) -> None:
        """Start a stopped node with its old disk, and wait until it is ready."""
        self._start_runtime(name)
        self._start_kubelet(name)
        self._await_node(name)

    # ------------------------------------------------------------------ parts

    def _start_control(self) -> None:
        config = self._config
        self.run(*config.certificate())
        config.kubeconfig("admin", str(self.kubeconfig))
        self._part("control", "etcd", f"--data-dir={self.folder}/control/etcd", "--unsafe-no-fsync")
        self._part("control", "kube-apiserver", *config.api_server())
        self._until(self._api_ready, "control", "kube-apiserver")
        self._part("control", "kube-controller-manager", *config.controllers())
        scheduler = config.kubeconfig("system:kube-scheduler")
        self._part("control", "kube-scheduler", f"--kubeconfig={scheduler}", "--leader-elect=false")
        self._part("control", "coredns", "-conf", str(config.write("control/Corefile", config.dns())))

    def _start_runtime(self, name: str) -> None:
        config, is_new = self._config, not (self.folder / name).exists()
        if is_new:
            mini_image.copy_store(self._store, self.folder / name / "lib/containerd")
        self._pids[name] = self._order(node=name)["pid"]
        config.write(f"{name}/lib/cni/net.d/mini.conflist", config.pods_network(name))
        self._part(name, "containerd", "--config", str(config.write(f"{name}/containerd.toml", config.containerd())))
        socket = Path(f"/proc/{self._pids[name]}/root/run/containerd/containerd.sock")
        self._until(socket.exists, name, "containerd")
        if is_new:
            load = (
                f"tar --directory {shlex.quote(str(self._image))} --create . | ctr --namespace k8s.io images import -"
            )
            self.run(*enter(self._pids[name], "bash", "-o", "pipefail", "-c", load))

    def _start_kubelet(self, name: str) -> None:
        config = self._config
        gpu = [f"--node-labels={GPU}.product={PRODUCT}", f"--register-with-taints={GPU}=present:NoSchedule"]
        self._part(
            name,
            "kubelet",
            f"--config={config.write(f'{name}/kubelet.json', config.kubelet(name, f'kube{self.network}'))}",
            f"--kubeconfig={config.kubeconfig(f'system:node:{name}')}",
            f"--node-ip={config.address(ADDRESSES[name])}",
            f"--hostname-override={name}",
            *(gpu if name == "gpu" else ()),
        )
        self._part(name, "kube-proxy", f"--config={config.write(f'{name}/proxy.json', config.proxy(name))}")

    def _part(self, node: str, name: str, *options: str) -> None:
        program = str(self.programs / name) if name in PARTS else name
        self._pids[f"{node}-{name}"] = self._order(node=node, name=name, command=[program, *options])["pid"]

    def _order(self, **order: Any) -> dict[str, Any]:
        with self._asking:
            answer = json.loads(self.ask(json.dumps(order)))
        if "error" in answer:
            raise MiniClusterError(answer["error"])
        return dict(answer)

    def _api_ready(self) -> bool:
        with contextlib.suppress(MiniClusterError):
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        return False

    def _await_node(self, name: str) -> None:
        def ready() -> bool:
            nodes = {n["metadata"]["name"]: n for n in json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]}
            conditions = nodes[name]["status"]["conditions"] if name in nodes else ()
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        self._until(ready, name, "kubelet")
        if name == "gpu":
            count = {GPU: str(self.gpus)}
            patch = json.dumps({"status": {"capacity": count, "allocatable": count}})
            self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", f"--patch={patch}")

    def _install_operator(self) -> None:
        spec = importlib.util.find_spec("dask_kubernetes")
        if spec is None or spec.origin is None:
            raise MiniClusterError('dask-kubernetes is not installed: pip install ".[kubernetes]"')
        chart = Path(spec.origin).parent / "operator/deployment/helm/dask-kubernetes-operator"
        home = str(self.folder / "control/helm")
        self.run(
            *(str(self.programs / "helm"), "install", "dask-kubernetes-operator", str(chart)),
            *("--namespace", "dask-operator", "--create-namespace", "--values", str(HERE / "operator-values.yaml")),
            HELM_CACHE_HOME=home,
            HELM_CONFIG_HOME=home,
            HELM_DATA_HOME=home,
        )

    def _operator_answers(self) -> bool:
        where = "/api/v1/namespaces/dask-operator/pods"
        with contextlib.suppress(MiniClusterError):
            pods = json.loads(self.kubectl("get", "--raw", where))["items"]
            names = [each["metadata"]["name"] for each in pods]
            return any(self.kubectl("get", "--raw", f"{where}/{name}:8080/proxy/healthz") for name in names)
        return False

    def _until(self, done: Callable[[], bool], node: str, part: str) -> None:
        pid = self._pids[f"{node}-{part}"]
        if not (poll(lambda: done() or not alive(pid), START_S) and alive(pid)):
            log = self.folder / "log" / f"{node}-{part}.log"
            what = f"is not ready after {START_S:.0f} s" if alive(pid) else "ended"
            raise MiniClusterError(f"{part} on the node {node} {what}; the end of {log}:\n{log.read_text()[-2000:]}")


# ------------------------------------------------------------------ the command


def keeper_of(folder: Path) -> int | None:
    """The process id of the keeper of the cluster in a folder; None if none runs."""
    with contextlib.suppress(FileNotFoundError), open(folder / "keeper") as mine:
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(mine.read())
    return None


def up(folder: Path, **options: Any) -> None:
    """Serve a cluster until Ctrl-C or `down`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with MiniKubernetes(folder, **options) as cluster:
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            print(
                f"Enter the line above in another terminal. Image: {cluster.image}. Ctrl-C ends the cluster.",
                flush=True,
            )
            cluster.wait()
    except KeyboardInterrupt:
        return


def down(folder: Path) -> None:
    if (pid := keeper_of(folder)) is None:
        print(f"no cluster is running in {folder}")
        return
    os.kill(pid, signal.SIGTERM)
    while keeper_of(folder) is not None:
        time.sleep(0.05)


def status(folder: Path) -> None:
    if keeper_of(folder) is None:
        sys.exit(f"no cluster is running in {folder}")
    kubectl = [str(programs() / "kubectl"), f"--kubeconfig={folder / 'kubeconfig'}"]
    print(f"export KUBECONFIG={folder / 'kubeconfig'}", flush=True)
    sys.exit(
        subprocess.run([*kubectl, "get", "nodes", "-o", "wide"]).returncode
        or subprocess.run([*kubectl, "get", "pods", "--all-namespaces", "-o", "wide"]).returncode
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A real Kubernetes of two nodes on this machine.")
    parser.add_argument("command", choices=("up", "down", "status"))
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--folder", type=Path, default=CACHE / "cluster", help=f"folder for kubeconfig, logs and state {shown}")
    add("--gpus", type=int, default=4, help=f"fake GPUs of the node `gpu` {shown}")
    add("--bare", action="store_true", help="do not install the operator of dask-kubernetes")
    add("--network", type=int, metavar="N", help="use the network 10.N.0.0/16 (default: the first free N from 89)")
    given = parser.parse_args()
    folder = given.folder.resolve()
    try:
        if given.command == "up":
            up(folder, gpus=given.gpus, network=given.network, operator=not given.bare)
        else:
            {"down": down, "status": status}[given.command](folder)
    except MiniClusterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
