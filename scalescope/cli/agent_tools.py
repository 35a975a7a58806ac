"""Tools for coding agents over the Model Context Protocol: each runs one command with `--brief --json`.

Agents and people get the same answers, and a script cannot write into the protocol's streams.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL
from typing import Annotated, Any, Literal

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from scalescope import __version__
from scalescope.model.finding import Finding
from scalescope.model.mapping import from_mapping
from scalescope.report.brief import BriefAnswer
from scalescope.report.run_tables import verdict_of

ALIVE_S = 5.0  # seconds after which a client hears that a command still runs
GRACE_S = 20.0  # seconds that a cancelled command has to clean up
LAST_LINES = 20  # last lines of a command's output that an error quotes
# Starts Scalescope, whatever the working folder is
COMMAND = (sys.executable, "-P", "-c", "from scalescope.cli.main import main; main()")

INSTRUCTIONS = """\
Finds where a program on Dask stops scaling, and why. Begin with diagnose_script on the user's script. Apply the fix
that it names, or let fix_script patch and prove it; then compare_runs. Trust measured seconds more than predicted ones,
and a finding less where `trust` says why."""

RunId = Annotated[str, Field(description="A run: its id, the start of it, `latest`, or `latest~1` for the one before.")]
Script = Annotated[str, Field(description="Path of the Python script.")]
Arguments = Annotated[Sequence[str], Field(description="Arguments of the script.")]
Python = Annotated[str, Field(description="Path of the Python that runs the script; empty: the Python of Scalescope.")]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
EDITS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)

server = MCPServer("scalescope", version=__version__, instructions=INSTRUCTIONS)


@server.tool(annotations=RUNS_CODE)
async def diagnose_script(
    context: Context, script: Script, arguments: Arguments = (), python: Python = ""
) -> BriefAnswer:
    """Runs the user's script unchanged, records its Dask clusters, and says what holds it back: cause, line, fix."""
    return await _answer(context, "run", *(("-e", python) if python else ()), script, *arguments)


@server.tool(annotations=READS)
async def explain_finding(
    context: Context, finding: Annotated[str, Field(description="The id of a finding.")], run: RunId = "latest"
) -> Finding:
    """Gives one finding of a run with all of its evidence, and where each number was read."""
    return from_mapping(Finding, await _run(context, "show", run, "--finding", finding, "--json"))


@server.tool(annotations=READS)
async def compare_runs(context: Context, run_a: RunId = "latest~1", run_b: RunId = "latest") -> BriefAnswer:
    """Says why run B took longer or less long than run A: the difference in parts that add up to all of it."""
    return await _answer(context, "diff", run_a, run_b)


@server.tool(annotations=RUNS_CODE)
async def predict_sizes(
    context: Context,
    workers: Annotated[Sequence[int], Field(description="Numbers of workers to predict.")],
    run: RunId = "latest",
) -> BriefAnswer:
    """Predicts by simulation how long a measured run takes on other numbers of workers, and stores the answer."""
    return await _answer(context, "predict", run, "--workers", ",".join(map(str, workers)))


@server.tool(annotations=RUNS_CODE)
async def check_script(
    context: Context,
    target: Annotated[str, Field(description="A script, or FILE.py:NAME of a collection or function.")],
    arguments: Arguments = (),
    python: Python = "",
) -> BriefAnswer:
    """Says before anything is computed what a script sends to Dask: tasks, bytes, memory, and chunks that are wrong."""
    return await _answer(context, "check", *(("-e", python) if python else ()), target, *arguments)


@server.tool(annotations=RUNS_CODE)
async def size_cluster(
    context: Context,
    run: RunId = "latest",
    cores: Annotated[int, Field(description="Most cores of all workers; 0: this machine's.", ge=0)] = 0,
    deadline: Annotated[str, Field(description="Time in which it must end, as 20m; empty: none.")] = "",
) -> BriefAnswer:
    """Chooses workers, threads and memory for a measured run by simulation, and says what limits the run."""
    asked = [*(["--cores", str(cores)] if cores else []), *(["--deadline", deadline] if deadline else [])]
    return await _answer(context, "size", run, *asked)


@server.tool(annotations=READS)
async def watch_cluster(
    context: Context,
    address: Annotated[str, Field(description="Address of the scheduler, as tcp://HOST:8786.")],
    seconds: Annotated[int, Field(description="How long to watch.", ge=1, le=600)] = 10,
) -> BriefAnswer:
    """Watches a running Dask cluster: who works, why threads idle, where tasks are stuck. Installs nothing."""
    return await _answer(context, "watch", address, "--for", f"{seconds}s")


@server.tool(annotations=EDITS)
async def fix_script(
    context: Context,
    script: Script,
    arguments: Arguments = (),
    python: Python = "",
    files: Annotated[
        Literal["unchanged", "patched"], Field(description="`patched` writes proven patches to the user's files.")
    ] = "unchanged",
) -> dict[str, Any]:
    """Runs the script several times in copies of its folder, patches it, and proves that it is faster and the same."""
    options = [*(["--apply"] if files == "patched" else []), *(["-e", python] if python else [])]
    found = await _run(context, "fix", "--yes", "--json", *options, script, *arguments)
    assert isinstance(found, dict)
    return found


@server.resource("scalescope://report/{run}", mime_type="text/markdown")
def report(run: str) -> str:
    """The whole report of a run."""
    from scalescope.cli.carrying import read_store
    from scalescope.report.export import to_markdown

    with read_store("") as store:
        found = store.run(run)
        return to_markdown(found.sweep, found.trials, verdict_of(found))


async def _answer(context: Context, command: str, *arguments: str) -> BriefAnswer:
    return from_mapping(BriefAnswer, await _run(context, command, "--brief", "--json", *arguments))


async def _run(context: Context, *arguments: str) -> Any:
    """JSON that a command printed; raises `ToolError` with its last lines if it printed none or a script failed."""
    said: deque[str] = deque(maxlen=LAST_LINES)
    async with await anyio.open_process([*COMMAND, *arguments], stdin=DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told: list[str] = []
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_collect, process.stderr, said)
                group.start_soon(_report, context, said)
                await _collect(process.stdout, told)
                await process.wait()
                group.cancel_scope.cancel()
        finally:
            if process.returncode is None:
                with anyio.CancelScope(shield=True):
                    await _end(process)
    found = json.loads("".join(told) or "{}")
    if not found or (process.returncode and not found.get("findings", True)):
        raise ToolError("".join(said) or f"scalescope {arguments[0]} printed nothing")
    return found


async def _collect(stream: ByteReceiveStream, lines: deque[str] | list[str]) -> None:
    async for text in TextReceiveStream(stream, errors="replace"):
        lines.extend(each + "\n" for each in text.splitlines())


async def _report(context: Context, said: deque[str]) -> None:
    """Keep the client informed, so that it does not give up on a long run."""
    seconds = 0.0
    while True:
        await context.report_progress(seconds, message=said[-1].strip() if said else "running")
        await anyio.sleep(ALIVE_S)
        seconds += ALIVE_S


async def _end(process: Process) -> None:
    """Stop a command as Ctrl-C does, so that it leaves nothing behind."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with anyio.move_on_after(GRACE_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
