"""Removals from a trial: of clusters, workloads, settings and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalescope.analysis.summary import label
from scalescope.errors import InvalidField
from scalescope.isolation.reduce import Move, Number
from scalescope.model.cluster import ClusterSpec, kinds
from scalescope.model.fields import Scalar
from scalescope.model.sweep import ITEMS, WORKERS, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import number
from scalescope.model.workload import Simpler, Workload

STAGES, TASKS = "stages", "tasks"
# Seconds that sleeps are cut to; the first that keeps the symptom counts. Shorter sleeps would measure Dask's overhead.
QUICK_S = (0.1, 1.0)
# With one worker, no other worker can be idle.
FEWEST_WORKERS = 2

Load = Callable[[str], Workload]


@dataclass(frozen=True, eq=False)
class Setting:
    """One trial that can be run: a workload on a cluster at a point. Equal settings have sweeps with the same id."""

    workload: Workload
    cluster: ClusterSpec
    point: Point
    seed: int = 0  # seed of the simulated cluster
    trial_timeout_s: float = 600.0

    @classmethod
    def of(cls, sweep: Sweep, point: Point, workload: Workload) -> Setting:
        return cls(workload, sweep.cluster_of(point), replace(point, cluster=""), sweep.seed, sweep.trial_timeout_s)

    @property
    def sweep(self) -> Sweep:
        """A sweep of only this trial."""
        return Sweep(
            self.workload.name,
            cluster=self.cluster,
            points=(self.point.values,),
            seed=self.seed,
            trial_timeout_s=self.trial_timeout_s,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setting) and self.sweep.id == other.sweep.id

    def __hash__(self) -> int:
        return hash(self.sweep.id)

    def with_params(self, **params: Scalar) -> Setting:
        return replace(self, point=replace(self.point, params={**self.point.params, **params}))

    def number(self, name: str) -> int | None:
        """The parameter `name` if it is a whole number, else None."""
        value = self.point.params.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def sentence(trial: Trial) -> str:
    """Such as `2 workers, 2 items: 1 of 2 used, 2 tasks, makespan 0.62 s`."""
    metrics, names = trial.metrics, [TASKS] if TASKS in trial.point.params else []
    where = label(trial.point, names)
    if metrics is None:
        return f"{where}: {trial.state}, {_first_line(trial.reason)}"
    spoilt = "" if trial.counts else f" ({trial.state}: {_first_line(trial.reason)})"
    of = f"{metrics.workers_used:,} of {trial.point.workers:,} used"
    return f"{where}: {of}, {metrics.tasks:,} tasks, makespan {number(metrics.makespan_s)} s{spoilt}"


def removals(start: Setting, load: Load, work_s: Callable[[Setting], float]) -> list[Move[Setting]]:
    """All moves from a setting, those that save most first; `work_s` gives the recorded work T1 in seconds."""
    return [
        *(partial(_cheaper, kind) for kind, spec in kinds().items() if spec.here),
        *(partial(_simpler, start, stand_in, load, work_s) for stand_in in start.workload.simpler),
        *(partial(_without_config, name) for name in start.point.dask_config),
        _one_thread,
        *(partial(_default, name) for name in _names(start.workload, load)),
        *(partial(_quicker, seconds) for seconds in QUICK_S),
    ]


def numbers() -> list[Number[Setting]]:
    """All numbers that can be made smaller.

    A setting with at least one item per thread stays so, because fewer items would explain idle workers. Workers and
    items shrink together if items are a multiple of the threads.
    """
    return [
        Number(STAGES, lambda setting: setting.number(STAGES), _with(STAGES), lambda setting: 1),
        Number("workers and items together", _together, _with_both, lambda setting: FEWEST_WORKERS),
        Number(WORKERS, _workers_alone, _with_workers, lambda setting: FEWEST_WORKERS),
        Number(ITEMS, _items_alone, _with(ITEMS), lambda setting: _enough(setting, ITEMS)),
        Number(TASKS, lambda setting: setting.number(TASKS), _with(TASKS), lambda setting: _enough(setting, TASKS)),
    ]


# ------------------------------------------------------------------ moves


def _cheaper(kind: str, setting: Setting) -> tuple[str, Setting] | None:
    now, order = setting.cluster.kind, list(kinds())  # the cheapest first
    if order.index(now) <= order.index(kind) or setting.point.workers > kinds()[kind].max_workers:
        return None
    cheap = replace(setting, cluster=kinds()[kind](), point=replace(setting.point, groups={}))
    return f"{now} cluster → {kind}", cheap


def _simpler(
    start: Setting, stand_in: Simpler, load: Load, work_s: Callable[[Setting], float], setting: Setting
) -> tuple[str, Setting] | None:
    if setting.workload.name != start.workload.name:
        return None
    workload = load(stand_in.workload)
    params = workload.bind(stand_in.params(setting.point.params, work_s(setting)))
    made = replace(setting, workload=workload, point=replace(setting.point, params=params))
    return f"{setting.workload.name} → {workload.name}, without {stand_in.without}", made


def _without_config(name: str, setting: Setting) -> tuple[str, Setting] | None:
    config = setting.point.dask_config
    if name not in config:
        return None
    rest = {other: value for other, value in config.items() if other != name}
    return f"{name}={config[name]!r} removed", replace(setting, point=replace(setting.point, dask_config=rest))


def _one_thread(setting: Setting) -> tuple[str, Setting] | None:
    threads = setting.point.threads_per_worker
    if threads == 1:
        return None
    return f"threads per worker {threads} → 1", replace(setting, point=replace(setting.point, threads_per_worker=1))


def _default(name: str, setting: Setting) -> tuple[str, Setting] | None:
    parameter = setting.workload.parameter(name)
    if parameter is None or parameter.required or setting.point.params[name] == parameter.default:
        return None
    words = f"{name} {setting.point.params[name]!r} → {parameter.default!r} (its default)"
    return words, setting.with_params(**{name: parameter.default})


def _quicker(seconds: float, setting: Setting) -> tuple[str, Setting] | None:
    """Shorten all durations by one factor, so that their ratios stay."""
    durations = _durations(setting.point.params)
    longest = max(durations.values(), default=0.0)
    if longest <= seconds or longest <= QUICK_S[0]:
        return None
    factor = seconds / longest
    changed: Mapping[str, Scalar] = {name: float(f"{value * factor:.3g}") for name, value in durations.items()}
    return f"sleeps of {longest:g} s → {seconds:g} s", setting.with_params(**changed)


def _durations(params: Mapping[str, Scalar]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in params.items()
        if (name == "seconds" or name.endswith("_seconds")) and isinstance(value, int | float)
    }


def _names(workload: Workload, load: Load) -> Sequence[str]:
    found = [*workload.parameters]
    for stand_in in workload.simpler:
        found += load(stand_in.workload).parameters
    own = {ITEMS, STAGES, TASKS, "scale", *_durations({parameter.name: 0 for parameter in found})}
    return tuple(dict.fromkeys(parameter.name for parameter in found if parameter.name not in own))


# ------------------------------------------------------------------ numbers


def _with(name: str) -> Callable[[Setting, int], Setting]:
    return lambda setting, number: setting.with_params(**{name: number})


def _per_thread(setting: Setting) -> int:
    items = setting.number(ITEMS) or 0
    return 0 if items % setting.point.threads else items // setting.point.threads


def _together(setting: Setting) -> int | None:
    return setting.point.workers if _per_thread(setting) else None


def _with_both(setting: Setting, workers: int) -> Setting:
    items = _per_thread(setting) * workers * setting.point.threads_per_worker
    return _with_workers(setting, workers).with_params(**{ITEMS: items})


def _workers_alone(setting: Setting) -> int | None:
    return None if _per_thread(setting) == 1 else setting.point.workers


def _with_workers(setting: Setting, workers: int) -> Setting:
    return replace(setting, point=replace(setting.point, workers=workers))


def _items_alone(setting: Setting) -> int | None:
    return None if _per_thread(setting) == 1 else setting.number(ITEMS)


def _enough(setting: Setting, name: str) -> int:
    threads = setting.point.threads
    return threads if (setting.number(name) or 0) >= threads else 1


def _first_line(text: str) -> str:
    return (text.strip() or "no reason given").splitlines()[0]


def checked(setting: Setting) -> str:
    """Reason why a setting cannot be run; empty if it can."""
    try:
        setting.sweep.plan(setting.workload)
    except InvalidField as error:
        return _first_line(str(error))
    return ""
