from __future__ import annotations

import pytest

from scalescope.diagnosis import words


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0012, "1.2 ms"), (0.9999, "1 s"), (12.34, "12.3 s"), (3600, "3,600 s")]
)
def test_durations_in_words(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(("nbytes", "text"), [(28, "28 B"), (10_000, "10 kB"), (1.5e9, "1.5 GB"), (2e15, "2e+03 TB")])
def test_sizes_in_words(nbytes, text):
    assert words.size(nbytes) == text


def test_long_keys_keep_both_ends():
    assert (
        words.middle_cut("process-8e4756d7-b9cd-4947-a68d-daf792b3c6c9-b9cd-7")
        == "process-8e4756d7-b9cd-4947-a68d…792b3c6c9-b9cd-7"
    )
    assert words.middle_cut("inc-1") == "inc-1"
