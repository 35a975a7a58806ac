"""Prefect as the library's orchestrator (entry point group `scalescope.orchestrators`)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from scalescope.errors import UsageError
from scalescope.model.extras import install_command
from scalescope.studies import OWN

if TYPE_CHECKING:
    from prefect import Flow

    from scalescope.run.progress import Listener

if find_spec("prefect") is None:
    raise UsageError("Flows, saved clusters and saved stores need Prefect", next_step=install_command("prefect"))

# Our flows as `module:function`, by name; others, such as studies of plugins, are in `scalescope_flows.studies`
FLOWS = {
    "scale-sweep": "scalescope_flows.sweep:scale_sweep",
    **{study.command: f"scalescope_flows.studies:{study.function}" for study in OWN.values()},
    "isolate": "scalescope_flows.studies:isolate",
    "fix": "scalescope_flows.studies:fix",
    "reap": "scalescope_flows.reaping:reap",
}

_URL, _PROFILES = "PREFECT_API_URL", "PREFECT_PROFILES_PATH"


class PrefectOrchestrator:
    """Implements `scalescope.run.orchestrator.Orchestrator` with Prefect, which is imported only when needed."""

    def is_configured(self) -> bool:
        """Whether a Prefect API is configured in the environment, the project's files or the active profile."""
        if _URL in os.environ:
            return bool(os.environ[_URL])
        dotenv, tables = _dotenv(), (_toml("prefect.toml"), _at(_toml("pyproject.toml"), "tool", "prefect"))
        profiles = os.environ.get(_PROFILES) or dotenv.get(_PROFILES)
        profiles = profiles or next(filter(None, (_at(table, "profiles_path") for table in tables)), None)
        return any((dotenv.get(_URL), *(_at(table, "api", "url") for table in tables), _at(_profile(profiles), _URL)))

    def start(self, *, verbose: bool, says: Callable[[str], None]) -> None:
        if not verbose:
            # Nothing is lost: Prefect still sends its log to the server, and we report errors ourselves.
            os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        from scalescope_flows import server

        if server.is_needed():
            says(server.STARTS)
        server.begin()
        import scalescope_flows.sweep  # noqa: F401 (takes seconds, while the server starts)

        server.ready()

    def run(self, flow: str, given: Mapping[str, Any], listener: Listener) -> Any:
        from scalescope_flows.runner import listening

        with listening(listener):
            return load(flow)(**given)

    def saved(self, parameter: str, reference: str) -> Any:
        from scalescope_blocks import saved

        return saved(parameter, reference)

    def schedules(self) -> str:
        from scalescope_flows import scheduling

        return scheduling.check(configured=self.is_configured())


PREFECT = PrefectOrchestrator()


def load(name: str) -> Flow[..., Any]:
    """Load a flow by name, with Prefect's telemetry off unless the environment turns it on."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    flow: Flow[..., Any] = resolve_name(FLOWS.get(name) or f"scalescope_flows.studies:{name.replace('-', '_')}")
    return flow


def _dotenv() -> dict[str, str]:
    try:
        lines = Path(".env").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _profile(path: str | None) -> Any:
    profiles = _toml(path or Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser() / "profiles.toml")
    return _at(profiles, "profiles", str(os.environ.get("PREFECT_PROFILE") or _at(profiles, "active")))


def _toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):  # Prefect itself reports unreadable files
        return {}


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
