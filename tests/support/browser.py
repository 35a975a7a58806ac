"""Chromium, started in one way by all tests that need a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--disable-3d-apis",  # without a GPU, WebGL takes a whole core: Prefect's graph of a run is drawn without it, too
)  # fmt: skip


@contextmanager
def chromium(
    missing: Callable[[str, str], NoReturn], profile: Path, *flags: str, logs: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A driver of Chromium with an empty folder as its profile, or a skip; `logs` are those that the driver keeps."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        missing(
            "browser",
            "no browser: chromium and chromedriver are not on PATH (apt-get install chromium chromium-driver)",
        )
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        missing("browser", "no browser: pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", dict(logs or {}))
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        yield driver
    finally:
        driver.quit()
