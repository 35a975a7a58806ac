"""Parameters of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from scalescope.model import fields
from scalescope.model.parameters import Parameter
from scalescope.model.sweep import AXES_SCHEMA, WORKERS, axis_values
from scalescope.studies.parameters import RUN, OneWorkload, StudySettings, named

ASKED = ("workers", "using", "threads", "bandwidth")  # parameters of the prediction, not of the measurement


def sizes(workers: str) -> tuple[int, ...]:
    """Numbers of workers, smallest first; empty for an empty text."""
    values = axis_values(WORKERS, workers) if workers else ()
    return tuple(sorted(fields.integer("workers", value, minimum=1) for value in values))


def _read_workers(where: str, given: object) -> str:
    text = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
    sizes(text)
    return text


def _numbers(help: str, title: str, example: str) -> Parameter:
    return Parameter(help, title=title, metavar="NUMBERS", examples=(example,), reads=_read_workers)


@dataclass(frozen=True, kw_only=True)
class PredictionParameters(StudySettings, OneWorkload):
    """Predict how long a workload takes at sizes that were not run, and what holds it back there."""

    run: Annotated[str, replace(RUN, help="A finished run: an id, the start of an id, or `latest`.")] = ""
    workers: Annotated[
        str,
        _numbers(
            "Numbers of workers to predict. Empty: 2, 4, 8 and 16 times the largest measured number.",
            "Workers to predict",
            "16,64,256",
        ),
    ] = ""
    using: Annotated[
        str,
        _numbers(
            "Measured numbers of workers to predict from; the others are for comparison. Empty: all.",
            "Measured sizes to predict from",
            "1,2,4",
        ),
    ] = ""
    axes: Annotated[
        Mapping[str, Any],
        Parameter(
            "With a workload: the sizes to measure first. With a run of several settings: the setting to predict, such "
            "as items=100.",
            title="Sizes to measure first, or the setting to predict",
            option=("--axis", "-a"),
            metavar="NAME=VALUES",
            syntax="axes",
            examples=({"workers": [1, 2, 4]},),
            schema=AXES_SCHEMA,
        ),
    ] = field(default_factory=dict)
    params: Annotated[
        Mapping[str, Any],
        named(
            "With a workload: its parameters. With a run: changed parameters, such as smaller chunks, whose tasks "
            "divide the measured work; or more data, such as rows=10x, whose work is fitted to the measured rows.",
            "Workload parameters",
            "--param",
            "-p",
            example={"chunks": 500},
        ),
    ] = field(default_factory=dict)
    repeats: Annotated[int, Parameter("Trials of each size that is measured first.", minimum=1, maximum=1000)] = 2
    threads: Annotated[
        int | None,
        Parameter("Threads of each worker. Empty: as they were measured.", title="Threads per worker", minimum=1),
    ] = None
    bandwidth: Annotated[
        str,
        Parameter(
            "Bandwidth of the link of each worker, each way. Empty: as it was measured.",
            metavar="RATE",
            examples=("25Gbit",),
        ),
    ] = ""
