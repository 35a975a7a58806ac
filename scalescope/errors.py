"""Every error that Scalescope raises on purpose.

```
ScalescopeError
├── UsageError                      the request cannot be right
│   ├── InvalidField                one field, its value, what was expected
│   │   └── UnknownName             there is no such field, axis or option
│   ├── OthersCode                  a stored run names code of another user
│   └── EnvironmentFailed           there can be no environment with these requirements
├── InfrastructureError             the machine misbehaved
│   ├── ClusterError                a cluster could not be opened, or was lost
│   │   ├── WorkersMissing          fewer workers than asked for
│   │   ├── JobsEnded               jobs of a batch system ended too early, or can never start
│   │   └── RequestRefused          the API server of Kubernetes refused a request
│   ├── EnvironmentUnavailable      an environment could not be built here and now
│   ├── DriverError                 the process that runs the trials died or went silent
│   └── CaptureError                a trial could not be recorded
├── StoreError                      results could not be written or read
├── BudgetSpent                     a sweep has reached its budget
└── WrongAnswer                     a workload computed something false
```

Each error says what happened, where, the likely cause and the next step. Only `scalescope.cli.main` turns errors into
exit statuses (`ExitStatus`).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import ClassVar

from scalescope.redaction import HIDDEN, NAMES, hide, masked

_CODES = (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {code: ascii(chr(code))[1:-1] for code in _CODES if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Escape codes that control a terminal (ESC, C1) or reorder text."""
    return text.translate(_CONTROLS)


class ExitStatus(IntEnum):
    """End of a command, as an exit status for scripts."""

    help: str

    def __new__(cls, value: int, help: str) -> ExitStatus:
        status = int.__new__(cls, value)
        status._value_ = value
        status.help = help
        return status

    OK = 0, "no critical finding"
    FINDING = 1, "a critical finding"
    USAGE = 2, "the request is wrong (options, files or names)"
    INFRASTRUCTURE = 3, "a fault of the machine, or an unexpected error"
    BUDGET_SPENT = 4, "a budget ended it early"
    FAILED = 5, "the workload raised an error in all trials, or its answers were wrong"
    INTERRUPTED = 130, "stopped by Ctrl-C (143: by SIGTERM)"


class ScalescopeError(Exception):
    """Base of all errors of this package."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.INFRASTRUCTURE

    def __init__(
        self,
        what: str,  # what happened, in one sentence
        *,
        where: str = "",  # file, field, process or host
        cause: str = "",
        next_step: str = "",  # what the reader should do now
        category: str = "",  # stable word for the cause, for code and tests; empty where the type says enough
    ) -> None:
        self.what = hide(what)
        self.where = hide(where)
        self.cause = hide(cause)
        self.next_step = hide(next_step)
        self.category = category
        super().__init__(self.what)

    def __str__(self) -> str:
        return "\n  ".join(self._parts())

    @property
    def line(self) -> str:
        """The whole error on one line, for logs and states of an orchestrator."""
        return " ".join("; ".join(self._parts()).split())

    def _parts(self) -> list[str]:
        told = (("where", self.where), ("cause", self.cause), ("next", self.next_step))
        return [printable(part) for part in (self.what, *(f"{label}: {text}" for label, text in told if text))]

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.what,), self.__dict__)


def told(text: str) -> dict[str, str]:
    """The parts `where`, `cause` and `next` that the text of an error has.

    A part that quotes a log keeps only the last line of the log.
    """
    found = re.findall(r"^ *(where|cause|next): (.+)((?:\n +\| .*)*)", text, re.MULTILINE)
    parts = [
        (name, f"{part} {quoted.splitlines()[-1].strip(' |')}" if quoted else part) for name, part, quoted in found
    ]
    return dict(reversed(parts))  # the first part of each name counts


class UsageError(ScalescopeError):
    """The request cannot be right; nothing was provisioned."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.USAGE


class InvalidField(UsageError):
    """One field of the input is wrong."""

    def __init__(
        self,
        field: str,  # dotted, as the user wrote it: `axes.workers`
        value: object,
        allowed: str,  # follows "expected": `a whole number, at least 1`
        *,
        next_step: str = "",
    ) -> None:
        self.field = field
        self.allowed = allowed
        text = repr(value)
        # a value in the place of a secret is hidden, even if it is the wrong value
        is_secret = isinstance(value, str) and NAMES.search(field.rpartition(".")[2])
        shown = HIDDEN if is_secret else masked(hide(text))
        self.value = value if shown == text else shown  # the value is sent and stored, too
        if len(shown) > 200:
            shown = shown[:197] + "..."
        super().__init__(f"{field}: {self._sentence(allowed, shown)}", next_step=next_step)

    @staticmethod
    def _sentence(allowed: str, shown: str) -> str:
        return f"expected {allowed}, got {shown}"

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.field, self.value, self.allowed), self.__dict__)


class UnknownName(InvalidField):
    """No such field, axis or option; `allowed` are the known names (`scalescope.model.fields.suggest`)."""

    @staticmethod
    def _sentence(allowed: str, shown: str) -> str:
        return f"unknown name; expected {allowed}"


class OthersCode(UsageError):
    """A stored run names code of another user, and nobody has allowed to run it."""


class EnvironmentFailed(UsageError):
    """No environment can meet these requirements: trying again does not help."""


class InfrastructureError(ScalescopeError):
    """The machine misbehaved; its measurements do not count."""

    ends_run: bool = False  # True if other trials would fail the same way: the run ends and can be continued


class ClusterError(InfrastructureError):
    """A cluster could not be opened, or was lost."""


class WorkersMissing(ClusterError):
    """The cluster has not exactly the workers that were asked for."""


class JobsEnded(ClusterError):
    """Jobs of a batch system were refused, ended too early, or can never start."""

    def __init__(
        self, what: str, *, job_ids: tuple[str, ...] = (), may_return: bool = False, ends_run: bool = False, **told: str
    ) -> None:
        super().__init__(what, **told)
        self.job_ids = job_ids  # ids in the batch system; empty if it refused the jobs
        self.may_return = may_return  # True if new jobs may work: a node died, or a person or a time limit ended these
        self.ends_run = ends_run  # True if the system refuses such jobs for all trials


class RequestRefused(ClusterError):
    """The API server of Kubernetes refused a request; `status` is the HTTP status, such as 403 or 404."""

    def __init__(self, what: str, *, status: int = 0, **told: str) -> None:
        super().__init__(what, **told)
        self.status = status


class EnvironmentUnavailable(InfrastructureError):
    """An environment could not be built here and now: no package index, no space, no uv."""


class DriverError(InfrastructureError):
    """The process that owns the cluster died, went silent, or sent an invalid message."""


class CaptureError(InfrastructureError):
    """A trial could not be recorded completely."""


class StoreError(ScalescopeError):
    """Results could not be written or read."""


class BudgetSpent(ScalescopeError):
    """A sweep has reached its budget; its finished trials are kept, and it can be continued."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.BUDGET_SPENT


class WrongAnswer(ScalescopeError):
    """A workload finished, but its result is false."""
