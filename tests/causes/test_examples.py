"""The code on the page of causes: each example has its cause, and its fixed version does not."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import matrix
import pytest
from cases import Case

FILE = Path(__file__).parents[2] / "docs" / "cause_examples.py"
NAMES = re.findall(r"^def (\w+)\(client\b", FILE.read_text(encoding="utf-8"), re.M)
MENDED = "_mended"


def code_of(name: str) -> str:
    return name.removesuffix(MENDED).replace("_", "-")


def case_of(name: str, function: object) -> Case:
    cluster = getattr(function, "cluster", {"kind": "simulated"})
    workers, threads = getattr(function, "workers", (16,)), getattr(function, "threads", 1)
    return Case(name, code_of(name), f"{FILE}:{name}", workers, threads, cluster=cluster)


CASES = [case_of(name, function) for name, function in runpy.run_path(str(FILE)).items() if name in NAMES]
SIMULATED = [case for case in CASES if not case.real]
CODES_OF_EXAMPLES = {case.expect for case in SIMULATED}


def wrong(cases: list[Case]) -> Mapping[str, tuple[str, ...]]:
    """Codes found, worst first, of each example that lacks its cause, and of each fixed one that has it."""
    results = matrix.run(cases)
    return {
        result.case.name: result.codes
        for result in results
        if (result.case.expect in result.codes if MENDED in result.case.name else not result.right)
    }


@pytest.mark.thorough
def test_each_simulated_example_has_its_cause_before_the_fix_and_not_after_it() -> None:
    assert len(SIMULATED) >= 44
    assert {name + MENDED for name in NAMES if MENDED not in name} == {name for name in NAMES if MENDED in name}
    assert wrong(SIMULATED) == {}


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_each_real_example_has_its_cause_before_the_fix_and_not_after_it() -> None:
    assert wrong([case for case in CASES if case.real]) == {}
