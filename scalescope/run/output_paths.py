"""Where the files go that a run is asked to write, and where a browser finds them."""

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
from scalescope.report import files, html
from scalescope.report.table import markdown_text
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner
from scalescope.store.store import Store

VARIABLE = "SCALESCOPE_FILES_URL"
"""Environment variable: where a browser finds the folder of the raw records, served by a web server or a bucket."""


@dataclass(frozen=True)
class OutputPath:
    """Where a file or a folder goes.

    A relative name is one in the working folder. Where that does not outlive the run, it is one in the folder that the
    run or study has among the raw records.

    Attributes:
        name: As it was asked for.
        store: Of the run.
        among_records: Whether it goes to the raw records.
    """

    name: str
    store: Store
    among_records: bool

    @classmethod
    def of(cls, parameter: str, name: str, store: Store, runner: Runner) -> OutputPath:
        """Where something goes that a parameter names; refused, before anything is measured, where it cannot.

        Raises:
            InvalidField: It would leave the folder of its run; or `SCALESCOPE_FILES_URL` is no address of the web.
            StoreError: Nothing can be written among the raw records.
        """
        _base()
        fixed = files.is_address(name) or Path(name).expanduser().is_absolute()
        if fixed or runner.keeps_folder:
            return cls(name, store, among_records=False)
        if any(part.startswith(".") for part in posixpath.normpath(name).split("/")):
            raise InvalidField(
                parameter,
                name,
                "a name within the folder of the run, without dots at its beginning",
                next_step="In a deployment, files of relative names go beside the records of their run. Elsewhere: "
                "give an absolute path, or an address such as s3://bucket/report.html.",
            )
        files.check_folder(store.records, parameter)
        return cls(name, store, among_records=True)

    @classmethod
    def of_report(cls, name: str, store: Store, runner: Runner) -> OutputPath | None:
        """Where a report goes that a parameter names, likewise; None where none is asked for.

        Raises:
            UsageError: What it needs is not installed, or it cannot be there.
            StoreError: It cannot be written.
        """
        if not name:
            return None
        html.check_packages()
        place = cls.of("report", name, store, runner)
        if not place.among_records:
            files.check(name, "report")
        return place

    def write(self, reference: str, runner: Runner, write: Callable[[str], object]) -> WrittenFile:
        """Have the report of the run or study with this id written, and say where it is.

        Raises:
            StoreError: It cannot be written.
        """
        address = self.made(reference)
        write(address)
        written = WrittenFile.at(address, self.store)
        runner.tell(Progress(0, 0, f"Report: {written}", notable=True))
        return written

    def made(self, reference: str) -> str:
        """Its address for the run or study with this id; a folder to hold it is made among the raw records.

        Raises:
            StoreError: That cannot be made.
        """
        if not self.among_records:
            return files.absolute(self.name)
        address = f"{self.store.folder(reference)}/{posixpath.normpath(self.name)}"
        files.make_folder(posixpath.dirname(address), "folder of the run")
        return address


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        address: Path from the root, or address.
        link: For a browser; empty where nobody said how one reaches it.
    """

    address: str
    link: str = ""

    @classmethod
    def at(cls, address: str, store: Store) -> WrittenFile:
        """The file at an address, reached by the web where it lies among the raw records."""
        base, root = _base(), f"{files.absolute(store.records)}/"
        found = base and files.absolute(address).startswith(root)
        return cls(address, f"{base}/{quote(files.absolute(address).removeprefix(root))}" if found else "")

    def __str__(self) -> str:
        return self.link or self.address

    def markdown(self) -> str:
        """A link, or else where it is."""
        name = markdown_text(posixpath.basename(self.address))
        here = "" if files.is_address(self.address) else f" on {socket.gethostname()}"
        return f"[{name}]({self.link})" if self.link else markdown_text(f"{self.address}{here}")


def _base() -> str:
    """What `SCALESCOPE_FILES_URL` says, or nothing.

    Raises:
        InvalidField: It is no address of the web, or holds a password.
    """
    given = os.environ.get(VARIABLE, "").rstrip("/")
    if given and not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w.~%/+=-]*)?", given, re.ASCII):
        raise InvalidField(
            VARIABLE,
            given.rpartition("@")[2],
            "an address such as https://files.example.org/records, without user, password and query",
            next_step="`scalescope serve` prints one for this machine.",
        )
    return given
