"""Reads and writes files at a path or an fsspec address; a file is written completely or not at all."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from scalescope import owner
from scalescope.errors import StoreError, UsageError
from scalescope.model.extras import install_command
from scalescope.store.location import redact, refuse_password


def is_address(place: str | Path) -> bool:
    """Whether this is an address such as `s3://bucket/report.html`, not a path."""
    return "://" in str(place)


def absolute(place: str | Path) -> str:
    """An absolute path; an address stays as it is."""
    text = str(place).removeprefix("file://")
    return text if is_address(text) else os.path.abspath(os.path.expanduser(text))


def check(place: str | Path, what: str) -> None:
    """Write and remove a probe file, so that an unwritable place is refused before measuring begins."""
    address = absolute(place)
    refuse_password(what, address)
    folder, _, name = address.rpartition("/")
    if not name or os.path.isdir(address):
        raise UsageError(
            f"The {what} must be a file, but {address} is a folder", next_step=f"Give {address}/{what}.html"
        )
    if not is_address(address) and not os.path.isdir(folder or "/"):
        raise UsageError(f"There is no folder {folder} for the {what}", next_step="Create it, or give another path.")
    _try(folder, what)


def check_folder(place: str, what: str) -> None:
    """Create a folder, and raise an error if nothing can be written there."""
    refuse_password(what, place)
    make_folder(place, what)
    _try(absolute(place), what)


def _try(folder: str, what: str) -> None:
    probe = f"{folder}/.scalescope-{secrets.token_hex(4)}"
    with replacing(probe, what) as temporary:
        temporary.touch()
    remove(probe, what)


def make_folder(place: str, what: str) -> None:
    with _explained(what, place):
        fs, path = fsspec.core.url_to_fs(absolute(place))
        if isinstance(fs, LocalFileSystem):
            owner.make_folder(Path(path), may_share=True)
        else:
            fs.makedirs(path, exist_ok=True)


def read(place: str, what: str) -> str:
    """The text of a file; empty if there is none."""
    with _explained(what, place, "read"):
        fs, path = fsspec.core.url_to_fs(absolute(place))
        try:
            return str(fs.cat_file(path).decode())
        except FileNotFoundError:
            return ""


def write(place: str | Path, text: str, what: str) -> None:
    with replacing(place, what) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def remove(place: str, what: str) -> None:
    with _explained(what, place):
        fs, path = fsspec.core.url_to_fs(absolute(place))
        if fs.exists(path):
            fs.rm_file(path)


@contextmanager
def replacing(place: str | Path, what: str) -> Iterator[Path]:
    """Yield a temporary file that replaces `place` unless the body raises. `what`: name of the file in errors."""
    address = absolute(place)
    remote = is_address(address)
    try:
        beside = None if remote else os.path.dirname(address)
        with tempfile.TemporaryDirectory(prefix=".scalescope-", dir=beside) as folder:
            temporary = Path(folder, "file")
            os.close(owner.opener(str(temporary), os.O_WRONLY | os.O_CREAT))
            yield temporary
            if not remote:
                temporary.replace(address)
                return
            with _explained(what, address):
                fs, path = fsspec.core.url_to_fs(address)
                fs.put_file(str(temporary), path)
    except OSError as error:
        raise _failure(what, address, error.strerror or str(error)) from error


@contextmanager
def _explained(what: str, place: str, done: str = "written") -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise _failure(what, place, str(error), done, f"For s3://: {install_command('s3')}") from error
    except Exception as error:  # each fsspec file system raises its own types of errors
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise _failure(what, place, why, done) from error


def _failure(what: str, place: str, why: str, done: str = "written", next_step: str = "") -> StoreError:
    usual = "Give another path." if done == "written" else "Correct the permissions, or give another path."
    text = f"The {what} could not be {done}: {redact(why)}"
    return StoreError(text, where=redact(place), next_step=next_step or usual)
