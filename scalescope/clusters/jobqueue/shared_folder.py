"""The folder that a cluster shares with its jobs: certificates, configuration, logs. Only its user can read it."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path

import dask
from distributed.security import Security

import scalescope
from scalescope import leases
from scalescope.errors import ClusterError
from scalescope.owner import make_folder

LOGS_KEPT_S = 30 * 86400.0  # seconds for which the logs of a cluster that failed are kept

_logger = logging.getLogger(__name__)


def default_parent() -> Path:
    return leases.state_folder() / "jobs"


def old_logs(parent: Path, older_than_s: float) -> list[Path]:
    """Folders that hold only logs of failed clusters, at least `older_than_s` seconds old."""
    found, oldest = [], time.time() - older_than_s
    for path in parent.glob(f"{leases.PREFIX}*"):
        try:
            if leases.is_label(path.name) and os.listdir(path) == ["logs"] and path.stat().st_mtime < oldest:
                found.append(path)
        except OSError as error:  # somebody removes it, or this user may not read it
            _logger.info("old logs in %s: %s", path, error)
    return found


class ClusterFolder:
    """A folder of one cluster, below `parent` or else in the user's state folder."""

    def __init__(self, label: str, parent: str = "") -> None:
        self.path = (Path(os.path.expanduser(parent)) if parent else default_parent()) / label
        self.logs = self.path / "logs"

    def create(self, *, tls: bool) -> Security | None:
        """Make the folder, and remove old logs; returns the credentials of all processes, or None without TLS."""
        try:
            for path in old_logs(self.path.parent, LOGS_KEPT_S):
                shutil.rmtree(path, ignore_errors=True)  # another process may be removing the same folder
            make_folder(self.path.parent)
            self.path.mkdir(mode=0o700)
            self.logs.mkdir(mode=0o700)
            importable = self.path / "importable"  # folder with a link to this package and nothing else
            importable.mkdir(mode=0o700)
            (importable / "scalescope").symlink_to(Path(scalescope.__file__).resolve().parent, target_is_directory=True)
            config = {name: value for name, value in dask.config.config.items() if name != "jobqueue"}
            self._write("dask.config", dask.config.serialize(config))
            return self._credentials() if tls else None
        except OSError as error:
            raise ClusterError(
                "the folder that the cluster shares with its jobs cannot be made",
                where=str(self.path),
                cause=str(error),
                next_step="set cluster.shared_directory to a folder that you can write to and all nodes see",
            ) from error

    def remove(self, *, keep_logs: bool = False) -> None:
        """Remove the folder, or all but the logs; may be called again."""
        try:
            if keep_logs and any(self.logs.iterdir()):
                for name in ("tls", "importable"):
                    shutil.rmtree(self.path / name, ignore_errors=True)
                (self.path / "dask.config").unlink(missing_ok=True)
            elif self.path.exists():
                shutil.rmtree(self.path)
        except OSError as error:
            _logger.warning("the folder %s could not be removed: %s", self.path, error)

    def _credentials(self) -> Security:
        made = Security.temporary()
        (self.path / "tls").mkdir(mode=0o700)
        ca = self._write("tls/ca.pem", made.tls_ca_file)
        own = {
            "cert": self._write("tls/cert.pem", made.tls_worker_cert),
            "key": self._write("tls/key.pem", made.tls_worker_key),
        }
        files = {f"tls_{role}_{part}": own[part] for role in ("scheduler", "worker", "client") for part in own}
        return Security(tls_ca_file=ca, require_encryption=True, **files)

    def _write(self, name: str, text: str) -> str:
        path = self.path / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return str(path)
