"""Prefect flows and the command line: parameters in, library calls, states and artifacts out.

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
    from scalescope_flows.studies import StudyResult, compare, find_release, find_threshold
    from scalescope_flows.sweep import SweepResult, scale_sweep

__all__ = ["StudyResult", "SweepResult", "compare", "find_release", "find_threshold", "scale_sweep"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from scalescope_flows import studies as study
        from scalescope_flows import sweep

        return getattr(sweep if name in ("SweepResult", "scale_sweep") else study, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
