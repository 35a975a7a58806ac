"""Magics of notebooks.

`%%scalescope` on a cell records it, and shows verdict and picture below it. `%scalescope watch` shows what the client's
cluster does.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from IPython.core.error import UsageError as MagicError
from IPython.display import display

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.partition_calls import noted
from scalescope.errors import ScalescopeError
from scalescope.own_code.diagnose import checked, current_client, observed, say

FILE = "/notebook/cell.py"  # file name of a recorded cell, for names of lines such as `cell.py:3`


COMMAND = (sys.executable, "-c", "from scalescope.cli.main import main; main()")
WATCHED = "10s"  # how long a cluster is watched if the line does not say


def register(shell: Any) -> None:
    """Add the magics to an IPython shell."""

    def scalescope(line: str, cell: str) -> None:
        try:
            _cell(shell, line.strip(), cell)
        except ScalescopeError as error:  # the user needs no traceback through our code
            raise MagicError(f"{error.line}{f' Next: {error.next_step}' if error.next_step else ''}") from None

    shell.register_magic_function(scalescope, "cell", "scalescope")
    shell.register_magic_function(_command, "line", "scalescope")


def _command(line: str) -> None:
    """Run a command and show its output below the cell; `watch` takes the current client's cluster."""
    words = shlex.split(line)
    if words[:1] == ["watch"] and not any("://" in each for each in words):
        words.insert(1, _address())
        words += [] if "--for" in words else ["--for", WATCHED]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        try:
            for each in process.stdout or ():
                print(each, end="")
        except KeyboardInterrupt:
            process.terminate()


def _address() -> str:
    try:
        address = str(current_client().scheduler.address)
    except ScalescopeError as error:
        raise MagicError(f"{error.line} Next: %scalescope watch ADDRESS") from None
    if address.startswith("inproc://"):
        raise MagicError(
            "This cluster exists only in the notebook's own process, so `watch` cannot reach it. "
            "Next: use Client(processes=True), or `%%scalescope` on a cell"
        )
    return address


def _cell(shell: Any, variable: str, cell: str) -> None:
    """Run a cell and show its diagnosis. `variable`: name of the client's variable; empty: Dask's current client."""
    client = shell.user_ns.get(variable) if variable else current_client()
    watch = ClientWatch(SimpleNamespace(__code__=compile("", FILE, "exec")), address=checked(client))  # type: ignore[arg-type]
    compiler, found = shell.compile, None
    usual = compiler.get_code_name
    compiler.get_code_name = lambda *_: FILE  # gives lines of the cell a readable file name
    try:
        with noted(()) as notes, observed(client, "the cell", "block", watch=watch, notes=notes, says=say) as found:
            done = shell.run_cell(f"#\n{cell}")  # the added line replaces the magic's, so that line numbers fit
    finally:
        compiler.get_code_name = usual
    if done.success:
        places = dict.fromkeys(f"{each.place.file}:{each.place.line}" for each in found.findings[:1] if each.place)
        print("\n".join([found.judgement.text, *(f"Look at {each}." for each in places)]))
        display(found)
