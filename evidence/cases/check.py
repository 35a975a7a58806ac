"""All cases are well formed: they can be planned as written and mended, and each kind has enough of them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from declare import HEALTHY, WORDS, Case, all_cases, functions, predictions, scripts

from scalescope.diagnosis.causes import by_code
from scalescope.model.sweep import Sweep
from scalescope.workloads.references import describe

CODES = set(by_code())
NOT_BROUGHT_ABOUT = {"host-overloaded"} | {code for code in CODES if code.startswith("gpu-")}  # they need a card
NO_CAUSE = {"scaled-down", "too-short", HEALTHY, "idle-workers-cause-unknown", "nothing-measured", "experiments"}


def main() -> int:
    cases = all_cases()
    wrong = [f"{case.name}: {problem}" for case in cases for problem in problems(case)]
    wrong += [f"no case is labelled {code}" for code in sorted(without({code for c in cases for code in c.labels}))]
    wrong += [f"no case resembles {code}" for code in sorted(without({code for c in cases for code in c.near}))]
    print("\n".join(wrong))
    kinds = Counter("script" if not case.cluster else case.cluster["kind"] for case in cases)
    print(f"{len(functions())} functions, {len(scripts())} scripts, {len(predictions())} predictions: {dict(kinds)}")
    return int(bool(wrong))


def problems(case: Case) -> Iterator[str]:
    if not case.source or any(word.startswith("/") for word in case.source.split()):
        yield f"its source is {case.source!r}"
    if unknown := {*case.labels, *case.near} - CODES - set(WORDS):
        yield f"no cause is {', '.join(unknown)}"
    if both := {*case.labels} & {*case.near}:
        yield f"{', '.join(both)} is right, and wrong"
    module = sys.modules[case.file.stem]
    for each in (case, case.mended()):
        if not callable(getattr(module, each.title, None)):
            yield f"{each.file} has no {each.title}"
        elif case.cluster:
            sweep = Sweep.from_mapping(each.sweep())
            plan = sweep.plan(describe(sweep.workload, getattr(module, each.title)))
            if len(plan) != len(each.workers):
                yield f"{len(plan)} trials are planned"
    if case not in predictions():
        changed = case.mended() != case.mended().mended() or case.mended().name != case.name
        if bool(case.lever) != (case.expect != HEALTHY):
            yield "only a healthy case has no remedy"
        if case.lever and not (changed or case.mending):
            yield "its remedy changes nothing"


def without(found: set[str]) -> set[str]:
    return CODES - NOT_BROUGHT_ABOUT - NO_CAUSE - {"invalid-trials"} - found
