"""Code of Beam workloads that runs on workers.

The code is in a separate module, which imports Apache Beam: its classes are pickled by reference, and the rest of the
package can be imported without Beam.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.dask import transform_evaluator
from distributed.protocol import pickle

from scalescope.errors import UsageError
from scalescope.workloads import _file_work

_shared = getattr(transform_evaluator, "apply_dofn_to_bundle", None)


def apply_dofn_to_bundle(items: Iterable[Any], *arguments: Any) -> Any:
    """Call Beam's function of the same name with copies of the arguments, as if they had come over a network."""
    assert _shared is not None
    return _shared(items, *pickle.loads(pickle.dumps(arguments)))


class _Fresh(beam.DoFn):  # type: ignore[misc]
    """Base with an identifier of the run: Dask makes it part of the task keys, so keys differ between runs."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token


class Sleep(_Fresh):
    """Sleeps, and counts the stages that an item went through."""

    def __init__(self, seconds: float, token: str) -> None:
        super().__init__(token)
        self.seconds = seconds

    def process(self, element: tuple[int, int]) -> Iterator[tuple[int, int]]:
        item, stages = element
        time.sleep(self.seconds)
        yield item, stages + 1


class Read(_Fresh):
    """Maps a path to the path and the file's content."""

    def process(self, element: str) -> Iterator[tuple[str, bytes]]:
        try:
            yield element, Path(element).read_bytes()
        except FileNotFoundError as error:
            raise UsageError(
                f"a worker cannot see the file {element}",
                where="params.directory",
                cause="the folder is not shared between the client's machine and the workers'",
                next_step="give a directory on a shared file system as parameter `directory`",
            ) from error


class Compute(_Fresh):
    """Maps path and content to path and result."""

    def __init__(self, size: int, device: str, token: str) -> None:
        super().__init__(token)
        self.size = size
        self.device = device

    def process(self, element: tuple[str, bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        path, content = element
        total, device = _file_work.square_and_sum(_file_work.matrix(content, self.size), self.device)
        yield path, {"sum": total, "device": device}


class Write(_Fresh):
    """Writes the result, and maps path and result to the path of the written file."""

    def process(self, element: tuple[str, dict[str, Any]]) -> Iterator[str]:
        path, computed = element
        result = _file_work.result_path(path)
        Path(result).write_text(json.dumps(computed), encoding="utf-8")
        yield result
