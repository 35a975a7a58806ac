"""Paths of the files that a run writes, and their links for a browser."""

from __future__ import annotations

import os
import posixpath
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from scalescope.errors import InvalidField
from scalescope.report import files
from scalescope.report.table import markdown_text
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner
from scalescope.store.store import Store

# Environment variable with the address at which a web server or a bucket shows the folder of the raw records
VARIABLE = "SCALESCOPE_FILES_URL"


@dataclass(frozen=True)
class OutputPath:
    """Path of a file or a folder to write.

    A relative name is in the working folder or, if that does not outlive the run, in the run's folder of raw records.
    """

    name: str  # name as the user gave it
    store: Store
    among_records: bool  # True if it is in the run's folder of raw records

    @classmethod
    def of(cls, parameter: str, name: str, store: Store, runner: Runner) -> OutputPath:
        """The path that a parameter names; checked before anything is measured."""
        _base()
        if files.is_address(name) or Path(name).expanduser().is_absolute() or runner.keeps_folder:
            return cls(name, store, among_records=False)
        if any(part.startswith(".") for part in posixpath.normpath(name).split("/")):
            raise InvalidField(
                parameter,
                name,
                "a relative path in the folder of the run, without parts that begin with a dot",
                next_step="A deployment writes relative names into the folder of the run's records. For other places, "
                "give an absolute path, or an address such as s3://bucket/report.html.",
            )
        files.check_folder(store.records, parameter)
        return cls(name, store, among_records=True)

    @classmethod
    def of_report(cls, name: str, store: Store, runner: Runner) -> OutputPath | None:
        if not name:
            return None
        place = cls.of("report", name, store, runner)
        if not place.among_records:
            files.check(name, "report")
        return place

    def write(self, reference: str, runner: Runner, write: Callable[[str], object]) -> WrittenFile:
        """Write the report of the run or study with this id, and say where it is."""
        address = self.made(reference)
        write(address)
        written = WrittenFile.at(address, self.store)
        runner.tell(Progress(0, 0, f"Report: {written}", notable=True))
        return written

    def made(self, reference: str) -> str:
        """The address to write for the run or study with this id; makes its folder if that is among the raw records."""
        if not self.among_records:
            return files.absolute(self.name)
        address = f"{self.store.folder(reference)}/{posixpath.normpath(self.name)}"
        files.make_folder(posixpath.dirname(address), "folder of the run")
        return address


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written."""

    address: str  # absolute path, or address
    link: str = ""  # address for a browser; empty if `SCALESCOPE_FILES_URL` does not reach the file

    @classmethod
    def at(cls, address: str, store: Store) -> WrittenFile:
        """The file at an address, with a link if it is among the raw records."""
        base, root = _base(), f"{files.absolute(store.records)}/"
        found = base and files.absolute(address).startswith(root)
        return cls(address, f"{base}/{quote(files.absolute(address).removeprefix(root))}" if found else "")

    def __str__(self) -> str:
        return self.link or self.address

    def markdown(self) -> str:
        name = markdown_text(posixpath.basename(self.address))
        here = "" if files.is_address(self.address) else f" on {socket.gethostname()}"
        return f"[{name}]({self.link})" if self.link else markdown_text(f"{self.address}{here}")


def _base() -> str:
    given = os.environ.get(VARIABLE, "").rstrip("/")
    if given and not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w.~%/+=-]*)?", given, re.ASCII):
        raise InvalidField(
            VARIABLE,
            given.rpartition("@")[2],
            "an address such as https://files.example.org/records, without user, password and query",
            next_step="`scalescope serve` prints one for this machine.",
        )
    return given
