"""Labels of Kubernetes nodes."""

from __future__ import annotations

from collections.abc import Mapping

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# Labels by which clouds mark nodes that they may take away
SPOT = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-provisioning": "spot",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether the cloud may take a node with these labels away."""
    return any(labels.get(name) == value for name, value in SPOT.items())
