"""A command that is stopped says what is kept, wherever the signal arrives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import typer

from scalescope.cli.carrying import interrupted


def stop(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.pause()


def makes_an_error_of_it() -> None:
    try:
        stop(signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("Error calling function: KeyboardInterrupt") from None


@pytest.mark.parametrize(
    ("stopped", "status"),
    [(lambda: stop(signal.SIGINT), 130), (lambda: stop(signal.SIGTERM), 143), (makes_an_error_of_it, 130)],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C that another error hides"],
)
def test_an_interrupted_command_ends_with_the_exit_status_of_its_signal(
    stopped: Callable[[], None], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as ended, interrupted():
        stopped()
    assert ended.value.exit_code == status
    assert "the same command continues" in capsys.readouterr().err
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_errors_other_than_interrupts_are_raised_unchanged() -> None:
    with pytest.raises(RuntimeError, match="of another kind"), interrupted():
        raise RuntimeError("of another kind")


def test_a_command_in_the_background_still_ignores_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
