from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest

from scalescope import workloads
from scalescope.errors import InvalidField
from scalescope.model.parameters import Parameter
from scalescope.model.workload import WorkloadParameter
from scalescope.workloads.references import describe

if TYPE_CHECKING:
    from .conftest import Place

USER_FILE = '''"""A file of the user's own."""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

OFFSET = 1000


@dataclasses.dataclass
class Answer:
    value: int


def helper(value, factor):
    return Answer(OFFSET + value * factor)


def run(client: Client, *, items: int = 3, factor: int = 2):
    """Adds up numbers.

    More about it.

    Args:
        client: Where it runs.
        items: How many
            numbers.
        factor (int): What each is multiplied by.

    Returns:
        The sum.
    """
    answers = client.gather(client.map(helper, range(items), factor=factor, pure=False))
    return {"sum": sum(answer.value for answer in answers)}


def over_a_bag(client, items=3):
    import dask.bag

    bag = dask.bag.from_sequence(range(items), npartitions=items).map(helper, factor=1).map(lambda answer: answer.value)
    return client.gather(client.compute(bag))


run.version = 7
run.modelled = True
answer = 42
'''


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "my workloads-1.py"
    path.write_text(USER_FILE)
    return path


def test_a_function_in_a_file_is_loaded_with_its_version_and_parameters(user_file: Path) -> None:
    workload = workloads.load(f"{user_file}:run")
    assert workload.name == f"{user_file}:run"
    assert workload.version == 7
    assert workload.modelled is True
    assert workload.summary == "Adds up numbers."
    assert workload.packages == ()
    assert workload.parameters == (
        WorkloadParameter("items", 3, "How many numbers.", "int"),
        WorkloadParameter("factor", 2, "What each is multiplied by.", "int"),
    )


def test_a_file_may_import_a_module_of_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lies_beside_it.py").write_text("answer = 42\n")
    (tmp_path / "job.py").write_text("from lies_beside_it import answer\n\ndef run(client, items=answer): ...\n")
    for _ in range(2):
        workload = workloads.load(f"{tmp_path / 'job.py'}:run")
        assert [parameter.default for parameter in workload.parameters] == [42]
    assert sys.path.count(str(tmp_path)) == 1
    assert "lies_beside_it" in workload.modules


def test_a_relative_path_is_resolved_from_the_working_directory(
    user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(user_file.parent)
    assert workloads.load(f"./{user_file.name}:run").summary == "Adds up numbers."


def test_a_function_in_a_module_is_loaded_with_its_parameters() -> None:
    workload = workloads.load("scalescope.workloads.futures:reduce")
    assert {each.name: each.kind for each in workload.parameters} == {"seconds": "float"}
    assert (workload.version, workload.modelled) == (1, False)


def test_a_function_in_a_file_runs_on_an_in_process_cluster(user_file: Path, inproc: Place) -> None:
    assert workloads.load(f"{user_file}:run").run(inproc.client, items=3, factor=2) == {"sum": 3006}


def test_a_function_in_a_file_runs_on_workers_that_lack_the_file(user_file: Path, processes: Place) -> None:
    run = workloads.load(f"{user_file}:run").run
    over_a_bag = workloads.load(f"{user_file}:over_a_bag").run
    user_file.unlink()
    assert run(processes.client, items=3, factor=2) == {"sum": 3006}
    assert over_a_bag(processes.client, items=3) == [1000, 1001, 1002]


def test_functions_of_a_file_are_pickled_by_value_within_a_graph(user_file: Path) -> None:
    """Pickled as distributed pickles graphs, and loaded in another process."""
    from distributed.protocol import pickle

    run = workloads.load(f"{user_file}:run").run
    graph = pickle.dumps({"key": (run.__globals__["helper"], [run.__globals__["Answer"](1)])})
    code = "import pickle, sys; f, args = pickle.load(sys.stdin.buffer)['key']; print(f(args[0].value, 2))"
    done = subprocess.run([sys.executable, "-c", code], input=graph, capture_output=True, check=True)
    assert done.stdout.strip() == b"Answer(value=1002)"


def test_a_workload_lists_the_modules_that_its_function_imports(user_file: Path) -> None:
    """Names imported from them count too, since they may be modules; imports of other functions do not."""
    modules = {*workloads.load(f"{user_file}:run").modules}
    assert {"dataclasses", "distributed", "distributed.Client"} <= modules
    assert not modules & {"dask", "dask.bag"}
    assert "dask.bag" in workloads.load(f"{user_file}:over_a_bag").modules


MANY_WAYS = """
from math import *

try:
    import tomllib as toml
except ImportError:
    toml = None
import colorsys, wave
import sched
import xml.dom
from dask import delayed

FORMAT = "%s" if wave else ""
UNUSED: object = sched.scheduler if wave else None

@delayed
def task(path):
    from csv import reader
    return FORMAT % toml

class Other:
    colors = colorsys

def run(client):
    return task("a").compute()

def parse(client):
    return Other.colors, xml.dom

made = [parse][0]
globals()["found"] = run
"""


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("run", {"dask", "dask.delayed", "math", "math.*", "wave", "colorsys", "csv", "csv.reader", "tomllib"}),
        ("parse", {"math", "math.*", "colorsys", "wave", "xml.dom"}),
        ("made", {"math", "math.*", "colorsys", "wave", "xml.dom"}),
        (
            "found",
            {"math", "math.*", "tomllib", "colorsys", "wave", "sched", "xml.dom", "dask", "dask.delayed", "csv"}
            | {"csv.reader"},
        ),
    ],
)
def test_modules_are_listed_however_a_function_imports_them(name: str, modules: set[str], tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    path.write_text(MANY_WAYS)
    assert {*workloads.load(f"{path}:{name}").modules} == modules


def test_modules_of_the_same_package_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("def run(client):\n    from . import other\n    import os.path\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert workloads.load("mine:run").modules == ("os.path",)


def test_loading_a_workload_adds_no_handler_to_the_root_logger(tmp_path: Path) -> None:
    """Importing Beam logs on the root logger, which adds a handler if it has none."""
    path = tmp_path / "loud.py"
    path.write_text("import logging\nlogging.warning('as Beam does')\ndef run(client): ...\n")
    code = f"""
import logging
from scalescope import workloads
workloads.load({f"{path}:run"!r})
print(logging.getLogger().handlers)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_edited_file_is_loaded_again(user_file: Path) -> None:
    workloads.load(f"{user_file}:run")
    user_file.write_text(USER_FILE.replace("version = 7", "version = 8"))
    assert workloads.load(f"{user_file}:run").version == 8


def test_a_text_parameter_may_be_empty_only_if_its_default_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def run(client, folder: str = '', name: str = 'Ada'): ...")
    folder, name = workloads.load(f"{path}:run").parameters
    assert (folder.default, folder.check(""), folder.check("x")) == ("", "", "x")
    with pytest.raises(InvalidField):
        name.check("")


# ------------------------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("beam-prado", "did you mean 'beam-pardo'"),
        ("", "text that is not empty"),
        ("no_such_module_anywhere:run", "there is no 'no_such_module_anywhere'"),
        ("scalescope.no_such_part:run", "there is no 'scalescope.no_such_part'"),
        ("no/such/file.py:run", "there is no .*no/such/file.py"),
        ("scalescope.workloads.futures:lef", "did you mean 'leaf'"),
        ("scalescope.workloads.futures:BAG_RULE", "a function, not an object of type str"),
        ("scalescope.workloads:", "`package.module:function`"),
        (":run", "`package.module:function`"),
        ("..workloads:run", "`package.module:function`"),
        ("scalescope.workloads:a.b", "`package.module:function`"),
    ],
)
def test_an_invalid_reference_to_a_workload_is_refused(reference: str, message: str) -> None:
    with pytest.raises(InvalidField, match=message) as caught:
        workloads.load(reference)
    assert caught.value.field == "workload"
    assert caught.value.value == reference


def test_an_unknown_workload_name_is_refused_with_the_next_step() -> None:
    with pytest.raises(InvalidField, match=r"`scalescope workloads` .* `path.py:function`"):
        workloads.load("mine")


def test_a_missing_function_or_a_plain_value_is_refused_as_workload(user_file: Path) -> None:
    with pytest.raises(InvalidField, match="did you mean 'over_a_bag'"):
        workloads.load(f"{user_file}:over_bag")
    with pytest.raises(InvalidField, match="object of type int"):
        workloads.load(f"{user_file}:answer")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("def run(client:", "raised SyntaxError"),
        ("import no_such_package", "raised ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("as_module", [False, True])
def test_an_error_while_importing_a_workload_raises_invalid_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str, as_module: bool
) -> None:
    name = f"broken_{abs(hash(source))}"
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = set(sys.modules)
    with pytest.raises(InvalidField, match=message) as caught:
        workloads.load(f"{name}:run" if as_module else f"{path}:run")
    assert caught.value.__cause__ is not None
    assert caught.value.next_step
    assert not [module for module in set(sys.modules) - loaded if name in module]


def _no_client() -> None: ...
def _client_by_name(*, client: Any) -> None: ...
def _client_with_default(items: int = 3) -> None: ...
def _no_client_first(n: int) -> None: ...
def _hidden(client: Any, **params: Any) -> None: ...
def _positional(client: Any, items: int = 3, /) -> None: ...
async def _asynchronous(client: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_no_client, "first argument is the client"),
        (_client_by_name, "first argument is the client"),
        (_no_client_first, "the first is called 'n'"),
        (_client_with_default, "'items' has a default"),
        (_hidden, r"`\*\*params` hides"),
        (_positional, "'items' is positional only"),
        (_asynchronous, "async def"),
        (range, "signature that Python can read"),
    ],
)
def test_a_function_with_an_unsuitable_signature_is_refused_as_workload(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(InvalidField, match=message):
        describe("mine:run", function)


@pytest.mark.parametrize(("name", "value"), [("version", "2"), ("version", 0), ("modelled", 1)])
def test_an_invalid_version_or_modelled_attribute_is_refused(name: str, value: object) -> None:
    def run(client: Any) -> None: ...

    setattr(run, name, value)
    with pytest.raises(InvalidField, match=f"workload.{name}"):
        describe("mine:run", run)


def test_a_default_that_contradicts_its_annotation_is_refused() -> None:
    def run(client: Any, items: int = "many") -> None: ...  # type: ignore[assignment]

    with pytest.raises(InvalidField, match=r"workload\.items: .*'many'"):
        describe("mine:run", run)


# ------------------------------------------------------------------------------------------- signatures


def test_kinds_of_parameters_follow_from_annotations_and_defaults() -> None:
    def run(
        client: Any,
        a: int,
        b: float = 1,
        c: str | None = None,
        d: Optional[int] = 3,  # noqa: UP045
        e=2,  # type: ignore[no-untyped-def]
        f=None,  # type: ignore[no-untyped-def]
        g: int | float = 1,
        h: bool = True,
        i: int | str = "x",
        j: tuple[int, ...] = (1, 2),
        *others: int,
        k: list[int],
    ) -> None: ...

    workload = describe("mine:run", run)
    assert workload.parameters == (
        WorkloadParameter("a", None, "", "int", required=True),
        WorkloadParameter("b", 1.0, "", "float"),
        WorkloadParameter("c", None, "", "str", optional=True),
        WorkloadParameter("d", 3, "", "int", optional=True),
        WorkloadParameter("e", 2, "", "int"),
        WorkloadParameter("f", None, "", "any", optional=True),
        WorkloadParameter("g", 1.0, "", "float"),
        WorkloadParameter("h", True, "", "bool"),
        WorkloadParameter("i", "x", "", "any"),
        WorkloadParameter("k", None, "", "any", required=True),
    )
    assert workload.summary == "Function run of the user's own."


def test_bounds_help_and_choices_of_parameters_follow_from_annotations() -> None:
    def run(
        client: Any,
        items: Annotated[int, Parameter("Items.", minimum=1, maximum=9)] = 3,
        mode: Literal["fast", "slow"] = "fast",
        parts: Annotated[int | Literal["all"] | None, Parameter("Parts.", minimum=1)] = None,
        level: Literal[1, 2] = 1,
        factor: float | Literal["auto"] = "auto",
    ) -> None: ...

    workload = describe("mine:run", run)
    assert workload.parameters == (
        WorkloadParameter("items", 3, "Items.", "int", 1, 9),
        WorkloadParameter("mode", "fast", "", "str", choices=("fast", "slow")),
        WorkloadParameter("parts", None, "Parts.", "int", 1, choices=("all",), optional=True),
        WorkloadParameter("level", 1, "", "any", choices=(1, 2)),
        WorkloadParameter("factor", "auto", "", "any"),
    )
    assert workload.bind({"parts": "all", "items": 9})["parts"] == "all"
    with pytest.raises(InvalidField, match=r"from 1 to 9, got"):
        workload.bind({"items": 10})
    with pytest.raises(InvalidField, match=r"or null or 'all', got 0"):
        workload.bind({"parts": 0})


def test_annotations_are_read_without_postponed_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text(
        "from typing import Optional\n"
        "class Client: ...\n"
        "def run(client: Client, a: int, b: Optional[float] = None, c: int | None = None): ...\n"
    )
    assert workloads.load(f"{path}:run").parameters == (
        WorkloadParameter("a", None, "", "int", required=True),
        WorkloadParameter("b", None, "", "float", optional=True),
        WorkloadParameter("c", None, "", "int", optional=True),
    )


def test_a_missing_required_parameter_is_refused_with_its_help() -> None:
    def run(client: Any, path: str) -> None:
        """Reads.

        Args:
            path: File to read.
        """

    with pytest.raises(InvalidField, match=r"params.path: .*\(File to read\)"):
        describe("mine:run", run).bind({})


def test_a_callable_object_can_be_a_workload() -> None:
    class Job:
        """A job."""

        def __call__(self, client: Any, items: int = 2) -> None: ...

    assert describe("mine:job", Job()).parameters == (WorkloadParameter("items", 2, "", "int"),)


def test_the_code_digest_of_a_workload_covers_its_file_and_local_imports(tmp_path: Path) -> None:
    (tmp_path / "near" / "deep").mkdir(parents=True)
    files = {
        "job.py": "def run(client, items: int = 1):\n    from near import part\n",
        "near/__init__.py": "",
        "near/part.py": "from . import other\nfrom .deep.last import x\nimport json, sideways",
        "near/other.py": "",
        "near/deep/last.py": "import job\nx = 1",
        "sideways.py": "",
        "unused.py": "",
        "json.txt": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    reference = f"{tmp_path / 'job.py'}:run"
    seen = {workloads.load(reference).code}
    assert seen == {workloads.load(reference).code} != {""}
    (tmp_path / "unused.py").write_text("changed = 1")
    assert workloads.load(reference).code in seen
    for name in ("job.py", "near/part.py", "near/other.py", "near/deep/last.py", "sideways.py"):
        (tmp_path / name).write_text(f"{(tmp_path / name).read_text()}\n# changed")
        code = workloads.load(reference).code
        assert code not in seen, name
        seen.add(code)


def test_an_installed_workload_has_no_code_digest() -> None:
    assert workloads.load("bag-map").code == ""
