"""What was planted between two runs is the first part of their difference, and of equal runs nothing is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.planted_pairs import PAIRS, trials, write_releases

from scalescope.analysis.difference import PartKind
from scalescope.report.run_difference import of_trials

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]


def test_only_planted_differences_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_releases(tmp_path)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("SCALESCOPE_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    wrong, named = [], []
    for name, pair in PAIRS.items():
        sides = [trials(pair, changed, f"{tmp_path}/s.db", i) for i, changed in enumerate((False, False, True))]
        equal, found = (of_trials(sides[0], side, labels=("A", "B")) for side in sides[1:])
        for each in (equal.found, found.found):
            assert sum(part.seconds for part in each.parts) == pytest.approx(each.seconds, abs=1e-6)
            thread_s = each.b_thread_s - each.a_thread_s
            assert sum(part.thread_s for part in each.parts) == pytest.approx(thread_s, abs=1e-6)
        first = "".join(f"{part.kind} {part.name} {part.where}" for part in found.found.named[:1])
        cause = found.culprits[0].name if found.culprits else ""
        if not (first.partition(" ")[0] in pair.kinds.split() and pair.name in first and pair.culprit in cause):
            wrong.append((name, first, cause))
        # other programs of this host may load one of two equal runs, and that is said
        named += [(name, equal.brief)] if {part.kind for part in equal.found.named} - {PartKind.MACHINE} else []
        print(name, first, cause, equal.brief, sep="; ", flush=True)  # with -s, while it runs
    assert len(wrong) <= 0.05 * len(PAIRS), wrong
    assert not named
