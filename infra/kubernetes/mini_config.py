"""Options and configuration files of the parts of a small Kubernetes."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

from mini_keeper import ADDRESSES, SERVICES

GPU, PRODUCT = "nvidia.com/gpu", "NVIDIA-H200"
LOST_S = 10  # seconds from a kubelet's last heartbeat to NotReady, then as long again to the eviction of its pods
AUDIT = {  # audit policy: log requests of pods to the API server, except Kubernetes's own pods
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
    ],
}
USERS = {  # groups by user
    "admin": "system:masters",
    "system:coredns": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "system:node:cpu": "system:nodes",
    "system:node:gpu": "system:nodes",
}


class Configuration:
    """Configuration of the cluster whose network is 10.N.0.0/16, with its files in a folder."""

    def __init__(self, folder: Path, network: int, tokens: dict[str, str], sandbox: str) -> None:
        self.folder, self.network, self.tokens, self.sandbox = folder, network, tokens, sandbox
        self.control = self.address(ADDRESSES["control"])
        self.pki = folder / "control/pki"

    def address(self, last: int, third: int = 0) -> str:
        return f"10.{self.network}.{third}.{last}"

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path

    def kubeconfig(self, user: str, path: str = "") -> Path:
        authority = base64.b64encode((self.pki / "api.crt").read_bytes()).decode()
        cluster = {"server": f"https://{self.control}:6443", "certificate-authority-data": authority}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "mini", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "mini", "context": {"cluster": "mini", "user": user}}],
            "current-context": "mini",
        }
        return self.write(path or f"control/{user.replace(':', '-')}.kubeconfig", content)

    def certificate(self) -> list[str]:
        """The command that makes the self-signed certificate."""
        names = f"IP:{self.control},IP:{self.address(1, SERVICES)},DNS:kubernetes.default.svc,DNS:kubernetes.default"
        self.pki.mkdir(parents=True, exist_ok=True)
        return [
            *shlex.split(
                "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=mini"
            ),
            *("-keyout", str(self.pki / "api.key"), "-out", str(self.pki / "api.crt")),
            *("-addext", f"subjectAltName={names}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
        ]

    def users(self) -> str:
        return "".join(f'{self.tokens[user]},{user},{user},"{group}"\n' for user, group in USERS.items())

    # ------------------------------------------------------------------ the node of the API server

    def api_server(self) -> list[str]:
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={self.control}",
            f"--advertise-address={self.control}",
            f"--tls-cert-file={self.pki}/api.crt",
            f"--tls-private-key-file={self.pki}/api.key",
            f"--client-ca-file={self.pki}/api.crt",
            f"--token-auth-file={self.write('control/tokens.csv', self.users())}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.pki}/api.crt",
            f"--service-account-signing-key-file={self.pki}/api.key",
            f"--service-cluster-ip-range={self.address(0, SERVICES)}/24",
            f"--kubelet-client-certificate={self.pki}/api.crt",
            f"--kubelet-client-key={self.pki}/api.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged",
            f"--audit-policy-file={self.write('control/audit.json', AUDIT)}",
            f"--audit-log-path={self.folder}/log/audit.log",
            f"--default-not-ready-toleration-seconds={LOST_S}",
            f"--default-unreachable-toleration-seconds={LOST_S}",
        ]

    def controllers(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            f"--service-account-private-key-file={self.pki}/api.key",
            f"--root-ca-file={self.pki}/api.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--node-monitor-grace-period={LOST_S}s",
            "--node-monitor-period=1s",
        ]

    def dns(self) -> str:
        kubeconfig = self.kubeconfig("system:coredns")
        return f""".:53 {{
  bind {self.control}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig} mini
    pods insecure
    ttl 1
  }}
}}
"""

    # ------------------------------------------------------------------ nodes of pods

    def containerd(self) -> str:
        return f"""version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{self.sandbox}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/var/lib/cni/net.d"
"""

    def pods_network(self, node: str) -> dict[str, Any]:
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": f"{self.address(0, ADDRESSES[node])}/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": "mini", "plugins": [bridge, ports]}

    def kubelet(self, node: str, cgroup: str) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup}/{node}",
            "failSwapOn": False,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.pki / "api.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [self.control],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "maxPods": 240,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "volumeStatsAggPeriod": "10s",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": LOST_S,
        }

    def proxy(self, node: str) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": f"{self.address(0, ADDRESSES['cpu'])}/23",  # both nodes' pods; others are masqueraded
            "hostnameOverride": node,
            "clientConnection": {"kubeconfig": str(self.kubeconfig("system:kube-proxy"))},
            "conntrack": {"maxPerCore": 0},
        }
