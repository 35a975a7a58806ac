"""Settings of this process that affect speed. No others are kept, because variables and settings may hold secrets."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask

# Environment variables whose values are kept
VARIABLES = (
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_DYNAMIC", "KMP_AFFINITY",
    "KMP_BLOCKTIME", "MKL_NUM_THREADS", "MKL_DYNAMIC", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT",
    "POLARS_MAX_THREADS", "BLOSC_NTHREADS", "GDAL_NUM_THREADS", "GDAL_CACHEMAX", "GDAL_DISABLE_READDIR_ON_OPEN",
    "HDF5_USE_FILE_LOCKING", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_", "LD_PRELOAD", "ARROW_DEFAULT_MEMORY_POOL", "CUDA_VISIBLE_DEVICES", "TMPDIR", "PYTHONHASHSEED",
    "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG", "PYTHONTRACEMALLOC",
    "PYTHONDONTWRITEBYTECODE", "PYTHONNODEBUGRANGES", "PYTHONPROFILEIMPORTTIME", "PYTHON_GIL", "PYTHON_JIT",
    "COVERAGE_PROCESS_START",
)  # fmt: skip
# Parts of Dask's configuration whose values are kept
_TREES = (
    *("array", "dataframe", "optimization", "tokenize", "distributed.scheduler", "distributed.worker"),
    *("distributed.nanny", "distributed.client", "distributed.comm", "distributed.p2p", "distributed.adaptive"),
)
_NEVER = ("tls", "preload", "preload-argv")


def settings() -> dict[str, Any]:
    """Facts of a trial: those of `VARIABLES` that are set, and those of `_TREES` that differ from Dask's defaults."""
    usual = _defaults(len(dask.config.defaults))
    known = {name: value for name, value in _leaves(dask.config.config) if usual.get(name) != value}
    return {"variables": {name: os.environ[name] for name in VARIABLES if name in os.environ}, "dask_config": known}


@functools.lru_cache(maxsize=1)
def _defaults(modules: int) -> dict[str, Any]:
    """Dask's defaults, with those added by modules imported so far; `modules` is only the key of the cache."""
    return dict(_leaves(dask.config.merge(*dask.config.defaults)))


def program() -> str:
    """Digest of the script that runs and of its arguments; empty if there is no script file."""
    path = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    try:
        text = path.read_bytes()
    except OSError:  # a notebook, or a file that was removed
        return ""
    return hashlib.sha256(b"\0".join([text, *map(os.fsencode, sys.argv[1:])])).hexdigest()[:16]


def _leaves(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{above}{key}"
        if key in _NEVER:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        elif not isinstance(value, str | int | float | bool | None):
            continue
        elif any(name.startswith(f"{tree}.") for tree in _TREES) and ("environ." not in name or key in VARIABLES):
            yield name, value
