"""Studies in the store, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from scalescope.errors import StoreError, UsageError
from scalescope.model.sweep import Sweep
from scalescope.store import Store
from scalescope.store.studies import is_study

QUESTION: dict[str, Any] = {"workload": "bag-map", "low": 50, "high": 400, "values": {"workers": 300}}


def begin(store: Store, sweep: Sweep, **given: Any) -> str:
    return store.begin(sweep, (), workload_version=1, **given).id


def test_a_new_study_has_no_answer(store: Store) -> None:
    study = store.studies.begin("threshold", QUESTION, follows="20260101-000000-abcdef")
    assert study.id.startswith("threshold-")
    assert (study.question, study.follows) == (QUESTION, "20260101-000000-abcdef")
    assert (study.line, study.result, study.alarm, study.finished_at, study.runs) == ("", {}, False, "", ())
    assert study.created_at.endswith("+00:00")
    assert store.studies.get(study.id) == study


def test_the_answer_of_a_finished_study_is_stored(store: Store) -> None:
    study = store.studies.begin("comparison", QUESTION)
    result = {"ratio": 1.1, "q": None, "ü": ["→"]}
    store.studies.finish(study.id, "B is slower.", result, alarm=True)
    done = store.studies.get(study.id)
    assert (done.line, done.alarm, done.result) == ("B is slower.", True, result)
    assert done.finished_at >= done.created_at


def test_a_study_with_the_same_question_is_continued_until_it_is_finished(store: Store) -> None:
    first = store.studies.begin("threshold", QUESTION)
    assert store.studies.begin("threshold", dict(reversed(QUESTION.items()))) == first
    assert store.studies.begin("threshold", {**QUESTION, "low": 51}).id != first.id
    assert store.studies.begin("release", QUESTION).id != first.id
    fresh = store.studies.begin("threshold", QUESTION, fresh=True)
    assert first.id != fresh.id == store.studies.begin("threshold", QUESTION).id
    store.studies.finish(fresh.id, "Found.", {}, alarm=False)
    assert store.studies.begin("threshold", QUESTION).id not in (first.id, fresh.id)


def test_runs_of_a_study_are_listed_with_it_and_are_not_the_latest_run(store: Store, sweep: Sweep) -> None:
    own = begin(store, sweep)
    study = store.studies.begin("threshold", QUESTION)
    runs = [begin(store, sweep, study=study.id, fresh=True) for _ in range(2)]
    assert store.studies.get(study.id).runs == tuple(sorted(runs, key=lambda each: store.run(each).created_at))
    assert store.run(runs[0]).study == study.id
    assert store.run("latest").id == own
    assert {run.id for run in store.runs()} == {own, *runs}
    assert [run.id for run in store.runs(own=True)] == [own]


def test_latest_is_refused_with_a_hint_if_all_runs_belong_to_studies(store: Store, sweep: Sweep) -> None:
    run = begin(store, sweep, study=store.studies.begin("threshold", QUESTION).id)
    with pytest.raises(UsageError) as raised:
        store.run("latest")
    assert "show list" in raised.value.next_step
    assert run in raised.value.next_step


def test_a_run_of_a_study_is_resumed_only_in_that_study(store: Store, sweep: Sweep) -> None:
    one, other = (store.studies.begin("threshold", {**QUESTION, "low": low}) for low in (1, 2))
    run = begin(store, sweep, study=one.id)
    store.finish(run, "stopped")
    assert begin(store, sweep, study=other.id) != run
    assert begin(store, sweep) != run
    assert begin(store, sweep, study=one.id) == run


def test_studies_that_follow_a_run_or_a_study_are_found(store: Store, sweep: Sweep) -> None:
    run = begin(store, sweep)
    first = store.studies.begin("threshold", QUESTION, follows=run)
    second = store.studies.begin("release", QUESTION, follows=run)
    third = store.studies.begin("comparison", QUESTION, follows=first.id)
    assert store.studies.following(run) == (first.id, second.id)
    assert store.studies.get(first.id).followed_by == (third.id,)
    assert store.studies.following(third.id) == ()


def test_studies_are_found_newest_first_by_kind_and_by_the_beginning_of_an_id(store: Store) -> None:
    ids = [store.studies.begin("threshold", {**QUESTION, "low": low}).id for low in range(4)]
    assert [study.id for study in store.studies.newest()] == ids[::-1]
    assert [study.id for study in store.studies.newest(limit=2)] == ids[:1:-1]
    assert store.studies.get(ids[0][:-1]).id == ids[0]
    assert store.studies.get("threshold").id == ids[3]


# ------------------------------------------------------------------ what breaks


def test_an_ambiguous_beginning_of_a_study_id_is_refused(store: Store) -> None:
    ids = [store.studies.begin("threshold", {**QUESTION, "low": low}).id for low in (1, 2)]
    with pytest.raises(UsageError, match=r"Several .* 'threshold-'") as caught:
        store.studies.get("threshold-")
    assert all(each in str(caught.value) for each in ids)


@pytest.mark.parametrize("reference", ["release", "threshold-19990101", "threshold-%", "threshold_"])
def test_an_unknown_study_id_is_refused(store: Store, reference: str) -> None:
    store.studies.begin("threshold", QUESTION)
    with pytest.raises(UsageError, match="There is no study"):
        store.studies.get(reference)


def test_finishing_an_unknown_study_raises_store_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no study 'threshold-x'"):
        store.studies.finish("threshold-x", "Found.", {}, alarm=False)


def test_is_study_tells_ids_of_studies_from_ids_of_runs() -> None:
    assert all(map(is_study, ("threshold", "release-2026", "comparison-20260101-000000-abcdef")))
    assert not any(map(is_study, ("20260101-000000-abcdef", "latest", "")))
