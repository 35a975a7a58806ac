"""Delays planted in generated graphs: what threads lost is charged to where the delay began."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import pytest
from support.findings import watched
from support.small_cluster import Cluster, Graph, Task

from scalescope.diagnosis.blame import blame
from scalescope.diagnosis.observation import Observation

GRAPHS = 300
NAMED = 0.95  # share of the graphs in which the origin must be named first
NOISE = 0.3  # standard deviation of the logarithms of durations in a healthy stage
LOST = 0.1  # share of the worker time that a delay must cost, else nothing is to be named
CLIENT = "the client, prepare at mine.py:3 f"


@dataclass(frozen=True)
class Planted:
    observation: Observation
    origin: str  # where the delay is: a prefix, or what the client did
    cost_s: float  # idle thread-seconds that the same graph does not have without it


@pytest.fixture(scope="module")
def planted() -> list[Planted]:
    def idle_s(observation: Observation) -> float:
        return observation.seconds("no_runnable_task", "tail")

    def stages(draw: random.Random, threads: int) -> list[list[Any]]:
        """Tasks by stage: each needs one, some or all of the stage before; often there is a second branch."""
        first, found = 0, []

        def stage(name: str, width: int, link: str = "", before: range = range(0)) -> range:
            nonlocal first
            needs = {
                "each": lambda i: (before[i % len(before)],),
                "some": lambda i: tuple(draw.sample(before, min(len(before), draw.choice([2, 3, 4])))),
                "all": lambda i: tuple(before),
            }
            typical = draw.choice([0.5, 1.0, 2.0])
            seconds = [typical * draw.lognormvariate(0, NOISE) for _ in range(width)]
            found.append([Task(each, name, needs[link](i) if link else ()) for i, each in enumerate(seconds)])
            first += width
            return range(first - width, first)

        deep = draw.randint(2, 5)
        last = stage("s0", draw.choice([threads // 2, threads, 2 * threads]))
        for depth in range(1, deep + 1):
            link = draw.choice(["each", "each", "some", "all"])
            wide = len(last) if link == "each" else draw.choice([threads // 2, threads, threads, 2 * threads])
            last = stage(f"s{depth}", wide, link, last)
        if draw.random() < 0.5:
            last = stage("b0", draw.choice([threads // 4, threads // 2]))
            for depth in range(1, draw.randint(1, deep)):
                last = stage(f"b{depth}", len(last), "each", last)
        return found

    def one(seed: int) -> Planted | None:
        draw = random.Random(seed)
        threads = draw.choice([4, 6, 8, 12, 16])
        made, machine = stages(draw, threads), Cluster(threads, gap_s=0.002, dispatch_s=0.0005)
        tasks = [each for stage in made for each in stage]
        kind = draw.choice(["long", "transfer", "client"])
        if kind == "client":
            wide, more = draw.choice([threads // 2, threads]), []
            more += [Task(draw.uniform(0.5, 2.0), "c0", (), 1) for _ in range(wide)]
            more += [Task(draw.uniform(0.5, 2.0), "c1", (len(tasks) + i,), 1) for i in range(wide)]
            healthy = machine.run([*tasks, *more], [Graph(), Graph()])
            later = draw.uniform(0.3, 1.2) * healthy.measured.makespan
            origin, delayed = CLIENT, machine.run([*tasks, *more], [Graph(), Graph(at=later)])
            rest = delayed.measured.makespan - later
            delayed = watched(delayed, (later, ("mine.py:3 f", "prepare", 0)), (rest, ("mine.py:5 f", "result", 1)))
        else:
            healthy = machine.run(tasks)
            chosen = draw.choice(draw.choice([stage for stage in made[:-1] if len(stage) > 2] or made))
            [late] = [i for i, each in enumerate(tasks) if each is chosen]
            longer = draw.uniform(0.3, 1.5) * healthy.measured.makespan
            origin, given = tasks[late].name, {"seconds": tasks[late].seconds + longer}
            tasks[late] = replace(tasks[late], **(given if kind == "long" else {"transfer": longer}))
            delayed = machine.run(tasks)
        cost_s = idle_s(delayed) - idle_s(healthy)
        plain = cost_s >= max(LOST * threads * delayed.measured.makespan, idle_s(healthy))
        return Planted(delayed, origin, cost_s) if plain else None

    def all_of_them() -> Iterator[Planted]:
        yield from filter(None, map(one, count()))

    return list(islice(all_of_them(), GRAPHS))


def test_the_origin_of_a_planted_delay_is_named_first(planted):
    first = [next(iter(blame(each.observation, 1).lost)) for each in planted]
    named = sum(text == each.origin for text, each in zip(first, planted, strict=True))
    assert named >= NAMED * GRAPHS


def test_the_origin_is_charged_about_what_the_planted_delay_cost(planted):
    ratios = sorted(blame(each.observation, 1).lost.get(each.origin, (0.0, 0.0))[0] / each.cost_s for each in planted)
    assert 0.9 < ratios[GRAPHS // 2] < 1.25
    assert ratios[GRAPHS // 20] > 0.75
