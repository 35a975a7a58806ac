"""The tools for coding agents, asked over stdio by the SDK's own client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest

pytest.importorskip("mcp")
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from scalescope.report.brief import MOST

SCRIPT = """\
import time
from dask.distributed import Client

def score(part):
    time.sleep(0.1)
    return part

def planned():
    import dask
    return dask.delayed(score)(1)

if __name__ == "__main__":
    print("on the script's standard output")
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        print(sum(client.submit(score, part).result() for part in range(20)))
"""
READ_ONLY = {"explain_finding", "compare_runs", "watch_cluster"}


@pytest.fixture
def server(tmp_path: Path) -> StdioServerParameters:
    (tmp_path / "score.py").write_text(dedent(SCRIPT))
    environ = {"SCALESCOPE_STORE": str(tmp_path / "results.db"), "HOME": str(tmp_path)}
    program = "from scalescope.cli.main import main; main()"
    return StdioServerParameters(command=sys.executable, args=["-c", program, "mcp"], env=environ, cwd=tmp_path)


def test_a_client_diagnoses_a_script_and_asks_for_the_evidence(server: StdioServerParameters) -> None:
    heard: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def ask() -> tuple[Any, ...]:
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            found = await client.call_tool("diagnose_script", {"script": "score.py"}, progress_callback=progress)
            answer = found.structured_content
            name = answer["findings"][0]["id"]
            whole = await client.call_tool("explain_finding", {"finding": name})
            page = await client.read_resource(f"scalescope://report/{answer['id']}")
            wrong = await client.call_tool("diagnose_script", {"script": "missing.py"})
            checked = await client.call_tool("check_script", {"target": "score.py:planned"})
            assert checked.structured_content["about"] == "score.py:planned"
            return tools, answer, whole.structured_content, page.contents[0].text, wrong

    tools, answer, whole, page, wrong = anyio.run(ask)
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == READ_ONLY
    assert all(tool.output_schema for tool in tools)
    [finding, *_] = answer["findings"]
    assert (finding["id"], finding["place"]) == ("results-awaited-in-loop", "score.py:15")
    assert len(json.dumps(answer)) <= MOST
    assert len(whole["evidence"]) >= len(finding["evidence"])
    assert finding["summary"].partition("`")[0] in page
    assert wrong.is_error
    assert "missing.py" in wrong.content[0].text
    assert heard


def test_a_cancelled_call_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scalescope.cli import agent_tools

    told = tmp_path / "pid"
    script = tmp_path / "slow.py"
    script.write_text(f"import os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def ask() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                context: Any = SimpleNamespace(report_progress=lambda *_, **__: anyio.lowlevel.checkpoint())
                group.start_soon(agent_tools._answer, context, "run", str(script))
                while not told.exists() or not told.read_text():
                    await anyio.sleep(0.05)
                scope.cancel()

    anyio.run(ask)
    assert not psutil.pid_exists(int(told.read_text()))
