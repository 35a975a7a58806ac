from __future__ import annotations

from pathlib import Path

import pytest

from scalescope.environments import from_lock
from scalescope.errors import UsageError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "requirements.txt"


def test_pinned_versions_are_read_with_normalised_names(file: Path) -> None:
    file.write_text("dask==2023.5.0\n# a comment\n\nApache_Beam==2.47.0  # why\n")
    assert from_lock(file) == {"apache-beam": "2.47.0", "dask": "2023.5.0"}


def test_hashes_and_extras_are_ignored_and_markers_are_evaluated(file: Path) -> None:
    file.write_text(
        "dask[array]==2023.5.0 ; python_version >= '3' \\\n"
        "    --hash=sha256:ab12 \\\n"
        "    --hash=sha256:cd34\n"
        "    # via distributed\n"
        "pywin32==306 ; sys_platform == 'win32'\n"
        "torch==2.1.0+cpu\n"
    )
    assert from_lock(file) == {"dask": "2023.5.0", "torch": "2.1.0+cpu"}


def test_a_package_pinned_for_each_python_has_the_version_of_this_one(file: Path) -> None:
    file.write_text("a==1 ; python_version < '3'\na==2 ; python_version >= '3'\n")
    assert from_lock(file) == {"a": "2"}


def test_a_last_line_that_ends_in_a_backslash_is_read(file: Path) -> None:
    file.write_text("a==1 \\\n")
    assert from_lock(file) == {"a": "1"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dask>=2023", "only name==version"),
        ("dask", "only name==version"),
        ("dask==2023.*", "only name==version"),
        ("-e .", "options in a lock file are not supported"),
        ("--index-url https://me:secret@example.org/simple", "options in a lock file are not supported"),
        ("dask @ file:///x", "an address"),
        ("dask @ git+https://example.org/x@main", "an address"),
        ("a==1 ; nonsense", "marker cannot be read"),
        ("b==2", "pins b to 1 and to 2"),
    ],
)
def test_a_line_that_pins_no_version_is_refused_with_its_number(line: str, reason: str, file: Path) -> None:
    file.write_text(f"# made by hand\nb==1\n{line}\n")
    with pytest.raises(UsageError, match=reason) as caught:
        from_lock(file)
    assert "line 3" in caught.value.where
    assert "secret" not in str(caught.value)


def test_an_empty_or_unreadable_lock_file_is_refused(file: Path) -> None:
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="pins nothing"):
        from_lock(file)
    with pytest.raises(UsageError, match="cannot be read"):
        from_lock(file.parent)
