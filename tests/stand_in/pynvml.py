"""A stand-in for NVML: one card that is a file, put before the real module with `PYTHONPATH=tests/stand_in`.

`NVML_CARD` names a folder. `kernel(seconds)` is what a task does on the card: it takes the card alone, as one kernel
that fills it does, and writes down when it held it. Utilisation is told as an H100 tells it: every 200 ms, the share of
the 140 ms before in which the card was held.
`card.json` in the folder sets what cannot be computed: `memory_used`, `memory_total`, `throttle` (bits), `processes`,
and `slower`: how many times as long kernels take.

What it does not show: kernels that share a card, or fill a part of it; the periods of other cards; MIG; a driver that
fails. Several cards are several folders: `NVML_CARD` of a worker is its card.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

PERIOD_S, WINDOW_S = 0.2, 0.14


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1


def _folder() -> Path:
    return Path(os.environ["NVML_CARD"])


def _set(name: str, default: int) -> int:
    try:
        return int(json.loads((_folder() / "card.json").read_text())[name])
    except (OSError, KeyError):
        return default


# What blocks is called as torch calls it: the sampler reads from the line whether a thread waits for the card.
_stream = SimpleNamespace(synchronize=time.sleep, to=fcntl.flock)


def kernel(seconds: float) -> None:
    with (_folder() / "held").open("a+") as file:
        _stream.to(file, fcntl.LOCK_EX)
        begin = time.time()
        file.write(f"{begin} ")
        file.flush()
        _stream.synchronize(seconds * _set("slower", 1))
        file.write(f"{time.time()}\n")


def nvmlInit() -> None:
    if "NVML_CARD" not in os.environ:
        raise NVMLError_LibraryNotFound


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(handle: int) -> str:
    return "stand-in"


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{_folder().name}"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=_set("memory_used", 10**9), total=_set("memory_total", 80 * 10**9))


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    now, held = time.time() // PERIOD_S * PERIOD_S, 0.0
    try:
        with (_folder() / "held").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode().splitlines()
    except OSError:
        lines = []
    for line in lines[1:] if len(lines) > 1 else lines:
        begin, *end = map(float, line.split())
        held += max(0.0, min(end[0] if end else now, now) - max(begin, now - WINDOW_S))
    return SimpleNamespace(gpu=round(100 * min(held / WINDOW_S, 1.0)), memory=0)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return _set("throttle", 0)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[int]:
    return [0] * _set("processes", 1)
