"""`scalescope serve`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from scalescope.cli.carrying import open_store
from scalescope.cli.options import StoreAddress
from scalescope.cli.output import say
from scalescope.errors import UsageError
from scalescope.report import files


def serve(
    store: StoreAddress = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 4201,
) -> None:
    """Serve the reports next to a store's records to browsers on this machine, as targets of links in Prefect's pages.

    Prints the setting that the Prefect worker needs. Ctrl-C ends it.
    """
    from scalescope.cli.file_server import FileServer
    from scalescope.run.output_paths import VARIABLE

    with open_store(store) as opened:
        folder = files.absolute(opened.records)
    if files.is_address(folder):
        next_step = f"Serve them with a web server or the bucket's own website, and set {VARIABLE} to that address."
        raise UsageError("The records are not in a folder of this machine", where=folder, next_step=next_step)
    with suppress(KeyboardInterrupt), FileServer(Path(folder), port) as server:
        print(f"export {VARIABLE}={server.url}", flush=True)
        say(f"Set this variable where the Prefect worker starts. Serving reports in {folder}; Ctrl-C ends it.", "dim")
        server.serve_forever()
