"""The program to fix (a script, a module, or a workload at one point), and how a copy of it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalescope.errors import InvalidField, UsageError
from scalescope.fixing.parameters import FixParameters
from scalescope.model.cluster import ClusterSpec
from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding
from scalescope.model.sweep import Sweep
from scalescope.own_code.script import Program

POINT = "scalescope.fixing.point"  # the module that runs a workload as a script would
OVERSUBSCRIBED = "oversubscribed-threads"
POOLS: dict[str, Scalar] = {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1}
NEXT_STEP = "scalescope fix SCRIPT.py [ARGUMENT]..., fix -m MODULE, or fix -w FILE.py:FUNCTION -a workers=4"


@dataclass(frozen=True)
class Subject:
    """A program, the file whose code is patched, and the folders in which it runs; all paths are absolute."""

    program: Program
    file: Path
    root: Path  # folder to copy
    folder: Path  # folder in which the script runs: the root, or a folder in it
    workload: str = ""  # reference of a workload; empty for a program
    # Values that a patch may change: the point of a workload; for a program, environment variables (at first none)
    values: Mapping[str, Scalar] = field(default_factory=dict)
    cluster: ClusterSpec | None = None  # cluster on which a workload is swept; None: a `LocalCluster`

    @classmethod
    def of(cls, program: Program) -> Subject:
        """The subject of a script or a module; `UsageError` if no `.py` file of that name exists."""
        folder = Path(program.folder or ".").resolve()
        file = _module(program.script, folder) if program.is_module else (folder / program.script).resolve()
        if file.suffix != ".py" or not file.is_file():
            raise UsageError("fix patches only Python scripts (.py)", where=program.script, next_step=NEXT_STEP)
        if program.is_module:
            return cls(program, file, folder, folder)
        whole = file.is_relative_to(folder) and folder != Path.home() and folder.parent != folder
        root = folder if whole else file.parent
        return cls(program, file, root, folder if folder.is_relative_to(root) else root)

    @classmethod
    def asked(cls, asked: FixParameters) -> Subject:
        """The subject that parameters name, run by this Python."""
        if bool(asked.script) == bool(asked.workload):
            raise InvalidField("script", asked.script, "either a script or a workload", next_step=NEXT_STEP)
        if asked.workload:
            return cls.of_workload(asked.workload, asked.values, sys.executable, asked.folder, asked.cluster)
        return cls.of(Program(asked.script, asked.arguments, asked.module, folder=asked.folder or None))

    @classmethod
    def of_workload(
        cls,
        reference: str,
        values: Mapping[str, Scalar],
        python: str = sys.executable,
        folder: str = "",
        cluster: str | Mapping[str, Any] = "",
    ) -> Subject:
        """A function of the user's own, as a sweep runs it at one point on workers of this machine.

        `cluster`: kind or specification of a cluster of this machine. Empty: a `LocalCluster`.

        Raises `InvalidField` for values that the function does not take or a cluster elsewhere, and `UsageError` for a
        built-in workload or a function in another folder.
        """
        from scalescope import workloads

        place, _, name = reference.rpartition(":")
        if not place:
            step = f"scalescope sweep -w {reference} --verify measures the settings of a built-in workload"
            raise UsageError("fix patches only functions of your own", where=reference, next_step=step)
        here = Path(folder).resolve()
        file = (here / place).resolve() if place.endswith(".py") else _module(place, here)
        if not file.is_relative_to(here):
            raise UsageError("this function is in another folder", where=str(file), next_step=f"cd {file.parent}")
        workload = workloads.load(reference if here == Path.cwd() else f"{file}:{name}")
        given = {"cluster": cluster} if cluster else {}
        sweep = Sweep.from_mapping({"workload": reference, "points": [values], **given})
        if not sweep.cluster.here:
            allowed = "a kind whose workers are on this machine: simulated, light or local"
            raise InvalidField("cluster", sweep.cluster.kind, allowed)
        point = sweep.expand(workload)[0]
        program = Program(POINT, (), True, python)
        return cls(program, file, here, here, reference, point.values, sweep.cluster if cluster else None)

    def settings(self, finding: Finding, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Values advised by a finding that differ from the given ones: axes of a workload, variables of a program."""
        if self.workload:
            advised = finding.gain.change if finding.gain else {}
            return {name: value for name, value in advised.items() if name in values and values[name] != value}
        return {} if finding.code != OVERSUBSCRIBED or POOLS.items() <= values.items() else POOLS

    @property
    def name(self) -> str:
        return self.workload or self.program.name

    def at(self, copy: Path, values: Mapping[str, Scalar], environ: Mapping[str, str], store: str = "") -> Program:
        """The program in a copy of the root folder, with these values; `store` is the address for a sweep."""
        program, folder = self.program, copy / self.folder.relative_to(self.root)
        if self.workload:
            swept = [json.dumps(self.cluster.written), store] if self.cluster else []
            program = replace(program, arguments=[self.workload, json.dumps(dict(values)), *swept])
        else:
            environ = {**environ, **{name: str(value) for name, value in values.items()}}
        if not program.is_module:
            script = copy / self.file.relative_to(self.root)
            named = script.relative_to(folder) if script.is_relative_to(folder) else script
            program = replace(program, script=str(named))
        return replace(program, folder=str(folder), environ=environ)

    @property
    def words(self) -> list[str]:
        """Words that name the subject on the command line."""
        if self.workload:
            axes = [word for name, value in self.values.items() for word in ("-a", f"{name}={value}")]
            return ["-w", self.workload, *(self.cluster.words if self.cluster else ()), *axes]
        return [*(["-m"] if self.program.is_module else []), self.program.script, *self.program.arguments]

    @property
    def virtual(self) -> bool:
        """Whether times come from the clock of a simulated cluster."""
        return self.cluster is not None and not self.cluster.real_time

    def sweep(self, values: Mapping[str, Scalar]) -> tuple[str, ...]:
        """Words of the command that measures a workload with other values; none for a program, or the same values."""
        if not self.workload or values == self.values:
            return ()
        words = replace(self, values=values).words
        return ("scalescope", "sweep", *words, *([] if self.cluster else ["-c", "local"]))

    def written(self, values: Mapping[str, Scalar]) -> list[str]:
        """Values as a person types them: options of a sweep, or variables before the command."""
        return [f"{'-a ' if self.workload else ''}{name}={value}" for name, value in values.items()]

    def difference(self, before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> str:
        """Changed values in the form of a diff."""
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        old = self.written({name: before[name] for name in changed if name in before})
        return "".join(
            f"{sign} {each}\n" for sign, lines in (("-", old), ("+", self.written(changed))) for each in lines
        )


def _module(name: str, folder: Path) -> Path:
    """The file of a module in this folder, or of a package's `__main__`."""
    place = folder.joinpath(*name.split("."))
    found = [each for each in (place.with_suffix(".py"), place / "__main__.py") if each.is_file()]
    if not found:
        path = name.replace(".", "/")
        known = f"neither {path}.py nor {path}/__main__.py exists"
        known = "it is installed elsewhere" if "." not in name and find_spec(name) else known
        raise UsageError(f"this folder has no module {name}", where=str(folder), cause=known, next_step=NEXT_STEP)
    return found[0]
