"""The first part of a difference is the planted one, the parts add up, and equal runs have none."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from support.findings import watched

from scalescope.analysis.culprits import culprits, differing, other_host
from scalescope.analysis.difference import Account, Difference, PartKind, difference
from scalescope.diagnosis.account import account
from scalescope.diagnosis.observation import Observation
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState

Build = Callable[[Any, Any, Any, random.Random], Observation]  # of a cluster, a task and a graph


def bag(
    count: int = 40,
    seconds: float = 1.0,
    *,
    workers: int = 4,
    threads: int = 1,
    name: str = "load",
    after: tuple[tuple[str, int, float], ...] = (("clean", 40, 0.5), ("summarise", 1, 3.0)),
    client: Sequence[tuple[str, float]] = (("job.py:3 main", 1.0),),
    fetch: float = 0.05,
    gather: float = 0.05,
    **given: Any,
) -> Build:
    """Tasks, then stages that need all of them; each task varies by 2 %."""

    def build(cluster: Any, task: Any, graph: Any, chance: random.Random) -> Observation:
        def one(base: float, name: str, needs: tuple[int, ...] = (), fetches: float = 0.0) -> Any:
            return task(base * chance.uniform(0.98, 1.02), name, needs, transfer=fetches)

        tasks = [one(seconds, name, fetches=fetch) for _ in range(count)]
        last = tuple(range(count))
        for stage, number, base in after:
            begin = len(tasks)
            tasks += [one(base, stage, last, fetch if number > 1 else gather) for _ in range(number)]
            last = tuple(range(begin, len(tasks)))
        ran = cluster(workers, threads, gap_s=0.001, **given).run(tasks, [graph(seconds=0.01)])
        rows = [(each, (line, "compute" if line.endswith("send") else "", 0)) for line, each in client]
        own = sum(each for each, _ in rows)
        return watched(ran, *rows, (ran.measured.makespan, ("job.py:9 main", "gather", 1)), begin=-own)

    return build


BASE = bag()
STAGES = (("clean", 40, 0.5), ("summarise", 1, 3.0))
# what changed: how B is built, the first part, and its name
PLANTED: Mapping[str, tuple[Build, PartKind, str]] = {
    "twice the tasks": (bag(80), PartKind.GRAPH, "load"),
    "half the tasks": (bag(20), PartKind.GRAPH, "load"),
    "a few more tasks": (bag(48), PartKind.GRAPH, "load"),
    "more tasks of a later stage": (bag(after=(("clean", 80, 0.5), STAGES[1])), PartKind.GRAPH, "clean"),
    "a new stage": (bag(after=(STAGES[0], ("rechunk", 40, 0.4), STAGES[1])), PartKind.GRAPH, "rechunk"),
    "a stage gone": (bag(after=(STAGES[1],)), PartKind.GRAPH, "clean"),
    "a serial chain is new": (bag(after=(*STAGES, ("write", 1, 6.0))), PartKind.GRAPH, "write"),
    "slower tasks": (bag(seconds=1.5), PartKind.SLOWER, "load"),
    "slightly slower tasks": (bag(seconds=1.2), PartKind.SLOWER, "load"),
    "faster tasks": (bag(seconds=0.5), PartKind.SLOWER, "load"),
    "slower later tasks": (bag(after=(("clean", 40, 1.0), STAGES[1])), PartKind.SLOWER, "clean"),
    "a slower serial task": (bag(after=(STAGES[0], ("summarise", 1, 9.0))), PartKind.SLOWER, "summarise"),
    "many small tasks": (bag(400, 0.12), PartKind.CHUNKS, "load"),
    "few large tasks": (bag(5, 8.0), PartKind.CHUNKS, "load"),
    "more transfer": (bag(fetch=0.5), PartKind.TRANSFER, ""),
    "less transfer": (bag(fetch=0.0), PartKind.TRANSFER, ""),
    "threads wait while one task fetches": (bag(gather=8.0), PartKind.TRANSFER, ""),
    "a slower client": (bag(client=[("job.py:3 main", 5.0)]), PartKind.CLIENT, "job.py:3 main"),
    "a line of the client is new": (
        bag(client=[("job.py:3 main", 1.0), ("job.py:5 check", 4.0)]),
        PartKind.CLIENT,
        "job.py:5 check",
    ),
    "a line of the client moved, and is slower": (
        bag(client=[("job.py:7 main", 6.0)]),
        PartKind.CLIENT,
        "job.py:3 main",
    ),
    "fewer workers": (bag(workers=2), PartKind.THREADS, ""),
    "more workers": (bag(workers=10), PartKind.THREADS, ""),
    "fewer threads of each worker": (bag(workers=1, threads=2), PartKind.THREADS, ""),
    "another name, and slower": (bag(name="read", seconds=1.5), PartKind.SLOWER, "read"),
    "a slow worker": (bag(slower={2: 3.0}), PartKind.SLOWER, "load"),
    "late workers": (bag(joined={2: 20.0, 3: 20.0}), PartKind.START_UP, ""),
    "a slow scheduler": (bag(dispatch_s=0.5), PartKind.PLACEMENT, ""),
}


def accounts(build: Build, seed: int, cluster: Any, task: Any, graph: Any, trials: int = 3) -> list[Account]:
    return [account(build(cluster, task, graph, random.Random(f"{seed} {i}"))) for i in range(trials)]


@cache
def before(cluster: Any, task: Any, graph: Any) -> list[Account]:
    return accounts(BASE, 0, cluster, task, graph)


def is_whole(found: Difference) -> bool:
    """Whether the parts add up to both differences."""
    seconds, thread_s = (sum(getattr(part, name) for part in found.parts) for name in ("seconds", "thread_s"))
    return (seconds, thread_s) == pytest.approx((found.b_s - found.a_s, found.b_thread_s - found.a_thread_s), abs=1e-6)


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_difference_is_the_first_named_part(what: str, cluster: Any, task: Any, graph: Any) -> None:
    build, kind, name = PLANTED[what]
    a, b = before(cluster, task, graph), accounts(build, 1, cluster, task, graph)
    found = difference(a, b, virtual=False)
    assert is_whole(found)
    assert (found.named[0].kind, found.named[0].name) == (kind, name)
    low, high = found.named[0].low, found.named[0].high
    assert low is not None
    assert high is not None
    assert low <= found.named[0].seconds <= high
    assert is_whole(difference(a[:1], b[:1], virtual=False))


@pytest.mark.parametrize("seed", range(10))
def test_no_part_is_named_for_two_equal_runs(seed: int, cluster: Any, task: Any, graph: Any) -> None:
    a, b = (accounts(BASE, 100 + 2 * seed + side, cluster, task, graph) for side in (0, 1))
    found = difference(a, b, virtual=False)
    assert is_whole(found)
    assert found.parts
    assert not found.named


def test_the_account_of_a_trial_covers_its_whole_call(cluster: Any, task: Any, graph: Any) -> None:
    ran = BASE(cluster, task, graph, random.Random(1))
    assert account(ran).elapsed_s == pytest.approx(ran.measured.elapsed, abs=1e-6)
    assert account(ran).prefixes["load"].sent_at == "job.py:9 main"


def test_of_two_differences_the_one_that_can_explain_the_slower_part_comes_first(
    cluster: Any, task: Any, graph: Any
) -> None:
    a, b = (accounts(each, 0, cluster, task, graph, 1) for each in (BASE, bag(fetch=0.5)))
    parts = difference(a, b, virtual=True).parts
    packages = {"numpy": "1", "dask": "1"}
    setting = {"distributed.comm.compression": "lz4"}
    left = Trial("a", Point(4), 0, False, TrialState.VALID, facts={"packages": packages})
    right = replace(left, point=Point(4, dask_config=setting), facts={"packages": {**packages, "numpy": "2"}})
    found = culprits(differing(left, right), parts)
    assert [(each.kind, each.name) for each in found] == [
        ("setting", "distributed.comm.compression"),
        ("package", "numpy"),
    ]
    assert (found[1].a, found[1].b) == ("1", "2")
    assert not culprits(differing(left, left), parts)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"variables": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS"),
        ({"variables": {"OMP_NUM_THREADS": "1"}, "packages": {"numpy": "2", "dask": "1"}}, "OMP_NUM_THREADS"),
        ({"dask_config": {"array.chunk-size": "1MiB"}, "variables": {"TMPDIR": "/tmp"}}, "array.chunk-size"),
        ({"code": "1"}, "the user's code"),
    ],
)
def test_slower_tasks_are_explained_first_by_the_setting_or_code_that_affects_tasks(
    facts: dict[str, Any], name: str, cluster: Any, task: Any, graph: Any
) -> None:
    a, b = (accounts(each, 0, cluster, task, graph, 1) for each in (BASE, bag(seconds=3.0)))
    left = Trial("a", Point(4), 0, False, TrialState.VALID, facts={"packages": {"numpy": "1", "dask": "1"}})
    right = replace(left, facts={**left.facts, **facts})
    assert culprits(differing(left, right), difference(a, b, virtual=True).parts)[0].name == name


@pytest.mark.parametrize("fact", [{"cpu_model": "Slow"}, {"usable_cpus": 1}, {"hostname": "b"}])
def test_tasks_that_are_all_slower_on_another_machine_are_explained_by_what_differs_about_it(
    fact: dict[str, Any], cluster: Any, task: Any, graph: Any
) -> None:
    slow = bag(seconds=1.6, after=(("clean", 40, 0.8), ("summarise", 1, 4.8)))
    a, b = (accounts(each, 0, cluster, task, graph) for each in (BASE, slow))
    host = {"cpu_model": "Fast", "usable_cpus": 4, "hostname": "a", "load": {"others": 0.1, "cpus": 4}}
    left = Trial("a", Point(4), 0, False, TrialState.VALID, facts={"host": host})
    facts = differing(left, replace(left, facts={"host": {**host, **fact}}))
    found = difference(a, b, virtual=False, other_host=other_host(facts))
    assert found.named[0].kind is PartKind.MACHINE
    assert [each.name for each in culprits(facts, found.parts)] == [*fact]


@pytest.mark.parametrize(
    ("others", "waited", "free"),
    [(0.5, 0.75, 0.5), (0.5, 0.0, 1.0), (0.0, 0.75, 1.0)],  # the second sleep, the third wait for their own threads
)
def test_other_load_counts_only_as_far_as_tasks_waited_for_a_core(
    others: float, waited: float, free: float, cluster: Any, task: Any, graph: Any
) -> None:
    ran = BASE(cluster, task, graph, random.Random(1))
    load = {"ours": 0.5, "own": 0.0, "others": others, "stolen": 0.0, "idle": 0.0, "cpus": 4, "seconds": 1.0}
    busy = {"computing": 10 * (1 - waited), "for_core": 10 * waited, "waiting": 0.0, "unknown": 0.0}
    metrics = replace(ran.metrics, busy_time_s=busy)
    trial = replace(ran.trial, metrics=metrics, facts={"host": {"hostname": "h", "load": load}})
    assert account(Observation.of(trial, ran.tables)).free == pytest.approx(free)
    assert account(Observation.of(replace(trial, facts={}), ran.tables)).free is None


@pytest.mark.parametrize(("share", "told"), [(0.15, []), (0.5, ["1.6"])])
def test_a_difference_in_load_is_reported_in_cores_and_is_not_taken_for_another_machine(
    share: float, told: list[str]
) -> None:
    left, right = (
        Trial(
            *("a", Point(4), 0, False, TrialState.VALID),
            facts={"host": {"load": {"others": each, "stolen": 0.0, "cpus": 4}}},
        )
        for each in (0.1, share)
    )
    facts = differing(left, right)
    assert not other_host(facts)
    assert [f"{float(each.b) - float(each.a):.1f}" for each in facts] == told


def test_small_differences_of_decimal_settings_are_reported() -> None:
    name = "distributed.worker.memory.target"
    left = Trial("a", Point(4, 1, {"load_s": 1.0}, dask_config={name: 0.6}), 0, False, TrialState.VALID)
    right = replace(left, point=Point(4, 1, {"load_s": 1.1}, dask_config={name: 0.7}))
    assert {each.name for each in differing(left, right)} == {"load_s", name}


def test_environments_that_differ_are_reported_by_their_packages_if_these_are_known() -> None:
    sides = [
        Trial(
            *("a", Point(4, environment=f"dask=={version}"), 0, False, TrialState.VALID),
            facts={"packages": {"dask": version, "toolz": "1"}},
        )
        for version in ("1", "2")
    ]
    assert [(each.kind, each.name) for each in differing(*sides)] == [("package", "dask")]
    same = [replace(side, facts={}) for side in sides]
    assert [(each.kind, each.name) for each in differing(*same)] == [("point", "environment")]
