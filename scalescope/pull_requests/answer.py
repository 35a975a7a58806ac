"""The answer for a pull request: text for people, and annotations for the pages of GitHub and GitLab."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model.mapping import Mapped
from scalescope.report import files
from scalescope.report.table import markdown_list, markdown_text


@dataclass(frozen=True)
class Notice(Mapped):
    """A line of the pull request that makes a workload slower."""

    file: str  # path in the repository
    line: int
    title: str
    text: str


@dataclass(frozen=True)
class PullRequestAnswer(Mapped):
    """Whether the head is slower than the base."""

    question: str  # digest of the question; the same for later commits of the pull request
    base: str  # id of the base commit
    head: str
    line: str  # the answer in a sentence
    changed: bool  # True if any comparison showed a difference
    status: int  # exit status
    table: str = ""  # table in Markdown
    reasons: tuple[str, ...] = ()  # a sentence for each comparison that differs
    remarks: tuple[str, ...] = ()  # sentences on requirements, and on what was not compared
    notices: tuple[Notice, ...] = ()

    @classmethod
    def read(cls, path: str) -> PullRequestAnswer:
        try:
            return cls.from_mapping(json.loads(files.read(path, "answer")))
        except ValueError as error:
            raise InvalidField("--comment", path, "a file that `pull-request --output` wrote") from error

    @property
    def marker(self) -> str:
        return f"<!-- scalescope {self.question} -->"

    def to_markdown(self) -> str:
        blocks = [
            f"**{markdown_text(self.line)}**",
            self.table,
            markdown_list("", [*self.reasons, *self.remarks]),
            f"Commit {self.head[:10]} against {self.base[:10]}, measured by Scalescope in interleaved pairs.",
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def annotations(self) -> list[str]:
        """Workflow commands by which GitHub shows a warning at a line."""
        return [
            f"::warning file={_value(each.file)},line={each.line},title={_value(each.title)}::{_data(each.text)}"
            for each in self.notices
        ]

    def code_quality(self) -> list[dict[str, Any]]:
        """GitLab's report of code quality."""
        return [
            {
                "description": f"{each.title}: {each.text}",
                "check_name": "scalescope",
                "fingerprint": hashlib.sha256(f"{each.file}:{each.title}".encode()).hexdigest(),
                "severity": "major",
                "location": {"path": each.file, "lines": {"begin": each.line}},
            }
            for each in self.notices
        ]


def write_summary(answer: PullRequestAnswer) -> None:
    """Add the answer to the summary of the GitHub job; does nothing outside GitHub."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY", ""):
        with Path(path).open("a", encoding="utf-8") as summary:
            summary.write(answer.to_markdown())


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
