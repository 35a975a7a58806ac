"""The set is well formed; `tests/benchmarks/outside.py` runs it, which takes minutes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from declare import HEALTHY, WORDS, all_cases, all_scripts

from scalescope.diagnosis.causes import by_code
from scalescope.model.sweep import Sweep
from scalescope.workloads.references import describe

CODES = set(by_code())
NOT_BROUGHT_ABOUT = {"late-workers", "workers-missing", "host-overloaded", "oversubscribed-threads"}
NOT_BROUGHT_ABOUT |= {code for code in CODES if code.startswith("gpu-")}  # they need a card
NO_CAUSE = {"scaled-down", "too-short", HEALTHY, "idle-workers-cause-unknown", "nothing-measured", "experiments"}
PAGE = Path(__file__).parents[2] / "docs" / "outside-set.md"


def test_every_case_can_be_planned_as_written_and_mended() -> None:
    for case in all_cases():
        for each in (case, case.mended()):
            sweep = Sweep.from_mapping(each.sweep())
            file, _, function = sweep.workload.rpartition(":")
            workload = describe(sweep.workload, getattr(sys.modules[Path(file).stem], function))
            assert len(sweep.plan(workload)) == len(each.workers), case.name


def test_every_case_has_a_source_and_labels_that_are_known() -> None:
    for case in (*all_cases(), *all_scripts()):
        assert len(case.source) > 10, case.name
        assert not any(word.startswith("/") for word in case.source.split()), case.name  # a path
        assert {*case.labels, *case.near} <= CODES | set(WORDS), case.name
        assert not set(case.labels) & set(case.near), case.name


def test_every_case_says_what_mends_it_unless_it_is_healthy() -> None:
    for case in all_cases():
        assert bool(case.lever) == (case.expect != HEALTHY), case.name
        assert (case.mended().sweep() != case.sweep()) == bool(case.lever), case.name
    for script in all_scripts():
        assert bool(script.lever) == bool(script.mended_by) == (script.expect != HEALTHY), script.name


def test_there_are_enough_of_each_kind() -> None:
    cases = all_cases()
    assert len(cases) >= 60
    assert {case.cluster["kind"] for case in cases} == {"simulated", "light", "local"}
    assert len(all_scripts()) >= 30
    right = Counter(label for case in (*cases, *all_scripts()) for label in case.labels)
    near = Counter(code for case in (*cases, *all_scripts()) for code in case.near)
    wanted = CODES - NOT_BROUGHT_ABOUT - NO_CAUSE
    assert {code: right[code] for code in wanted if right[code] < 2} == {}
    assert {code: near[code] for code in wanted - {"invalid-trials"} if near[code] < 2} == {}


def test_the_page_has_every_case() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [case.name for case in all_cases() if f"| `{case.name.partition('/')[2]}` |" not in page] == []
