from __future__ import annotations

import pytest

from scalescope.model.finding import Finding, Place, Severity


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("my_job.py:14 in run", Place("my_job.py", 14, "run")),
        ("my_job.py:14 run", Place("my_job.py", 14, "run")),
        ("my_job.py:14 in <module>", Place("my_job.py", 14, "<module>")),
        ("my_job.py:14", Place("my_job.py", 14)),
        ("the 3 jobs of cell 4.py:7", Place("the 3 jobs of cell 4.py", 7)),
        ("", None),
        ("my_job.py", None),
        ("the client", None),
    ],
)
def test_a_place_is_parsed_from_its_text_in_records(text: str, place: Place | None) -> None:
    assert Place.of(text) == place


def test_a_finding_stored_without_a_place_is_read_without_one() -> None:
    finding = Finding("client-busy", Severity.LOW, "It works.", "", place=Place("a.py", 3, "f", "x"))
    stored = finding.to_mapping()
    assert Finding.from_mapping(stored) == finding
    del stored["place"]
    assert Finding.from_mapping(stored).place is None
