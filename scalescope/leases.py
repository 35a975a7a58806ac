"""The ledger of what exists outside this process and must not outlive it: jobs, and drivers.

A lease is an intent, written durably before the resource is asked for, and removed when the resource is gone. Whoever
owns it may die in between, by SIGKILL too: then the label in the lease finds what it left, and `scalescope.reaping`
removes it. One JSON file for each lease, readable by its user alone, in `$SCALESCOPE_LEASES`, or else in
`$XDG_STATE_HOME/scalescope/leases`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scalescope.errors import StoreError
from scalescope.owner import Owner, home

VARIABLE = "SCALESCOPE_LEASES"
MARK = "SCALESCOPE_LEASE"
"""Variable in the environment of local processes that holds the label of their lease."""

RUN = "SCALESCOPE_RUN"
"""Variable in the environment of a driver that holds the id of the run that it works for."""

PREFIX = "scalescope-"
_LABEL = re.compile(rf"{PREFIX}[0-9a-f]{{12}}")
_SUFFIX = ".json"
_LATEST = 1e11
"""Seconds since the epoch, or clock ticks since a boot, that no lease reaches: the year 5138."""

_OWNER_JOB = "SLURM_JOB_ID"


@dataclass(frozen=True)
class Lease:
    """Something that exists outside this process, or is about to.

    Attributes:
        label: Its name there: `scalescope-` and twelve hexadecimal digits.
        backend: What it was asked of: `slurm`, `local` or `kubernetes`.
        owner: The process that looks after it.
        owner_job: Slurm job in which the owner runs; empty where it runs in none. Slurm can tell, from any host,
            whether that job is still there.
        created_at: Seconds since the epoch.
        limit_at: When it will have ended by itself, in seconds since the epoch; None where that is not known.
        details: What else a reader may want to know of it. JSON.
    """

    label: str
    backend: str
    owner: Owner
    owner_job: str = ""
    created_at: float = 0.0
    limit_at: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def new_label() -> str:
    """A label that nothing else has."""
    return f"{PREFIX}{secrets.token_hex(6)}"


def is_label(text: str) -> bool:
    """Whether this is a label of ours."""
    return _LABEL.fullmatch(text) is not None


def folder() -> Path:
    """Where the leases of this user are kept."""
    if given := os.environ.get(VARIABLE, ""):
        return Path(os.path.abspath(os.path.expanduser(given)))
    return state_folder() / "leases"


def state_folder() -> Path:
    """Where this package keeps what must outlive a process, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if os.path.isabs(base) else home() / ".local" / "state"
    return root / "scalescope"


def intend(
    backend: str, label: str, details: Mapping[str, Any] | None = None, *, limit_s: float | None = None
) -> Lease:
    """Write down that something is about to be asked for; when this returns, not even a power failure forgets it.

    Args:
        backend: What it is asked of: `slurm`, `local` or `kubernetes`.
        label: From `new_label`; the resource must carry it as its name.
        details: What else a reader may want to know of it. JSON.
        limit_s: Seconds after which it will have ended by itself, such as the longest wait in a queue and the time
            limit of the job together. Without it, no other host than this one can ever tell that its owner is dead,
            unless the owner runs in a Slurm job.

    Raises:
        StoreError: It could not be written; then the resource must not be asked for.
    """
    now = time.time()
    lease = Lease(
        label=label,
        backend=backend,
        owner=Owner.current(),
        owner_job=os.environ.get(_OWNER_JOB, ""),
        created_at=now,
        limit_at=None if limit_s is None else now + limit_s,
        details=dict(details or {}),
    )
    _write(lease)
    return lease


def renew(lease: Lease, *, limit_s: float | None = None, **details: Any) -> Lease:
    """The lease, kept with a new time limit from now on or with further details, as durably as `intend` does.

    Raises:
        StoreError: It could not be written; the one before is still there.
    """
    limit_at = lease.limit_at if limit_s is None else time.time() + limit_s
    renewed = replace(lease, limit_at=limit_at, details={**lease.details, **details})
    _write(renewed)
    return renewed


def release(lease: Lease) -> None:
    """Forget a lease, for nothing of it is left; may be called again.

    Raises:
        StoreError: It could not be removed; `scalescope reap` will find that nothing is left of it.
    """
    path = _path(lease.label)
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"a lease could not be removed: {error.strerror or error}",
            where=str(path),
            next_step="nothing is left of it; `scalescope reap` removes the file when its folder can be written again",
        ) from error


def read_all() -> tuple[list[Lease], list[StoreError]]:
    """All leases of this user that can be read, the oldest first, and what is wrong with the others.

    Raises:
        StoreError: The folder cannot be read.
    """
    found, broken = [], []
    where = folder()
    try:
        names = sorted(os.listdir(where))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise StoreError(
            f"the leases cannot be read: {error.strerror or error}",
            where=str(where),
            next_step=f"fix the permissions of that folder, or set {VARIABLE} to another folder",
        ) from error
    for name in names:
        if not (name.endswith(_SUFFIX) and is_label(name.removesuffix(_SUFFIX))):
            continue
        try:
            found.append(_read(where / name))
        except FileNotFoundError:  # released meanwhile
            continue
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            broken.append(_unreadable(where / name, error))
    return sorted(found, key=lambda lease: lease.created_at), broken


def is_owned(lease: Lease) -> bool | None:
    """Whether the owner lives; None where this host cannot tell, since the owner ran on another one.

    On another host, only the time limit in the lease tells: after it, nothing of it can be left.
    """
    if lease.owner.is_here:
        return lease.owner.is_alive()
    if lease.limit_at is not None and time.time() > lease.limit_at:
        return False
    return None


# ------------------------------------------------------------------ files


def _path(label: str) -> Path:
    if not is_label(label):
        raise ValueError(f"{label!r} is not a label; `new_label` makes one")
    return folder() / f"{label}{_SUFFIX}"


def _write(lease: Lease) -> None:
    """Write the file beside its place, have the disk keep it, then put it in place and have the disk keep that."""
    path = _path(lease.label)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(lease), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StoreError(
            f"a lease could not be written: {error.strerror or error}; so nothing was asked of {lease.backend}",
            where=str(path),
            cause="what is started outside is written down first, so that it can be found again if this process dies",
            next_step=f"make room or fix the permissions there, or set {VARIABLE} to a folder on another disk",
        ) from error


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> Lease:
    data = json.loads(path.read_text(encoding="utf-8"))
    lease = Lease(**{**data, "owner": Owner(**data["owner"])})
    owner, times = lease.owner, (lease.created_at, 0.0 if lease.limit_at is None else lease.limit_at)
    texts = (lease.backend, lease.owner_job, owner.host)
    fits = (
        lease.label == path.stem
        and all(isinstance(text, str) for text in texts)
        and owner.host.strip()
        and type(owner.pid) is int
        and all(type(each) in (int, float) and 0 <= each < _LATEST for each in (*times, owner.process_started))
        and isinstance(lease.details, dict)
    )
    if not fits:
        raise ValueError("its fields are not those of a lease")
    return lease


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        "a lease cannot be read",
        where=str(path),
        cause=f"{type(error).__name__}: {error}",
        next_step=f"its file name is its label: cancel what `squeue --name {path.stem}` shows, then remove the file",
    )
