"""Prefect flows: thin shells around the library, with its steps as tasks.

```python
from scalescope_flows import scale_sweep

scale_sweep(workload="futures-map", axes={"workers": [1, 2, 4]}, params={"items": 8})
```

Without a Prefect server, a temporary one is started. Flows, and with them Prefect, are loaded when first used.
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
