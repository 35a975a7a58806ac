from __future__ import annotations

from scalescope.model.decision import Decision
from scalescope.store import Store

MUTED = Decision("bag-map", "it is noisy", until="2027-01-31", history="mine", who="ann")


def test_a_newer_decision_of_the_same_kind_replaces_the_older_one(store: Store) -> None:
    store.decisions.keep(MUTED)
    store.decisions.keep(Decision("bag-map", "more checks", history="mine", who="bob"))
    [muted, accepted] = store.decisions.of("mine")
    assert (muted.until, accepted.until) == ("2027-01-31", "")
    assert muted.created_at
    store.decisions.keep(Decision("bag-map", "still", until="2027-02-28", history="mine", who="ann"))
    assert [each.until for each in store.decisions.of("mine")] == ["", "2027-02-28"]


def test_a_decision_without_a_history_holds_in_all_histories_until_it_is_undone(store: Store) -> None:
    store.decisions.keep(MUTED)
    store.decisions.keep(Decision("local", "a new CPU"))
    assert [each.what for each in store.decisions.of("other")] == ["local"]
    assert store.decisions.undo("bag-map", "other") == 0
    assert store.decisions.undo("bag-map") == 1
    assert [each.what for each in store.decisions.of()] == ["local"]
