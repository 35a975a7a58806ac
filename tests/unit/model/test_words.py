"""Numbers as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.errors import ScalescopeError, told
from scalescope.model import words
from scalescope.model.words import number, shortened


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (3843.2, 3, "3,843"), (999.7, 3, "1,000"), (12.84, 3, "12.8"), (0.2024, 3, "0.202"),
        (0.0000123, 3, "0.0000123"), (0, 3, "0"), (-1234.5, 3, "-1,234"), (120, 2, "120"), (9.96, 2, "10"), (4, 3, "4"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_and_get_thousands_separators(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


@given(st.floats(1e-9, 1e12), st.integers(1, 6))
def test_numbers_keep_their_significant_digits_and_have_no_exponent(value: float, digits: int) -> None:
    text = number(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits))


def test_shortening_a_long_error_cuts_its_log_and_keeps_its_next_step() -> None:
    log = "".join(f"\n    | line {number}" for number in range(200))
    text = f"it broke\n  cause: no memory; the end of x.err:{log}\n  next: raise cluster.memory_mb"
    found = shortened(text, 300)
    assert found.splitlines()[:3] == [*text.splitlines()[:2], "    | ..."]
    assert found.splitlines()[-2:] == text.splitlines()[-2:]
    assert 250 < len(found) <= 300
    assert shortened(text, 10_000) == text
    assert len(shortened("x" * 1000, 100)) <= 100
    assert shortened(f"{'x' * 1000}\n  next: stop", 100).endswith("x…\n  next: stop")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0012, "1.2 ms"), (0.9999, "1 s"), (12.34, "12.3 s"), (3600, "3,600 s")]
)
def test_durations_are_written_in_milliseconds_or_seconds(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1010, "1,010 B"), (1536, "1.5 KiB"), (2.5 * 2**30, "2.5 GiB"), (2e15, "1,819 TiB")],
)
def test_sizes_are_written_in_bytes_with_binary_prefixes(nbytes: float, text: str) -> None:
    assert words.size(nbytes) == text


def test_long_keys_are_cut_in_the_middle() -> None:
    assert (
        words.middle_cut("process-8e4756d7-b9cd-4947-a68d-daf792b3c6c9-b9cd-7")
        == "process-8e4756d7-b9cd-4947-a68d…792b3c6c9-b9cd-7"
    )
    assert words.middle_cut("inc-1") == "inc-1"


def test_only_the_last_line_of_a_log_quoted_in_an_error_is_kept() -> None:
    error = ScalescopeError(
        "what", cause="its end; the end of its log:\n    | started\n    | OSError: -3", next_step="go"
    )
    assert told(f"before\n{error}") == {"cause": "its end; the end of its log: OSError: -3", "next": "go"}
    assert told(str(ScalescopeError("what", where="here", cause="it ended"))) == {"where": "here", "cause": "it ended"}
