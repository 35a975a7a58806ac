"""What the driver knows of a running trial, and functions that judge it and describe errors."""

from __future__ import annotations

import json
import math
import numbers
import re
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalescope.capture.user_code import is_library
from scalescope.errors import ScalescopeError
from scalescope.model.trial_state import TrialState
from scalescope.model.words import plural, shortened
from scalescope.redaction import hide
from scalescope.sent_code import SENT

# Most characters of an error's message, of its traceback (whose end is kept), and of a result as JSON
MESSAGE_LIMIT, TRACEBACK_LIMIT, RESULT_LIMIT = 2_000, 8_000, 1_000_000
LEFT_OUT = "left out of the record"
LOST_CONNECTION = "the driver lost its connection to the scheduler, so the workload lost its results"
# Dask's reason for a future that was cancelled because the client was cut off
_LOST = re.compile("scheduler-connection-lost")
_NOTHING = object()
# Errors that a workload gets because its tasks, workers or connection are lost: consequences, not causes
_CONSEQUENCES = ("CancelledError", "CommClosedError", "KilledWorker")


@dataclass
class Attempt:
    """What is known of a trial so far."""

    problem: str = ""  # sentence on a fault of the machine or cluster; empty: none
    raised: str = ""  # sentence on the error that the workload raised; empty: none
    changes: str = ""  # sentence on workers that were lost or joined during the trial; empty: none
    cut_off: str = ""  # sentence on a lost connection to the scheduler that made the workload raise; empty: none
    missing: str = ""  # reason why the capture is incomplete; empty: it is complete
    error: dict[str, str] | None = None  # the first exception, as `describe` returns it
    elapsed_s: float | None = None  # duration of the workload's call, in seconds of the cluster's clock
    result: Any = None  # value that the workload returned
    warnings: list[str] = field(default_factory=list)  # sentences about the quality of the capture
    facts: dict[str, Any] = field(default_factory=dict)  # facts to store with the trial, as JSON


def judge(attempt: Attempt) -> tuple[TrialState, str]:
    """The state of a trial, and why it is not valid. Faults of the machine come first: they may cause errors."""
    if attempt.problem:
        return TrialState.INVALID, attempt.problem
    if attempt.changes:
        own = "" if (attempt.error or {}).get("type", "").endswith(_CONSEQUENCES) else attempt.raised
        return TrialState.INVALID, "\nthen ".join(part for part in (attempt.changes, own) if part)
    if attempt.cut_off:
        return TrialState.INVALID, f"{attempt.cut_off}\nthen {attempt.raised}"
    if attempt.raised:
        return TrialState.FAILED, attempt.raised
    if attempt.missing:
        return TrialState.INVALID, f"the capture is incomplete: {attempt.missing}"
    return TrialState.VALID, ""


def is_lost_connection(error: Mapping[str, str]) -> bool:
    """Whether an error of the workload (from `describe`) says that the trial's client lost its scheduler."""
    return error.get("type", "").endswith(_CONSEQUENCES) and _LOST.search(error.get("message", "")) is not None


def changes(
    before: Mapping[str, tuple[str, int, str]],  # address -> name, threads, status
    after: Mapping[str, tuple[str, int, str]],
    left: Collection[str] = (),  # addresses of workers that left during the trial
) -> str:
    """A sentence that names the workers that were lost or joined; empty if none did."""
    lost = [before[address][0] for address in before if address not in after or address in left]
    came = [after[address][0] for address in after if address not in before]
    came += [address for address in left if address not in before and address not in after]
    parts = []
    if lost:
        parts.append(f"lost {len(lost)} of {len(before)} workers during the trial ({_some(lost)})")
    if came:
        parts.append(f"{plural(len(came), 'worker')} joined during the trial ({_some(came)})")
    return " and ".join(parts)


def kept_result(result: Any) -> Any:
    """The result as JSON; a value that JSON cannot hold, or that is too long, becomes `LEFT_OUT` with its type."""
    carried = _carried(result)
    if carried is _NOTHING and isinstance(result, dict):  # keep the values that JSON can carry
        carried = _carried({str(name): _or_word(value) for name, value in result.items()})
    return _or_word(result) if carried is _NOTHING else carried


def _or_word(value: Any) -> Any:
    carried = _carried(value)
    return f"{LEFT_OUT}: {type(value).__name__}" if carried is _NOTHING else carried


def _carried(value: Any) -> Any:
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):  # such as NumPy's numbers
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    try:
        return value if len(json.dumps(value, allow_nan=False)) <= RESULT_LIMIT else _NOTHING
    except (TypeError, ValueError, RecursionError):
        return _NOTHING


def describe(error: BaseException) -> dict[str, str]:
    """An exception as text, short enough for a report. The exception itself would keep the workload's futures alive."""
    full, files = traceback.TracebackException.from_exception(error), _sent_from(error)
    where, each = _without_libraries(full, files), full.__cause__ or full.__context__
    while each is not None:
        _without_libraries(each, {})
        each = each.__cause__ or each.__context__
    text = str(error) if isinstance(error, ScalescopeError) else "".join(full.format_exception_only()).strip()
    text = shortened(hide(text), MESSAGE_LIMIT)
    trace = hide("".join(full.format()))  # hide secrets before the text is cut: a cut could split one
    if len(trace) > TRACEBACK_LIMIT:
        trace = "... " + trace[-TRACEBACK_LIMIT:]
    try:
        said = hide(shortened(repr(error), MESSAGE_LIMIT))
    except Exception:  # noqa: BLE001 - the user's own `__repr__` raises
        said = ""
    return {"type": type(error).__qualname__, "message": text, "traceback": trace, "where": where, "repr": said}


def _sent_from(error: BaseException) -> dict[tuple[int | None, str], str]:
    """Source files of functions that were sent to workers by value, by line and function name."""
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == SENT
    ]
    return {(line, frame.f_code.co_name): frame.f_globals.get("__file__") or SENT for frame, line in frames}


def _without_libraries(error: traceback.TracebackException, files: Mapping[tuple[int | None, str], str]) -> str:
    """Drop library frames before the user's last frame; return that frame as `my_job.py:14 in load`."""
    own = [n for n, frame in enumerate(error.stack) if frame.filename == SENT or not is_library(frame.filename)]
    if not own:
        return ""
    last = error.stack[own[-1]]
    error.stack[:] = [frame for n, frame in enumerate(error.stack) if n in own or n > own[-1]]
    file = files.get((last.lineno, last.name), SENT) if last.filename == SENT else last.filename
    at = f"line {last.lineno}" if file == SENT else f"{Path(file).name}:{last.lineno}"
    return at if last.name == "<module>" else f"{at} in {last.name}"


def plain(value: Any) -> Any:
    """`value` converted for JSON: numbers that are not finite become null, other objects become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
