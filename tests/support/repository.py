"""A git repository with a small package, which builds without an index."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support import wheels

VERSION = "1.5"  # of all commits
_PROJECT = """
[project]
name = "{name}"
version = "{version}"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_BACKEND = """
def build_wheel(folder, config_settings=None, metadata_directory=None):
    write_wheel(Path(folder), "{name}", "{version}", code=Path("code.py").read_text())
    return "{module}-{version}-py3-none-any.whl"
"""
_OURS = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass
class Repository:
    """Make one with `make`; its branch is `main`, and has no commits."""

    path: Path
    name: str  # of the package

    @classmethod
    def make(cls, path: Path, name: str) -> Repository:
        path.mkdir()
        known = {"name": name, "module": name.replace("-", "_"), "version": VERSION}
        (path / "pyproject.toml").write_text(_PROJECT.format(**known))
        (path / "backend.py").write_text(Path(wheels.__file__).read_text() + _BACKEND.format(**known))
        made = cls(path, name)
        made.git("init", "--quiet", "--initial-branch", "main")
        return made

    @property
    def requirement(self) -> str:
        return f"{self.name} @ {self.path}"

    @property
    def address(self) -> str:
        return f"file://{self.path}"

    def git(self, *arguments: str) -> str:
        environ = {**os.environ, **_OURS, "GIT_CONFIG_GLOBAL": os.devnull}
        command = ["git", "-C", str(self.path), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, subject: str, code: str | None) -> str:
        """Commit the code of the package and return the id. With None, the package does not build."""
        path = self.path / "code.py"
        path.unlink(missing_ok=True)
        if code is not None:
            path.write_text(f"# {subject}\n{code}\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)
        return self.git("rev-parse", "HEAD")
