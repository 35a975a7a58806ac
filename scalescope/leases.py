"""The ledger of the resources that runs request from Slurm, Kubernetes and other systems.

A lease is written durably before its resource is requested, and removed when the resource is gone. If the owner dies in
between, even by SIGKILL, `clusters.reaping` finds the resource by the label in the lease. Each lease is a JSON file for
its user alone, in `$SCALESCOPE_LEASES`, or else in `$XDG_STATE_HOME/scalescope/leases`.
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

from scalescope.errors import InvalidField, StoreError
from scalescope.model.mapping import from_mapping
from scalescope.owner import Owner, make_folder, user_folder

VARIABLE = "SCALESCOPE_LEASES"
RUN = "SCALESCOPE_RUN"  # variable in the environment of a driver: id of its run
PREFIX = "scalescope-"
_LABEL = re.compile(rf"{PREFIX}[0-9a-f]{{12}}")
_SUFFIX = ".json"
_ABANDONED = "abandoned"  # key in `details`: the owner gave the resource up
_LATEST = 1e11  # upper bound for valid times: seconds since the epoch (year 5138), or clock ticks since boot


@dataclass(frozen=True)
class Lease:
    """A resource outside this process that exists, or is about to."""

    label: str  # name of the resource: `scalescope-` and twelve hexadecimal digits
    backend: str  # kind of cluster, such as `slurm`
    owner: Owner  # the process that must remove it
    owner_job: str = ""  # Slurm job in which the owner runs (empty: none); any host can ask whether that job has ended
    created_at: float = 0.0  # seconds since the epoch
    limit_at: float | None = None  # when the resource ends by itself at the latest, in seconds since the epoch
    details: Mapping[str, Any] = field(default_factory=dict)  # further data, as JSON


def new_label() -> str:
    return f"{PREFIX}{secrets.token_hex(6)}"


def is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def folder() -> Path:
    if given := os.environ.get(VARIABLE, ""):
        return Path(os.path.abspath(os.path.expanduser(given)))
    return state_folder() / "leases"


def state_folder() -> Path:
    """Folder of files that outlive a process."""
    return user_folder("XDG_STATE_HOME", ".local", "state")


def intend(
    backend: str,
    label: str,  # name from `new_label`, which the resource must carry
    details: Mapping[str, Any] | None = None,  # further data, as JSON
    *,
    limit_s: float | None = None,  # seconds until the resource ends by itself: queue timeout and time limit
) -> Lease:
    """Write a lease durably before its resource is requested; after a `StoreError`, the resource must not be requested.

    Without `limit_s`, no other host can tell that the owner is dead, unless it runs in a Slurm job.
    """
    now = time.time()
    lease = Lease(
        label=label,
        backend=backend,
        owner=Owner.current(),
        owner_job=os.environ.get("SLURM_JOB_ID", ""),
        created_at=now,
        limit_at=None if limit_s is None else now + limit_s,
        details=dict(details or {}),
    )
    _write(lease)
    return lease


def renew(lease: Lease, *, limit_s: float | None = None, **details: Any) -> Lease:
    """Write a lease with a new time limit (counted from now) or more details, as durably as `intend`."""
    limit_at = lease.limit_at if limit_s is None else time.time() + limit_s
    renewed = replace(lease, limit_at=limit_at, details={**lease.details, **details})
    _write(renewed)
    return renewed


def abandon(lease: Lease) -> None:
    """Mark a resource that its owner could not remove, so that a reaper may remove it although the owner lives."""
    renew(lease, **{_ABANDONED: True})


def release(lease: Lease) -> None:
    """Remove the lease of a resource that is gone; may be called again."""
    path = _path(lease.label)
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"a lease could not be removed: {error.strerror or error}",
            where=str(path),
            next_step="the cluster is gone; make the folder writable, then `scalescope reap` removes the file",
        ) from error


def read_all() -> tuple[list[Lease], list[StoreError]]:
    """All readable leases of this user, the oldest first, and an error for each unreadable one."""
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
        except FileNotFoundError:  # its owner has just released it
            continue
        except (OSError, ValueError, RecursionError, InvalidField) as error:
            broken.append(_unreadable(where / name, error))
    return sorted(found, key=lambda lease: lease.created_at), broken


def is_owned(lease: Lease) -> bool | None:
    """Whether the owner lives and uses the resource; None (unknown) on another host, unless `limit_at` has passed."""
    if lease.owner.is_here:
        return lease.owner.is_alive() and not lease.details.get(_ABANDONED)
    if lease.limit_at is not None and time.time() > lease.limit_at:
        return False
    return None


def _path(label: str) -> Path:
    if not is_label(label):
        raise ValueError(f"{label!r} is not a label; `new_label` makes one")
    return folder() / f"{label}{_SUFFIX}"


def _write(lease: Lease) -> None:
    path = _path(lease.label)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        make_folder(path.parent)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(lease), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StoreError(
            f"a lease could not be written, so nothing was requested from {lease.backend}: {error.strerror or error}",
            where=str(path),
            cause="the lease must come first, so that the cluster is found if this process dies",
            next_step=f"make room or fix the permissions there, or set {VARIABLE} to a folder on another disk",
        ) from error


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> Lease:
    lease = from_mapping(Lease, json.loads(path.read_text(encoding="utf-8")))
    times = (lease.created_at, lease.limit_at or 0.0, lease.owner.process_started)
    if lease.label != path.stem or not lease.owner.host.strip() or not all(0 <= each < _LATEST for each in times):
        raise ValueError("the file's fields do not make a lease")
    return lease


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        "a lease cannot be read",
        where=str(path),
        cause=f"{type(error).__name__}: {error}",
        next_step=f"cancel the jobs (`squeue --name {path.stem}`) or pods of that name, then remove the file",
    )
