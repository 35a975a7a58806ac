"""Small wheels, in a folder that is an index, and that uv takes for more releases (`UV_FIND_LINKS`)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, *, needs: Sequence[str] = (), urls: Sequence[str] = (), code: str = ""
) -> None:
    """A pure Python wheel with one module that knows its version, prints it when it is run, and has more code."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs] + [f"Project-URL: {url}" for url in urls]
    files = {
        f"{module}.py": f"version = {version!r}\nif __name__ == '__main__':\n    print(version)\n{code}",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    file = f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)
    page = folder / name / "index.html"
    page.parent.mkdir(exist_ok=True)
    with page.open("a") as links:
        links.write(f'<a href="../{file}">{file}</a>\n')
