"""Messages between the driver and its parent: one JSON object a line, over the driver's standard streams.

The driver sends `ready` first. Requests and replies: `open` > `opened` or `failed`; `trial` > `trial` or `failed`;
`close` > `closed`. `progress` may come at any time while a request is served. Both ends have the same version, so an
unknown kind or field, a missing field or a value of a wrong type means that the stream is corrupt: `DriverError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from scalescope.errors import DriverError, InfrastructureError, InvalidField, ScalescopeError
from scalescope.model.mapping import from_mapping

RUNNING = "running"  # name of the phase in which the workload runs


@dataclass(frozen=True)
class Message:
    """Base of all messages; `kind` is the name of the message's type in JSON."""

    kind: ClassVar[str] = ""


@dataclass(frozen=True)
class Open(Message):
    """Open a cluster."""

    kind: ClassVar[str] = "open"
    cluster: Mapping[str, Any]  # its specification (`ClusterSpec.to_mapping`)
    folder: str  # folder for the logs of its workers
    seed: int = 0  # random seed of a simulated cluster


@dataclass(frozen=True)
class RunTrial(Message):
    """Run one trial on the open cluster."""

    kind: ClassVar[str] = "trial"
    key: str  # identity within its sweep
    point: Mapping[str, Any]  # point to run (`Point.to_mapping`)
    repeat: int  # number of the repeat, from 0
    warmup: bool
    workload: str  # reference of the workload
    timeout_s: float  # real seconds after which it is stopped
    spool: str  # folder for its raw records; it exists


@dataclass(frozen=True)
class Close(Message):
    """Close the cluster and end."""

    kind: ClassVar[str] = "close"


@dataclass(frozen=True)
class Ready(Message):
    """The driver runs."""

    kind: ClassVar[str] = "ready"
    pid: int
    python: str  # version of its interpreter
    versions: Mapping[str, Any]  # versions of the packages in `server.VERSIONS`
    host: Mapping[str, Any]  # facts of the machine
    packages: Mapping[str, Any]  # every installed distribution and its version


@dataclass(frozen=True)
class Opened(Message):
    """The cluster is open."""

    kind: ClassVar[str] = "opened"
    facts: Mapping[str, Any]  # facts of the cluster


@dataclass(frozen=True)
class PhaseBegan(Message):
    """The driver began a phase."""

    kind: ClassVar[str] = "progress"
    phase: str  # one word
    text: str  # description of the phase for people
    limit_s: float  # real seconds within which the phase must end; after that, a silent driver is stuck


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of a trial."""

    state: str  # `valid`, `failed` or `invalid`
    reason: str  # reason why the trial is not valid; empty if it is valid
    started_at: str  # wall clock in UTC, ISO 8601
    real_s: float  # real seconds that the trial took, capture included
    elapsed_s: float | None  # seconds of the workload's call on the cluster's clock; None if it was not called
    warnings: tuple[str, ...]  # sentences about the quality of the capture
    facts: Mapping[str, Any]  # facts for readers of the result
    result: Any = None  # value that the workload returned
    error: Mapping[str, Any] | None = None  # exception that was raised (`attempt.describe`), if any


@dataclass(frozen=True, kw_only=True)
class TrialDone(TrialResult, Message):
    """A trial has ended."""

    kind: ClassVar[str] = "trial"
    key: str  # `RunTrial.key`
    ending: bool = False  # the driver ends after this reply


@dataclass(frozen=True)
class Failed(Message):
    """A request failed; the fields are those of the error. `type`: name of its class in `scalescope.errors`."""

    kind: ClassVar[str] = "failed"
    type: str
    what: str
    where: str = ""
    cause: str = ""
    next_step: str = ""
    ends_run: bool = False

    @classmethod
    def of(cls, error: ScalescopeError) -> Failed:
        kind = next(each.__name__ for each in type(error).__mro__ if each.__module__ == ScalescopeError.__module__)
        ends_run = isinstance(error, InfrastructureError) and error.ends_run
        return cls(kind, error.what, error.where, error.cause, error.next_step, ends_run)


@dataclass(frozen=True)
class Closed(Message):
    """The cluster is closed, and the driver ends."""

    kind: ClassVar[str] = "closed"
    reason: str = ""  # reason why the driver ends
    left: str = ""  # sentence about jobs or pods that the driver could not remove; empty: none


Request = Open | RunTrial | Close
Reply = Ready | Opened | PhaseBegan | TrialDone | Failed | Closed

_REQUESTS: dict[str, type[Message]] = {cls.kind: cls for cls in (Open, RunTrial, Close)}
_REPLIES: dict[str, type[Message]] = {cls.kind: cls for cls in (Ready, Opened, PhaseBegan, TrialDone, Failed, Closed)}


def encode(message: Message) -> bytes:
    """One line of ASCII, with its line feed; `DriverError` if JSON cannot carry the message."""
    data = {"kind": message.kind, **{item.name: getattr(message, item.name) for item in fields(message)}}
    try:
        return json.dumps(data, allow_nan=False).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise DriverError(
            f"a {message.kind!r} message cannot be sent",
            where="driver protocol",
            cause=f"JSON cannot carry a value of the message: {error}",
            next_step="return only JSON values from your workload or cluster class; else report a defect of Scalescope",
        ) from error


def decode_request(line: bytes | str) -> Request:
    return _decode(line, _REQUESTS)  # type: ignore[return-value]


def decode_reply(line: bytes | str) -> Reply:
    return _decode(line, _REPLIES)  # type: ignore[return-value]


def _decode(line: bytes | str, known: Mapping[str, type[Message]]) -> Message:
    try:
        data = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise _corrupt("is not JSON", line) from error
    if not isinstance(data, dict):
        raise _corrupt("is not a JSON object", line)
    kind = data.pop("kind", None)
    if not isinstance(kind, str) or kind not in known:
        raise _corrupt(f"has the kind {kind!r}; known are {', '.join(known)}", line)
    message = known[kind]
    if unknown := sorted(set(data) - {item.name for item in fields(message)}):
        raise _corrupt(f"has the unknown field {unknown[0]!r}", line)
    try:
        return from_mapping(message, data)
    except InvalidField as error:
        raise _corrupt(f"is no {kind!r} message: {error}", line) from error


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _corrupt(problem: str, line: bytes | str) -> DriverError:
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    shown = text if len(text) <= 200 else text[:197] + "..."
    return DriverError(
        f"a line between the driver and its parent {problem}",
        where=f"driver protocol: {shown!r}",
        cause="the two ends have different versions, or something else wrote into the stream",
        next_step="check that both interpreters import the same scalescope",
    )
