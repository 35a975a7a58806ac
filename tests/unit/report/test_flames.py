"""The profile of tasks in the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.inside import inside
from support.pages import Page

from scalescope.analysis.measure import measure
from scalescope.report.html import render
from scalescope.report.worker_time import busy_line

HOSTILE = "<img src=x onerror=alert(1)>"
SECONDS = {"load": (0.5, 1.5)}
STACKS = {f"job.py:7 load;{HOSTILE}.f;time.sleep()": 60, "job.py:8 load": 30, "job.py:9 load;a.b": 10}


def reported(recorded_run: Callable[..., Any], told: dict[str, Any], **capture: str) -> Any:
    made = recorded_run((2,))
    (trial,) = made.run.trials
    tables = {**made.tables[trial.key], **told}
    metrics = measure(tables, threads=2, elapsed_s=4.0)
    trial = replace(trial, metrics=metrics, facts={**trial.facts, "capture": capture})
    page = render(replace(made.run, trials=(trial,)), lambda trial: tables)
    return Page(page), page, metrics


@pytest.mark.parametrize("why", ["the time of this cluster is virtual", ""])
def test_a_report_without_profiles_states_the_reason(recorded_run: Callable[..., Any], why: str) -> None:
    page, _, metrics = reported(recorded_run, {}, unprofiled=why)
    assert f"Not known: {why or 'the workers reported nothing'}." in page.words
    assert busy_line(metrics) == ""


def test_the_width_of_a_flame_is_its_share_of_the_samples(recorded_run: Callable[..., Any], golden: Any) -> None:
    page, text, metrics = reported(recorded_run, inside(SECONDS, STACKS))
    bars = {each["title"]: each for each in page.all("span") if "title" in each}
    assert {title.rpartition(", ")[2].split()[0] for title in bars if title} == {"60", "30", "10"}
    assert {"own", "library", "call"} == {each["class"] for each in bars.values()}
    widths = [float(found) for found in re.findall(r"width:([\d.]+)%\" title", text)]
    assert sorted(widths) == [10, 10, 30, 60, 60, 60]
    assert page.all("img") == []  # every name is escaped
    golden(busy_line(metrics))


def test_a_report_with_seconds_but_no_stacks_draws_no_flames(recorded_run: Callable[..., Any]) -> None:
    page, text, _ = reported(recorded_run, inside(SECONDS), unprofiled="the profiler is off")
    assert any("the profiler is off" in words for words in page.words)
    assert 'class="flame"' not in text
