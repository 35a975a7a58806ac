from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from scalescope.model.trial import BLAMED, PASSED_ON, TrialState
from scalescope.report.export import to_json, to_markdown
from scalescope.report.terminal import print_run, render, render_comparison


def golden(text: str) -> str:
    return dedent(text).strip("\n")


def show(run, printed, width: int = 100) -> str:
    return printed(render(run.sweep, run.trials, run.verdict, width=width), width)


def test_a_healthy_sweep(trial, finished, printed):
    run = finished(trial(1, 1, 1), trial(10, 10, 10), workload="futures-map")
    assert show(run, printed) == golden(
        """
        ✓ No fault found: workers are used well at all 2 points (at least 100 % of the worker time busy).

        workers  items  tasks  partitions  workers used  peak tasks  time s  best possible s  efficiency
        ────────────────────────────────────────────────────────────────────────────────────────────────
              1      1      1           1             1           1    1.00             1.00        1.00
             10     10     10          10            10          10    1.00             1.00        1.00
        partitions: tasks of the widest stage; best possible s: max(T1/P, T∞); efficiency: T1 / (P × time)

        Worker time at 1 worker, 1 item: 1.00 thread-seconds
        ████████████████████████████████████████████████████████████████████████████████████████████████████
        █ busy 100 %

        Cluster: simulated, virtual clock. Shows how the real scheduler divides work. Cannot show contention
        between processes.
        """
    )


def test_idle_workers_come_first_with_the_remedy(trial, finished, printed):
    run = finished(
        trial(10, 10, 1, stretch=1.25),
        trial(300, 300, 3),
        trial(300, 300, 3, repeat=1, stretch=1.2, warnings=("memory was sampled twice only",)),
    )
    assert show(run, printed) == golden(
        """
        ✗ 300 workers asked for, 3 used: Apache Beam puts 128 items in a partition, so 300 items are 3
          partitions.
          Fix: pass Beam --dask_npartitions=<number of items> (predicted 1.1 s instead of 110 s).
          https://github.com/apache/beam/pull/33805

        workers  items  tasks  parts  used  peak  time s  best s        efficiency  valid
        ─────────────────────────────────────────────────────────────────────────────────
             10     10      1      1     1     1    12.5    10.0              0.08    1/1
            300    300      3      3     3     3     110     100  0.01 (0.00–0.03)    2/2
        parts: tasks of the widest stage; used: workers used; peak: peak tasks; best s: max(T1/P, T∞);
        efficiency: T1 / (P × time); in brackets: 95 % interval over repeats

        Factors of the efficiency: weak scaling, 1 item per worker
        workers          10    300
        ──────────────────────────
        dependency    !0.10  !0.01
        scheduling     0.80   0.91
        = efficiency  !0.08  !0.01
        !: below 0.8. Factors that are 1.00 at all sizes are left out.

        Worker time at 300 workers, 300 items: 33,000 thread-seconds
        █···································································································
        █ busy 1 %   · no runnable task 99 %   ? runnable, not assigned 0 %

        Quality of the capture
        - memory was sampled twice only

        Cluster: simulated, virtual clock. Shows how the real scheduler divides work. Cannot show contention
        between processes.
        """
    )


def test_it_says_for_what_threads_waited(trial, finished, printed):
    """The mean over repeats, as shares of the worker time; not what is little."""
    first, second = (trial(300, 300, 3, repeat=repeat) for repeat in (0, 1))
    whole = sum(first.metrics.worker_time_s.values())
    first = replace(first, facts={**first.facts, BLAMED: {"the client, sleep at a.py:1 f": 0.3 * whole, "b": whole}})
    second = replace(second, facts={**second.facts, BLAMED: {"b": 0.3 * whole, "[red]c": 0.08 * whole}})
    run = finished(first, second)
    assert "\nLost to: b 65 %; the client, sleep at a.py:1 f 15 %\n" in show(run, printed)
    [point] = to_json(run.sweep, run.trials, run.verdict)["points"]
    assert list(point["blamed"]) == ["b", "the client, sleep at a.py:1 f", "[red]c"]
    assert r"Lost to: b 65 %; the client, sleep at a.py:1 f 15 %." in to_markdown(run.sweep, run.trials, run.verdict)


def test_spoilt_trials_are_shown_with_their_reasons(trial, finished, printed):
    run = finished(
        trial(4, 4, 4),
        trial(4, 4, 4, repeat=1),
        replace(
            trial(8, 8, 8, state=TrialState.FAILED, reason="ValueError: [bold]no[/bold]\n  where: here"),
            facts={"error": {"traceback": 'File "mine.py", line 3, in load\nValueError: [bold]no[/bold]\n'}},
        ),
        trial(8, 8, 8, repeat=1, state=TrialState.INVALID, reason="lost 1 of 8 workers"),
        workload="mine.py:run",
    )
    text = show(run, printed)
    assert text.startswith("! 1 of 4 trials did not count, first at 8 workers, 8 items: lost 1 of 8 workers.\n✗ 1 of 4")
    assert text.count('File "mine.py", line 3, in load\nValueError: [bold]no[/bold]\n') == 1
    assert "  8      8      –      –     –     –       –       –           –    0/2" in text
    excluded = """
        Excluded trials
        - 1 × failed at 8 workers, 8 items: ValueError: [bold]no[/bold]
            where: here
        - 1 × invalid at 8 workers, 8 items: lost 1 of 8 workers
        """
    assert golden(excluded) in text


def test_where_throughput_stops_growing_is_said_in_a_line(trial, finished, printed):
    run = finished(*[trial(n, 300, 60) for n in (10, 20, 50, 60, 100, 200, 300)], workload="mine.py:run")
    text = " ".join(show(run, printed, 400).split())
    assert (
        "Strong scaling, 300 items: Capped at 60 workers: the widest stage has 60 tasks, 60 ran at once on 300 "
        "workers, and 240 were idle. What falls most is dependency: 1.00 on 10 workers, 0.20 on 300 workers." in text
    )


def test_of_several_series_the_factors_of_the_one_that_falls_most_are_shown(trial, finished, printed):
    run = finished(*[trial(n, 300, wide, params={"wide": wide}) for n in (10, 100) for wide in (60, 20, 90)])
    text = show(run, printed)
    assert text.count("Factors of the efficiency") == 1
    assert "Factors of the efficiency: strong scaling, 300 items, wide=20\n" in text


def test_at_most_eight_sizes_have_their_factors_in_the_table(trial, finished, printed):
    run = finished(*[trial(n, 300, 60) for n in range(10, 210, 10)])
    text = show(run, printed)
    head = next(line for line in text.splitlines() if line.startswith("workers         10"))
    assert (len(head.split()) - 1, head.split()[-1]) == (8, "200")
    assert "Shown are 8 of 20 sizes. !: below 0.8" in text
    assert len(to_json(run.sweep, run.trials, run.verdict)["knees"][0]["factors"]) == 20


def test_one_size_has_no_factors(trial, finished, printed):
    assert "Factors" not in show(finished(trial(300, 300, 3)), printed)


def test_what_was_waited_for_because_of_a_delay_is_told_apart(trial, finished, printed):
    made = trial(300, 300, 3)
    whole = sum(made.metrics.worker_time_s.values())
    facts = {BLAMED: {"load": 0.6 * whole, "work": 0.1 * whole}, PASSED_ON: {"load": 0.25 * whole, "work": 1.0}}
    run = finished(replace(made, facts={**made.facts, **facts}))
    assert "\nLost to: load 60 % (35 % direct, 25 % passed on); work 10 %\n" in show(run, printed)
    [point] = to_json(run.sweep, run.trials, run.verdict)["points"]
    assert point["passed_on"] == facts[PASSED_ON]


def test_too_few_points_for_a_knee_name_those_that_are_missing(trial, finished, printed):
    text = show(finished(*[trial(n, 300, 300) for n in (10, 100, 300)]), printed, 400)
    assert (
        "Strong scaling, 300 items: Too few worker counts to fit a curve: 3 measured, at least 5 are needed. "
        "To know more, measure 18 and 32 workers (`refine` set to 2 does)." in text
    )
    assert "knee" not in show(finished(*[trial(n, 300, 300) for n in (10, 100)]), printed)


def test_of_very_many_series_and_points_the_first_are_shown(trial, finished, printed):
    run = finished(*[trial(n, items, items) for n in (10, 100, 300) for items in range(1000, 1010)])
    assert "and 4 more series (--json has all)" in show(run, printed)
    text = show(finished(*[trial(n, n, n) for n in range(1, 1201)]), printed)
    assert "and 1,100 more points (--json has all)" in text
    assert len(text.splitlines()) < 130


def test_nothing_measured(finished, printed):
    assert show(finished(), printed) == golden(
        """
        ✗ Nothing was measured: no trial was run.
          Fix: run the sweep again.

        Cluster: simulated.
        """
    )


def test_a_narrow_terminal_keeps_the_columns_that_matter_whole(trial, finished, printed):
    run = finished(*[trial(w, 3000, 3000, params={"seconds": s}) for w in (100, 300) for s in (0.1, 10.0)])
    text = show(run, printed, 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert "workers  items  seconds  tasks  parts  used  peak  time s  best s  efficiency" in text
    narrow = show(run, printed, 65)
    assert "workers  items  seconds  parts  used  time s  best s  efficiency" in narrow
    wide = show(run, printed, 120)
    assert "seconds  tasks  partitions  workers used  peak tasks  time s  best possible s  efficiency" in wide


def test_two_runs_side_by_side(trial, finished, printed):
    default = finished(trial(10, 10, 1), trial(300, 300, 3), trial(7, 7, 1))
    remedy = finished(*[trial(n, n, n, params={"npartitions": "items"}) for n in (10, 300, 20)])
    table = render_comparison(default, remedy, ("default", "npartitions=items"), width=100)
    assert printed(table) == golden(
        """
        A: default
        B: npartitions=items

        workers  items  A time s  A used  A efficiency  B time s  B used  B efficiency  speed-up
        ────────────────────────────────────────────────────────────────────────────────────────
              7      7      7.00       1          0.14         –       –             –         –
             10     10      10.0       1          0.10      1.00      10          1.00     10.0×
             20     20         –       –             –      1.00      20          1.00         –
            300    300       100       3          0.01      1.00     300          1.00      100×
        """
    )


def test_runs_are_matched_by_what_differs_within_one_of_them(trial, finished, printed):
    left = finished(*[trial(4, 4, 4, params={"seconds": s, "seed": 1}) for s in (1, 2)])
    right = finished(*[trial(4, 4, 2, params={"seconds": s, "seed": 2}) for s in (1, 2)])
    lines = printed(render_comparison(left, right, ("one", "two"), width=100)).splitlines()
    assert lines[3].split()[:3] == ["workers", "items", "seconds"]
    assert [line.split()[2] for line in lines[5:]] == ["1", "2"]
    assert all(line.endswith("0.500×") for line in lines[5:])


def test_an_unfinished_run_gets_a_verdict_on_what_is_known(trial, finished, printed):
    run = replace(finished(trial(1, 1, 1)), verdict=None)
    text = printed(lambda console: print_run(console, run))
    assert text.startswith("This run has not finished: what follows is what is known so far.")
    assert "No fault found" in text
    assert "not finished" not in printed(lambda console: print_run(console, finished(trial(1, 1, 1))))
