"""The price table: a YAML file that `SCALESCOPE_PRICES` names.

currency: EUR
worker_hour:
  gpu: 2.40        # by partition
  kubernetes: 0.10 # by kind of cluster
  default: 0.05    # all others
node_hour:         # a whole node of Kubernetes, by instance type: takes precedence over worker_hour
  g2-standard-8: 0.85
spot_node_hour:
  g2-standard-8: 0.35
"""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from scalescope.analysis.cost import Prices
from scalescope.errors import InvalidField

VARIABLE = "SCALESCOPE_PRICES"


def load() -> Prices:
    """Read the table; empty if the variable is not set."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return Prices()
    try:
        data = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidField(
            VARIABLE,
            name,
            f"a YAML file with `currency` and `worker_hour`: {error}",
            next_step="correct the file, or unset the variable",
        ) from error
    return Prices.from_mapping(data)
