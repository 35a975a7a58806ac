"""The parts of a difference add up, and renamed or fused tasks are matched."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.analysis.difference import (
    Account,
    Difference,
    Overhead,
    PartKind,
    PrefixAccount,
    difference,
    match,
)

SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 1e5))
PREFIXES = st.builds(
    PrefixAccount, st.integers(0, 1_000), SECONDS, SECONDS, st.floats(0, 10), st.sampled_from(("", "f:1 g"))
)
OVERHEADS = st.builds(Overhead, st.sampled_from(PartKind), st.sampled_from(("", "a.py:1 f", "a.py:2 f")), st.booleans())
ACCOUNTS = st.builds(
    Account,
    st.just(1),
    st.dictionaries(st.sampled_from(("load", "clean", "load-clean", "sum")), PREFIXES, min_size=1),
    st.dictionaries(OVERHEADS, SECONDS, max_size=4),
    sent_bytes=st.one_of(st.just(0.0), st.floats(1, 1e9)),
)


def with_threads(accounts: list[Account], threads: int) -> list[Account]:
    return [replace(each, threads=threads) for each in accounts]


def of(**prefixes: PrefixAccount) -> Account:
    return Account(4, {name.replace("_", "-"): each for name, each in prefixes.items()}, {})


def named(found: Difference) -> list[tuple[PartKind, str]]:
    return [(part.kind, part.name) for part in found.named]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ACCOUNTS, min_size=1, max_size=3),
    st.lists(ACCOUNTS, min_size=1, max_size=3),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.booleans(),
)
def test_the_parts_add_up_to_the_whole_difference(
    a: list[Account], b: list[Account], threads: tuple[int, int], other_host: bool
) -> None:
    sides = with_threads(a, threads[0]), with_threads(b, threads[1])
    found = difference(*sides, virtual=True, other_host=other_host)
    for side, seconds, thread_s in zip(
        sides, (found.a_s, found.b_s), (found.a_thread_s, found.b_thread_s), strict=True
    ):
        assert seconds == pytest.approx(sum(each.elapsed_s for each in side) / len(side), abs=1e-6)
        assert thread_s == pytest.approx(sum(each.thread_s for each in side) / len(side), abs=1e-6)
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.b_s - found.a_s, abs=1e-6)
    assert sum(part.thread_s for part in found.parts) == pytest.approx(found.b_thread_s - found.a_thread_s, abs=1e-6)


@pytest.mark.parametrize(
    ("sent_bytes", "blamed"),
    [(2e6, (PartKind.GRAPH_SIZE, "graphs of 1.91 MiB instead of 19.5 KiB")), (9e4, (PartKind.SCHEDULER, "intake"))],
)
def test_longer_graph_intake_is_attributed_to_the_size_of_graphs_only_if_they_are_larger(
    sent_bytes: float, blamed: tuple[PartKind, str]
) -> None:
    tasks, intake = {"load": PrefixAccount(2, 0.1)}, Overhead(PartKind.SCHEDULER, "intake", of_graphs=True)
    sides = [
        Account(2, tasks, {intake: seconds}, sent_bytes=sent) for seconds, sent in ((0.01, 2e4), (1.0, sent_bytes))
    ]
    assert named(difference(sides[:1], sides[1:], virtual=True)) == [blamed]


def test_fused_and_renamed_tasks_are_matched_and_new_tasks_are_listed() -> None:
    a = {
        "load": PrefixAccount(8, 1.0),
        "clean": PrefixAccount(8, 1.0),
        "total": PrefixAccount(3, 1.0, sent_at="a.py:7 f"),
    }
    b = {
        "load-clean": PrefixAccount(8, 2.0),
        "sum": PrefixAccount(3, 1.0, sent_at="a.py:9 f"),
        "new": PrefixAccount(5, 1.0),
    }
    assert {(each.a, each.b, each.how) for each in match(a, b)} == {
        (("load", "clean"), ("load-clean",), "fused"),
        (("total",), ("sum",), "renamed"),
        ((), ("new",), ""),
    }
    assert {(each.a, each.b, each.how) for each in match(b, a)} == {
        (("load-clean",), ("load", "clean"), "fused"),
        (("sum",), ("total",), "renamed"),
        (("new",), (), ""),
    }


def test_fusion_alone_makes_no_difference() -> None:
    a, b = of(load=PrefixAccount(8, 40.0), clean=PrefixAccount(8, 40.0)), of(load_clean=PrefixAccount(8, 80.0))
    assert not difference([a], [b], virtual=True).named


def test_tasks_that_are_all_slower_on_another_host_are_attributed_to_the_machine() -> None:
    a = of(load=PrefixAccount(8, 40.0), clean=PrefixAccount(8, 40.0))
    b = of(load=PrefixAccount(8, 60.0), clean=PrefixAccount(8, 60.0))
    one = of(load=PrefixAccount(8, 60.0), clean=PrefixAccount(8, 40.0))
    assert named(difference([a], [b], virtual=False, other_host=True)) == [(PartKind.MACHINE, "")]
    assert {kind for kind, _ in named(difference([a], [b], virtual=False))} == {PartKind.SLOWER}
    assert named(difference([a], [one], virtual=False, other_host=True)) == [(PartKind.SLOWER, "load")]


@pytest.mark.parametrize(
    ("times", "free", "first"),
    [
        (1.5, 0.4, PartKind.MACHINE),  # others left half as much: all tasks may take twice as long
        (8.0, 0.4, PartKind.SLOWER),
        (1.5, 0.8, PartKind.SLOWER),
        (0.5, 0.4, PartKind.SLOWER),
    ],
)
def test_other_load_of_the_host_explains_at_most_the_cpu_time_that_it_took_away(
    times: float, free: float, first: PartKind
) -> None:
    a, b = (
        replace(of(load=PrefixAccount(8, 40.0 * each), clean=PrefixAccount(8, 30.0 * each)), free=left)
        for each, left in ((1.0, 0.8), (times, free))
    )
    found = difference([a], [b], virtual=False)
    machine = sum(part.seconds for part in found.parts if part.kind is PartKind.MACHINE)
    slower = max(0.0, min(math.log(times), math.log(0.8 / free)))
    assert machine == pytest.approx(slower * found.seconds / math.log(times), abs=1e-9)
    assert named(found)[0][0] is first


def test_slower_tasks_name_the_line_that_takes_longer() -> None:
    a = of(load=PrefixAccount(8, 40.0, frames={"read at a.py:1 f": 30.0, "parse at a.py:2 f": 10.0}))
    b = of(load=PrefixAccount(8, 80.0, frames={"read at a.py:1 f": 30.0, "parse at a.py:2 f": 50.0}))
    [part] = difference([a], [b], virtual=True).named
    assert part.where == "parse at a.py:2 f"


def test_a_part_that_differs_by_chance_is_not_named() -> None:
    trials = [[of(load=PrefixAccount(8, busy)) for busy in side] for side in ((40.0, 50.0, 44.0), (43.0, 52.0, 47.0))]
    found = difference(*trials, virtual=False)
    assert not found.named
    [part] = found.parts
    assert part.low is not None
    assert part.high is not None
    assert part.low < 0 < part.high


def took(*seconds: float, line: str = "job.py:3 main") -> list[Account]:
    """Trials of a thread whose client takes so long at a line."""
    return [Account(1, {"load": PrefixAccount(4, 0.5)}, {Overhead(PartKind.CLIENT, line): each}) for each in seconds]


def test_a_part_with_scattered_times_is_named_if_both_sides_are_far_apart() -> None:
    found = difference(took(2.8, 4.8, 4.1), took(13.3, 14.7, 25.0), virtual=False)
    assert named(found) == [(PartKind.CLIENT, "job.py:3 main")]


def test_three_trials_per_side_that_agree_by_chance_name_no_part() -> None:
    apart = (10.0, 10.01, 10.02), (10.3, 10.31, 10.32)
    assert named(difference(took(*apart[0]), took(*apart[1]), virtual=False)) == []
    more = difference(took(*apart[0], *apart[0]), took(*apart[1], *apart[1]), virtual=False)
    assert named(more) == [(PartKind.CLIENT, "job.py:3 main")]


def test_a_difference_small_enough_for_other_processes_to_cause_is_named_only_on_a_virtual_clock() -> None:
    brief = [Account(1, {"load": PrefixAccount(4, 0.5)}, {Overhead(PartKind.CLIENT): each}) for each in (0.1, 0.14)]
    sides = [brief[0]] * 5, [brief[1]] * 5
    assert named(difference(*sides, virtual=False)) == []
    assert named(difference(*sides, virtual=True)) == [(PartKind.CLIENT, "")]
