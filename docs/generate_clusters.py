"""Writes `docs/cluster-options.md` from the declarations: `python docs/generate_clusters.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from scalescope.model.cluster import ClusterSpec, kinds
from scalescope.model.parameters import Declared, declared

PAGE = Path(__file__).with_name("cluster-options.md")
HEAD = """# Kinds of clusters and their fields

On the command line `--cluster KIND --cluster-option NAME=VALUE`; in YAML and Python `{"kind": KIND, NAME: VALUE}`; the
block of a kind has the same fields. [clusters.md](clusters.md) says which to use.

This page is written by `docs/generate_clusters.py`; change the `spec` in the folder of the kind instead.

| kind | what it is | most workers | install |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page as the declarations have it."""
    return "".join([HEAD, *(_row(spec) for spec in kinds().values()), *_sections()])


def _row(spec: type[ClusterSpec]) -> str:
    extra = f"`scalescope[{spec.extra}]`" if spec.extra else ""
    return f"| `{spec.kind}` | {spec.summary().rstrip('.')} | {spec.max_workers:,} | {extra} |\n"


def _sections() -> Iterable[str]:
    shared = {each.name for each in declared(kinds()["slurm"])}
    for spec in kinds().values():
        fields = [each for each in declared(spec) if spec.proven or each.name not in shared]
        besides = "" if spec.proven else "Besides those that it shares with `slurm`:\n\n"
        yield f"\n## `{spec.kind}`\n\n{besides}| field | default | meaning |\n| --- | --- | --- |\n"
        yield from (f"| `{each.name}` | {_default(each)} | {each.about.help} |\n" for each in fields)
        if spec.example:
            yield f"\nFor example `{json.dumps({'kind': spec.kind, **spec.example})}`\n"


def _default(declaration: Declared) -> str:
    if declaration.required:
        return "must be given"
    return "" if declaration.default in (None, "", (), {}) else f"`{json.dumps(declaration.default).strip(chr(34))}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
