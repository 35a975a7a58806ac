from __future__ import annotations

from dataclasses import replace

import pytest

from scalescope.model.trial import BLAMED, PASSED_ON, TrialState
from scalescope.report.export import to_json, to_markdown
from scalescope.report.terminal import print_run, render, render_comparison


def show(run, printed, width: int = 100) -> str:
    return printed(render(run.sweep, run.trials, run.verdict, width=width), width)


def scaled(trial, *workers, widest=60):
    """The same items on more and more workers, of which at most `widest` have something to do."""
    return [trial(n, 300, widest) for n in workers]


# A run by name: its trials, and the workload
RUNS = {
    "healthy": (lambda trial: [trial(1, 1, 1), trial(10, 10, 10)], "futures-map"),
    "idle workers, with the remedy": (
        lambda trial: [
            trial(10, 10, 1, stretch=1.25),
            trial(300, 300, 3),
            trial(300, 300, 3, repeat=1, stretch=1.2, warnings=("memory was sampled twice only",)),
        ],
        "beam-pardo",
    ),
    "spoilt trials": (
        lambda trial: [
            trial(4, 4, 4),
            trial(4, 4, 4, repeat=1),
            replace(
                trial(8, 8, 8, state=TrialState.FAILED, reason="ValueError: [bold]no[/bold]\n  where: here"),
                facts={"error": {"traceback": 'File "mine.py", line 3, in load\nValueError: [bold]no[/bold]\n'}},
            ),
            trial(8, 8, 8, repeat=1, state=TrialState.INVALID, reason="lost 1 of 8 workers"),
        ],
        "mine.py:run",
    ),
    "a knee": (lambda trial: scaled(trial, 10, 20, 50, 60, 100, 200, 300), "mine.py:run"),
    "too few points for a knee": (lambda trial: scaled(trial, 10, 100, 300, widest=300), "beam-pardo"),
    "two points": (lambda trial: scaled(trial, 10, 100, widest=300), "beam-pardo"),
    "factors of the series that falls most": (
        lambda trial: [trial(n, 300, wide, params={"wide": wide}) for n in (10, 100) for wide in (60, 20, 90)],
        "beam-pardo",
    ),
    "at most eight sizes in the table of factors": (lambda trial: scaled(trial, *range(10, 210, 10)), "beam-pardo"),
    "one size has no factors": (lambda trial: [trial(300, 300, 3)], "beam-pardo"),
    "the first of many series": (
        lambda trial: [trial(n, items, items) for n in (10, 100, 300) for items in range(1000, 1010)],
        "beam-pardo",
    ),
    "nothing measured": (lambda trial: [], "beam-pardo"),
}


@pytest.mark.parametrize("case", RUNS)
def test_the_report_of_a_run_on_the_terminal_matches_its_golden_page(trial, finished, printed, golden, case):
    trials, workload = RUNS[case]
    golden(show(finished(*trials(trial), workload=workload), printed))


def test_json_has_the_efficiency_factors_of_all_sizes(trial, finished):
    run = finished(*scaled(trial, *range(10, 210, 10)))
    assert len(to_json(run.sweep, run.trials, run.verdict)["knees"][0]["factors"]) == 20


def test_only_the_first_of_many_points_are_shown_and_the_rest_counted(trial, finished, printed):
    text = show(finished(*[trial(n, n, n) for n in range(1, 1201)]), printed)
    assert "points not shown: 1,100" in text
    assert len(text.splitlines()) < 130


def lost_to(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("Lost to: "))


def test_waiting_time_per_blamed_task_is_the_mean_over_repeats(trial, finished, printed, golden):
    first, second = (trial(300, 300, 3, repeat=repeat) for repeat in (0, 1))
    whole = sum(first.metrics.worker_time_s.values())
    first = replace(first, facts={**first.facts, BLAMED: {"the client, sleep at a.py:1 f": 0.3 * whole, "b": whole}})
    second = replace(second, facts={**second.facts, BLAMED: {"b": 0.3 * whole, "[red]c": 0.08 * whole}})
    run = finished(first, second)
    line = golden(lost_to(show(run, printed)))
    [point] = to_json(run.sweep, run.trials, run.verdict)["points"]
    assert list(point["blamed"])[0::2] == ["b", "[red]c"]
    assert f"{line}." in to_markdown(run.sweep, run.trials, run.verdict)


def test_waiting_that_was_passed_on_by_a_delay_is_shown_separately(trial, finished, printed, golden):
    made = trial(300, 300, 3)
    whole = sum(made.metrics.worker_time_s.values())
    facts = {BLAMED: {"load": 0.6 * whole, "work": 0.1 * whole}, PASSED_ON: {"load": 0.25 * whole, "work": 1.0}}
    run = finished(replace(made, facts={**made.facts, **facts}))
    golden(lost_to(show(run, printed)))
    [point] = to_json(run.sweep, run.trials, run.verdict)["points"]
    assert point["passed_on"] == facts[PASSED_ON]


def test_a_narrow_terminal_drops_columns_instead_of_cutting_them(trial, finished, printed, golden):
    run = finished(*[trial(w, 3000, 3000, params={"seconds": s}) for w in (100, 300) for s in (0.1, 10.0)])
    texts = {width: show(run, printed, width) for width in (65, 80, 120)}
    golden(*(next(line for line in text.splitlines() if line.startswith("workers")) for text in texts.values()))
    assert all(len(line) <= 80 for line in texts[80].splitlines())
    assert "…" not in texts[80]


def test_two_runs_are_compared_side_by_side(trial, finished, printed, golden):
    default = finished(trial(10, 10, 1), trial(300, 300, 3), trial(7, 7, 1))
    remedy = finished(*[trial(n, n, n, params={"npartitions": "items"}) for n in (10, 300, 20)])
    golden(printed(render_comparison(default, remedy, ("default", "npartitions=items"), width=100)))


def test_points_of_two_runs_are_matched_by_parameters_that_vary_within_a_run(trial, finished, printed):
    left = finished(*[trial(4, 4, 4, params={"seconds": s, "seed": 1}) for s in (1, 2)])
    right = finished(*[trial(4, 4, 2, params={"seconds": s, "seed": 2}) for s in (1, 2)])
    lines = printed(render_comparison(left, right, ("one", "two"), width=100)).splitlines()
    assert lines[3].split()[:3] == ["workers", "items", "seconds"]
    assert [line.split()[2] for line in lines[5:]] == ["1", "2"]
    assert all(line.endswith("0.500×") for line in lines[5:])


def test_an_unfinished_run_gets_a_verdict_on_its_finished_trials(trial, finished, printed):
    whole, cut = finished(trial(1, 1, 1)), replace(finished(trial(1, 1, 1)), verdict=None)
    said, usual = (printed(lambda console, run=run: print_run(console, run)) for run in (cut, whole))
    assert said.endswith(usual)
    assert "not finished" in said.removesuffix(usual)
