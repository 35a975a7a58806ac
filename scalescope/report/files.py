"""Files that are written as a whole or not at all, at a path or, where its file system can, at an address of fsspec."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from scalescope.errors import InvalidField, StoreError, UsageError
from scalescope.store.location import holds_password, redact


def is_address(place: str | Path) -> bool:
    """Whether it is an address such as `s3://bucket/report.html`, and no path of this machine."""
    return "://" in str(place)


def absolute(place: str | Path) -> str:
    """A path from the root of this machine's files; an address as it is."""
    text = str(place).removeprefix("file://")
    return text if is_address(text) else os.path.abspath(os.path.expanduser(text))


def check(place: str | Path, what: str) -> None:
    """Refuse, before hours of measuring, what could not be written afterwards: a file is written there, and removed.

    Args:
        place: Of the file.
        what: It in words, as the subject of errors.

    Raises:
        UsageError: It is a folder, or has no folder to be in; or the address holds a password.
        StoreError: It cannot be written, or the address is not understood.
    """
    address = absolute(place)
    _no_password(address, what)
    folder, _, name = address.rpartition("/")
    if not name or os.path.isdir(address):
        raise UsageError(f"The {what} needs a file, and {address} is a folder", next_step=f"Give {address}/{what}.html")
    if not is_address(address) and not os.path.isdir(folder or "/"):
        raise UsageError(f"There is no folder {folder} for the {what}", next_step="Make it, or give another place.")
    _try(folder, what)


def check_folder(place: str, what: str) -> None:
    """Make a folder, and refuse it where nothing can be written to it.

    Raises:
        InvalidField: The address holds a password.
        StoreError: It cannot be made, or nothing can be written there.
    """
    _no_password(place, what)
    make_folder(place, what)
    _try(absolute(place), what)


def _no_password(address: str, what: str) -> None:
    if holds_password(address):
        raise InvalidField(
            what,
            redact(address),
            "an address without a password",
            next_step="Give it in fsspec's configuration (~/.config/fsspec).",
        )


def _try(folder: str, what: str) -> None:
    """Write a file there, and remove it."""
    probe = f"{folder}/.scalescope-{secrets.token_hex(4)}"
    with replacing(probe, what) as temporary:
        temporary.touch()
    remove(probe, what)


def make_folder(place: str, what: str) -> None:
    """Have a folder; stores of objects have none, and need none.

    Raises:
        StoreError: It cannot be made.
    """
    with _explained(what, place):
        fs, path = fsspec.core.url_to_fs(absolute(place))
        fs.makedirs(path, exist_ok=True)


def write(place: str | Path, text: str, what: str) -> None:
    """Write a text.

    Raises:
        StoreError: It cannot be written.
    """
    with replacing(place, what) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def remove(place: str, what: str) -> None:
    """Remove a file, if it is there.

    Raises:
        StoreError: It cannot be removed.
    """
    with _explained(what, place):
        fs, path = fsspec.core.url_to_fs(absolute(place))
        if fs.exists(path):
            fs.rm_file(path)


@contextmanager
def replacing(place: str | Path, what: str) -> Iterator[Path]:
    """Give a file to write to, and put what was written there at its place.

    Args:
        place: Of the file that comes to be, or is replaced; untouched when the body raises.
        what: It in words, as the subject of the error.

    Raises:
        StoreError: It cannot be written.
    """
    address = absolute(place)
    remote = is_address(address)
    try:
        beside = None if remote else os.path.dirname(address)
        with tempfile.TemporaryDirectory(prefix=".scalescope-", dir=beside) as folder:
            temporary = Path(folder, "file")
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
def _explained(what: str, place: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise _failure(what, place, str(error), 'Install it: pip install "scalescope[s3]" for s3://.') from error
    except Exception as error:  # every kind of file system has errors of its own
        raise _failure(what, place, getattr(error, "strerror", None) or f"{type(error).__name__}: {error}") from error


def _failure(what: str, place: str, why: str, next_step: str = "Give another place for it.") -> StoreError:
    return StoreError(f"The {what} could not be written: {redact(why)}", where=redact(place), next_step=next_step)
