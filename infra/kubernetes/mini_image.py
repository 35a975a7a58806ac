"""Images for a small Kubernetes, made without a registry and without a network.

The base is made of this machine's shell, shared libraries, interpreter and the packages that Scalescope needs. buildah
builds the Dockerfile on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.mini_cluster import MiniClusterError

ROOT = Path(__file__).resolve().parents[2]
NAME = "localhost/scalescope:dev"
BASE = "localhost/base:dev"  # base image; also used as pause image, whose container sleeps and holds a pod's network
EXTRAS = ("prefect", "environments", "kubernetes", "postgresql", "beam")
# What schedulers, workers, flows and the operator import; importing it makes the bytecode to be packed.
IMPORTED = (
    "distributed.cli.dask_scheduler, distributed.cli.dask_worker, distributed.dashboard.scheduler,"
    " distributed.dashboard.worker, dask_kubernetes.operator.controller, kopf, kubernetes_asyncio,"
    " prefect.engine, prefect.flow_engine, scalescope_flows"
)
SOURCES = ("scalescope", "flows", "blocks", "pyproject.toml")
HERE = "infra/kubernetes"
RECIPE = ("constraints.txt", f"{HERE}/Dockerfile", f"{HERE}/entrypoint.sh", f"{HERE}/mini_image.py")
TOOLS = (
    "sh bash cat chmod chown cp cut date echo env false getent grep head hostname id ln ls mkdir mv rm sed sleep sort"
    " stat tail test touch true uname wc"
)
NOT_PACKED = "site-packages dist-packages EXTERNALLY-MANAGED test idlelib tkinter turtledemo lib2to3"
LIBRARIES = Path("usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
LIBRARIES_OF_WHEELS = (  # libraries that PEP 513 lets wheels expect
    "libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libresolv.so.2 libnsl.so.1"
    " libgcc_s.so.1 libstdc++.so.6"
)
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
DEBIAN = "deb_system" in sysconfig.get_scheme_names()  # Debian's own Python has other folders for packages
PREFIX = "usr" if DEBIAN else "usr/local"
PACKAGES = "usr/lib/python3/dist-packages" if DEBIAN else f"usr/local/lib/{PYTHON}/site-packages"
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"]


def prepare(cache: Path) -> tuple[Path, Path]:
    """Make the images, unless they are in the cache.

    Returns a data folder of containerd with the base image, and a folder in OCI layout with the other layers of
    Scalescope's image.
    """
    packages = _distributions(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])
    versions = [f"{each.name}={each.version}" for each in packages]
    folder = cache / f"image-{_digest(RECIPE, sys.version, *versions)}"
    base, store, image = folder / "base", folder / "store", folder / _digest(SOURCES)
    with locked(folder):
        _forget_old(cache, folder)
        if not base.exists():
            _run("env", "--unset=PYTHONDONTWRITEBYTECODE", sys.executable, "-c", f"import {IMPORTED}")
            made = _Layout(folder / "base.part")
            with made.layer() as layer:
                _pack_machine(layer)
                for package in packages:
                    _pack_package(layer, package)
            made.finish(BASE, Env=ENVIRONMENT, Cmd=["sleep", "infinity"])
            made.folder.rename(base)
        with ThreadPoolExecutor() as pool:
            makers = [(make, where) for make, where in ((_unpack, store), (_build, image)) if not where.exists()]
            for making in [pool.submit(make, folder, base, where) for make, where in makers]:
                making.result()
    return store, image


def copy_store(store: Path, data: Path) -> None:
    """Give a containerd its data: copies of the databases, and links to all other files, which never change."""
    data.parent.mkdir(parents=True)
    linked = ["--link"] if data.parent.stat().st_dev == store.stat().st_dev else []
    _run("cp", "--archive", *linked, str(store), str(data))
    for database in store.glob("*/*.db"):
        _run("cp", "--remove-destination", str(database), str(data / database.relative_to(store)))


def _digest(names: tuple[str, ...], *more: str) -> str:
    total = hashlib.sha256("\0".join(more).encode())
    for name in names:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        os.utime(mine.fileno())
        yield


def _forget_old(cache: Path, folder: Path) -> None:
    """Remove images that were made with other package versions and not used for a day; each takes gigabytes."""
    for lock in cache.glob("image-*/lock"):
        if lock.parent != folder and lock.stat().st_mtime < time.time() - 24 * 3600:
            shutil.rmtree(lock.parent, ignore_errors=True)


# ------------------------------------------------------------------ the base


class _Layout:
    """An image with one layer, in OCI layout."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.blobs = folder, folder / "blobs/sha256"
        self.blobs.mkdir(parents=True)

    @contextlib.contextmanager
    def layer(self) -> Iterator[tarfile.TarFile]:
        with tarfile.open(self.folder / "layer", "w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
            yield archive
        with open(self.folder / "layer", "rb") as layer:
            self.digest = hashlib.file_digest(layer, "sha256").hexdigest()
        (self.folder / "layer").rename(self.blobs / self.digest)

    def finish(self, name: str, **config: Any) -> None:
        kind = "application/vnd.oci.image"
        described = self._put(
            f"{kind}.config.v1+json",
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{self.digest}"]},
                "history": [{"created_by": "infra/kubernetes/mini_image.py"}],
            },
        )
        size = (self.blobs / self.digest).stat().st_size
        layer = {"mediaType": f"{kind}.layer.v1.tar", "digest": f"sha256:{self.digest}", "size": size}
        manifest = {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": described, "layers": [layer]}
        entry = self._put(f"{kind}.manifest.v1+json", manifest) | {"annotations": _names(name)}
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def _put(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _names(name: str) -> dict[str, str]:
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}


def _distributions(project: dict[str, Any]) -> list[importlib.metadata.Distribution]:
    """pip, and the installed packages that Scalescope needs with these extras, directly or indirectly."""
    found: dict[str, importlib.metadata.Distribution] = {}
    done: set[tuple[str, str]] = set()
    wanted = [Requirement(each) for each in ("pip", *project["dependencies"])]
    wanted += [Requirement(each) for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    for requirement in wanted:  # the list grows in the loop
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in done:
                done.add((name, extra))
                try:
                    found[name] = importlib.metadata.distribution(name)
                except importlib.metadata.PackageNotFoundError as error:
                    wanted_by = f".[{','.join(EXTRAS)}]"
                    raise MiniClusterError(f'{name} is not installed: pip install "{wanted_by}"') from error
                more = map(Requirement, found[name].requires or ())
                wanted += [each for each in more if each.marker is None or each.marker.evaluate({"extra": extra})]
    return [found[name] for name in sorted(found)]


def _pack_machine(layer: tarfile.TarFile) -> None:
    for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib")):
        _add_link(layer, link, target)
    for folder in ("tmp", "var/tmp", "proc", "sys", "dev", "run"):
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in folder else 0o755
        layer.addfile(entry)
    _add_text(layer, "etc/passwd", "root:x:0:0::/root:/bin/sh\nscalescope:x:1000:1000::/tmp:/bin/sh\n")
    _add_text(layer, "etc/group", "root:x:0:\nscalescope:x:1000:\n")
    _add_text(layer, "etc/nsswitch.conf", "hosts: files dns\n")
    # certificates, and the time zones that Prefect looks up on Python 3.13
    for place in ("etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo"):
        with contextlib.suppress(FileNotFoundError):
            layer.add(f"/{place}", place)
    programs = {f"usr/bin/{name}": Path(found) for name in TOOLS.split() if (found := shutil.which(name))}
    programs[f"{PREFIX}/bin/{PYTHON}"] = Path(sys.executable).resolve()
    for place, program in programs.items():
        layer.add(program.resolve(), place)
    for name in ("python", "python3"):
        _add_link(layer, f"{PREFIX}/bin/{name}", PYTHON)
    library = Path(sysconfig.get_path("stdlib"))
    skipped = set(NOT_PACKED.split())
    for module in sorted(library.rglob("*")):
        within = module.relative_to(library)
        if module.is_file() and not skipped.intersection(within.parts) and not within.parts[0].startswith("config-"):
            layer.add(module, f"{PREFIX}/lib/{PYTHON}/{within}")
    users = [*programs.values(), *library.glob("lib-dynload/*.so")]
    needed = {path.name: path for user in users for path in _libraries(user)}
    needed |= {name: path for name in LIBRARIES_OF_WHEELS.split() if (path := Path("/", LIBRARIES, name)).exists()}
    for name, path in sorted(needed.items()):
        layer.add(path.resolve(), f"usr/lib/{name}" if name.startswith("ld-") else str(LIBRARIES / name))


def _libraries(program: Path) -> list[Path]:
    done = subprocess.run(("/usr/bin/ldd", str(program)), capture_output=True, text=True)
    return [Path(word) for word in done.stdout.split() if word.startswith("/")]


def _pack_package(layer: tarfile.TarFile, package: importlib.metadata.Distribution) -> None:
    """Pack a package and its bytecode (which uv does not list): pods cannot write it, and would compile each time."""
    for file in package.files or ():
        path = Path(str(file.locate())).resolve()
        if path.parent.name == "bin" and ".." in file.parts:
            content = path.read_bytes()
            if content.startswith(b"#!"):
                content = f"#!/{PREFIX}/bin/python\n".encode() + content.partition(b"\n")[2]
            _add_text(layer, f"usr/local/bin/{path.name}", content, 0o755)
        elif path.name == "entry_points.txt":
            # Leave out the subcommand `dask kubernetes`: with it, every `dask` would load a Kubernetes client.
            text = path.read_text().replace("[dask_cli]\nkubernetes = dask_kubernetes.cli:main\n", "")
            _add_text(layer, f"{PACKAGES}/{file}", text)
        elif ".." not in file.parts and path.exists() and path.suffix != ".pyc":
            layer.add(path, f"{PACKAGES}/{file}")
            compiled = Path(cache_from_source(str(path)))
            if path.suffix == ".py" and compiled.exists():
                layer.add(compiled, f"{PACKAGES}/{cache_from_source(str(file))}")


def _add_link(layer: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    layer.addfile(entry)


def _add_text(layer: tarfile.TarFile, name: str, content: str | bytes, mode: int = 0o644) -> None:
    data = content.encode() if isinstance(content, str) else content
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    layer.addfile(entry, io.BytesIO(data))


def _unpack(folder: Path, base: Path, store: Path) -> None:
    """Let a temporary containerd unpack the base image once for all nodes."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made, socket = Path(temporary, "store"), Path(temporary, "socket")
        config = Path(temporary, "config.toml")
        config.write_text(
            f'version = 2\nroot = "{made}"\nstate = "{temporary}/state"\n[grpc]\n  address = "{socket}"\n'
            f'[plugins."io.containerd.internal.v1.opt"]\n  path = "{temporary}/opt"\n'
        )
        ctr = f"ctr --address {socket} --namespace k8s.io"
        script = (
            f"mount -t tmpfs none /run; containerd --config {config} >{temporary}/log 2>&1 & set -o pipefail;"
            f" until {ctr} version >/dev/null 2>&1; do kill -0 $! || exit; sleep 0.1; done;"
            f" tar --directory {base} --create . | {ctr} images import -"
        )
        _run("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script)
        for blob in (base / "blobs/sha256").iterdir():  # a link, to keep only one copy
            theirs = made / "io.containerd.content.v1.content/blobs/sha256" / blob.name
            theirs.unlink()
            theirs.hardlink_to(blob)
        made.rename(store)


# ------------------------------------------------------------------ Scalescope's image


def _build(folder: Path, base: Path, image: Path) -> None:
    """Build the Dockerfile, and keep the layers that are not in the base."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        context, made = Path(temporary, "context"), Path(temporary, "image")
        for name in ("pyproject.toml", "constraints.txt", "infra/kubernetes/entrypoint.sh"):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, context / name)
        _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={context}/dist", str(ROOT))
        (made / "blobs/sha256").mkdir(parents=True)
        layer = json.loads(_manifest(base).read_text())["layers"][0]["digest"].removeprefix("sha256:")
        (made / "blobs/sha256" / layer).symlink_to(base / "blobs/sha256" / layer)  # a link saves a copy
        buildah = ["unshare", "--mount", "buildah", "--storage-driver=overlay"]
        buildah += [f"--root={folder}/buildah", f"--runroot={temporary}/run"]
        _run(
            *(*buildah, "bud", "--quiet", "--isolation=chroot", "--layers", "--format=oci", f"--tag={NAME}"),
            *(f"--build-arg=BASE=oci:{base.name}", f"--build-arg=EXTRAS={' '.join(EXTRAS)}"),
            *(f"--file={ROOT}/infra/kubernetes/Dockerfile", str(context)),
            cwd=base.parent,  # buildah makes an image name of the path; its parts may not begin with a dot
        )
        _run(*buildah, "push", "--quiet", "--disable-compression", "--format=oci", NAME, f"oci:{made}")
        (made / "blobs/sha256" / layer).unlink()
        index = json.loads((made / "index.json").read_text())
        index["manifests"][0]["annotations"] = _names(NAME)
        (made / "index.json").write_text(json.dumps(index))
        made.rename(image)


def _manifest(layout: Path) -> Path:
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    return layout / "blobs" / str(entry["digest"]).replace(":", "/")


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise MiniClusterError(
            f"{' '.join(command)} exited with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}"
        )
