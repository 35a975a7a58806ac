"""Record of a user's program on disk: written by its process while it runs, judged by another afterwards.

```
FOLDER/
    run.json        command and start of the program; written by the process that started it
    events.jsonl    events in the program's process, a JSON object a line
    1/, 2/, ...     a folder for each cluster, in the order of first use
        cluster.json    facts of the cluster, written every two seconds and when its recording ends
        tasks.spool, client.spool    raw records (`scalescope.model.spool`)
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scalescope.driver.attempt import Attempt, plain

CLUSTER, EVENTS, RUN = "cluster.json", "events.jsonl", "run.json"


@dataclass(frozen=True)
class Recorded:
    """Facts of a recorded cluster besides its raw records."""

    attempt: Attempt
    name: str
    address: str  # address of the scheduler
    threads: Mapping[str, int]  # threads by address of the worker
    started_at: str
    real_s: float
    over: bool = True  # False until the recording has ended
    members: list[list[Any]] = field(default_factory=list)  # workers that came or left; only while `over` is False

    def write(self, folder: Path) -> None:
        """Replace the file; a reader sees either the old facts or the new ones."""
        part = folder / f"{CLUSTER}.part"
        part.touch(mode=0o600)
        part.write_text(json.dumps(plain(asdict(self))))
        part.replace(folder / CLUSTER)

    @classmethod
    def read(cls, folder: Path) -> Recorded:
        known = json.loads((folder / CLUSTER).read_text())
        return cls(**{**known, "attempt": Attempt(**known["attempt"])})


def clusters(folder: Path) -> list[Path]:
    """The folders of recorded clusters that have facts, in their order."""
    found = [each.parent for each in folder.glob(f"*/{CLUSTER}")]
    return sorted(found, key=lambda each: int(each.name))


def say(folder: Path, event: Mapping[str, Any]) -> None:
    """Append an event to `events.jsonl`."""
    line = json.dumps(plain(event)).encode() + b"\n"
    file = os.open(folder / EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def events(folder: Path, since: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Complete events from byte `since` of the file on, each with the byte at which the next event begins."""
    try:
        with (folder / EVENTS).open("rb") as stream:
            stream.seek(since)
            for line in stream:
                if line.endswith(b"\n"):
                    since += len(line)
                    with suppress(ValueError):  # incomplete line: the disk was full
                        yield since, json.loads(line)
    except FileNotFoundError:
        return
