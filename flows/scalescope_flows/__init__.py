"""Prefect flows: thin shells around the library, with its steps as tasks.

```python
from scalescope_flows import scale_sweep

scale_sweep(workload="futures-map", axes={"workers": [1, 2, 4]}, params={"items": 8})
```

needs no Prefect server: a temporary one is started. Importing this package costs nothing; the flows, and with them
Prefect, are loaded when they are first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalescope_flows.comparison import compare
    from scalescope_flows.isolation import isolate
    from scalescope_flows.night import nightly
    from scalescope_flows.reaping import reap
    from scalescope_flows.release import find_release
    from scalescope_flows.sweep import scale_sweep
    from scalescope_flows.threshold import find_threshold

__all__ = ["compare", "find_release", "find_threshold", "isolate", "nightly", "reap", "scale_sweep"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from scalescope_flows import orchestrator

        return orchestrator.load({"scale_sweep": "scale-sweep"}.get(name, name.replace("_", "-")))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
