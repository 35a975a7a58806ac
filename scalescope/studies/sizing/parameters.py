"""Parameters of the search for a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.parameters import Parameter
from scalescope.model.sweep import AXES_SCHEMA, THREADS, WorkloadParams, axis_values
from scalescope.studies.parameters import RUN, OneWorkload, StudySettings

ASKED = ("cores", "memory", "deadline", "budget", "threads", "cheapest", "measure")  # parameters of the search
FORMS = ("local", "client", "prefect", "slurm", "kubernetes", "sweep")
MOST_CORES = 100_000


def seconds_of(where: str, text: str) -> float | None:
    """Seconds of a text such as `20m`; None if the text is empty."""
    from dask.utils import parse_timedelta  # imported here, because the import would slow down every command

    return _positive(where, text, "a time such as 20m or 1h", lambda: parse_timedelta(text, default="s"))


def bytes_of(where: str, text: str) -> float | None:
    """Bytes of a text such as `8GiB`; None if the text is empty."""
    from dask.utils import parse_bytes

    return _positive(where, text, "a size such as 8GiB", lambda: parse_bytes(text))


def _positive(where: str, text: str, allowed: str, read: Any) -> float | None:
    try:
        found = float(read()) if text else None
    except (ValueError, KeyError):
        found = 0.0
    if found is not None and found <= 0:
        raise InvalidField(where, text, allowed)
    return found


def threads_of(text: str) -> tuple[int, ...]:
    """Numbers of threads per worker, fewest first; empty for an empty text."""
    return (
        tuple(sorted(fields.integer("threads", each, minimum=1) for each in axis_values(THREADS, text))) if text else ()
    )


def _read_threads(where: str, given: object) -> str:
    text = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
    threads_of(text)
    return text


def _read_time(where: str, given: object) -> str:
    seconds_of(where, str(given))
    return str(given)


def _read_size(where: str, given: object) -> str:
    bytes_of(where, str(given))
    return str(given)


@dataclass(frozen=True, kw_only=True)
class SizeParameters(StudySettings, OneWorkload):
    """Choose a cluster for a workload: workers, threads and memory, with the code that makes it."""

    run: Annotated[str, replace(RUN, help="A finished run: an id, the start of an id, or `latest`.")] = ""
    axes: Annotated[
        Mapping[str, Any],
        Parameter(
            "With a workload: the sizes to measure first. With a run of several settings: the setting to size, such as "
            "items=100.",
            title="Sizes to measure first, or the setting to size",
            option=("--axis", "-a"),
            metavar="NAME=VALUES",
            syntax="axes",
            examples=({"workers": [1, 2]},),
            schema=AXES_SCHEMA,
        ),
    ] = field(default_factory=dict)
    params: WorkloadParams = field(default_factory=dict)
    cores: Annotated[
        int | None,
        Parameter(
            "Most cores of all workers together, one per thread. Empty: the cores of this machine if it ran the "
            "workload, else 16 times as many as were measured.",
            title="Cores, at most",
            minimum=1,
            maximum=MOST_CORES,
        ),
    ] = None
    memory: Annotated[
        str,
        Parameter(
            "Most memory of a worker. Empty: no limit, or this machine's memory if it ran the workload.",
            title="Memory of a worker, at most",
            metavar="SIZE",
            examples=("8GiB",),
            reads=_read_size,
        ),
    ] = ""
    deadline: Annotated[
        str,
        Parameter(
            "Time in which the workload must end; the cheapest cluster that keeps to it in 8 of 10 runs is chosen.",
            metavar="TIME",
            examples=("20m",),
            reads=_read_time,
        ),
    ] = ""
    budget: Annotated[
        float | None,
        Parameter(
            "Most that one run may cost, in the currency of the price table; without prices, in core-hours.", minimum=0
        ),
    ] = None
    cheapest: Annotated[bool, Parameter("Choose the cheapest cluster, not the fastest.")] = False
    threads: Annotated[
        str,
        Parameter(
            "Threads of a worker to consider. Empty: 1, 2, 4, 8, and as many as were measured.",
            title="Threads per worker",
            metavar="NUMBERS",
            examples=("1,2,4",),
            reads=_read_threads,
        ),
    ] = ""
    measure: Annotated[
        bool,
        Parameter(
            "Also run the workload at one or two more sizes if that helps. Without this option they are only named.",
            title="Measure more where it helps",
        ),
    ] = False
    form: Annotated[
        Literal["", "local", "client", "prefect", "slurm", "kubernetes", "sweep"],
        Parameter(
            "Print only code that makes the chosen cluster: local, client, prefect, slurm, kubernetes or sweep.",
            title="Form of the code",
            option=("--as",),
            metavar="FORM",
        ),
    ] = ""
    repeats: Annotated[int, Parameter("Trials of each size that is measured first.", minimum=1, maximum=1000)] = 1
