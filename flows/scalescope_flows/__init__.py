"""Prefect flows that call the library, whose steps run as Prefect tasks.

```python
from scalescope_flows import scale_sweep

scale_sweep(workload="futures-map", axes={"workers": [1, 2, 4]}, params={"items": 8})
```

If no Prefect server is configured, a temporary one is started. Flows, and Prefect itself, are imported when first used.
"""

from __future__ import annotations

from typing import Any

from scalescope_flows import orchestrator

_NAMES = {target.partition(":")[2]: name for name, target in orchestrator.FLOWS.items()}
__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return orchestrator.load(_NAMES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
