"""Quantities of Kubernetes."""

from __future__ import annotations

import re

_POWERS = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_POWERS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGT", 1)}


def amount(quantity: str) -> float:
    """A quantity such as `500m`, `4Gi` or `2` as a number; 0 for any other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", quantity)
    return float(found[1]) * _POWERS.get(found[2], 0.0) if found else 0.0
