"""What scripts can notice of the process that runs them: each behaviour is one script.

A script runs by `python` and by `scalescope run`, and must not tell them apart (`test_behaviours.py`). Its text is
dedented. What two runs of plain Python print differently (pids, ports, addresses of memory, times) is not printed.
"""

from __future__ import annotations

import io
import signal
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

Content = str | bytes


@dataclass(frozen=True)
class Behaviour:
    name: str
    source: Content  # of the script; "" where `files` hold it
    arguments: tuple[str, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)  # by their path in the folder of the run
    links: Mapping[str, str] = field(default_factory=dict)  # symbolic links and where they lead
    script: str = "theirs.py"  # as it is given on the command line, from the folder of the run; {folder} is that folder
    module: str = ""  # runs by -m instead of a script
    environment: Mapping[str, str] = field(default_factory=dict)  # {folder} is the folder of the run
    stdin: str = ""  # on a terminal, it is typed once the script has printed "ready"
    signal: int = 0  # sent from outside once the script has printed "ready"
    to_group: bool = False  # The signal goes to all processes of the group, as Ctrl-C on a terminal does.
    launcher: tuple[str, ...] = ()  # a command that starts the rest of its arguments
    terminal: bool = False  # Its streams are a terminal: all that appears there is compared as its stderr.
    judged: bool = False  # It makes a cluster that can be diagnosed.
    thorough: bool = False  # a variant of another


def _zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), dedent(text))
    return packed.getvalue()


def _shell(line: str) -> tuple[str, ...]:
    """A launcher; in `line`, "$@" is what it starts."""
    return ("bash", "-c", line, "bash")


QUIET = """
import logging

logging.disable()  # What is logged while a cluster closes depends on what has been released by then.
"""
DASK = """
from distributed import Client, LocalCluster

FEW = dict(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
"""


def _dask(
    name: str, source: str, *, judged: bool = True, thorough: bool = False, signal: int = 0, before: str = ""
) -> Behaviour:
    """A script that begins with `before`, then imports Dask."""
    text = dedent(before).lstrip("\n") + DASK + dedent(source)
    return Behaviour(name, text, judged=judged, thorough=thorough, signal=signal)


SCRIPT = (
    Behaviour(
        "file-is-absolute",
        """
        import os
        import tempfile
        from pathlib import Path

        os.chdir(tempfile.gettempdir())
        print(__file__, Path(__file__).with_name("beside.txt").read_text())
        """,
        files={"beside.txt": "beside"},
    ),
    Behaviour(
        "argv",
        "import sys; print(sys.argv)",
        arguments=("--json", "-e", "prod", "--require", "a b", "", "-m", "--", "ünï"),
    ),
    Behaviour("orig-argv", "import sys; print(sys.orig_argv)", arguments=("--debug", "x")),
    Behaviour("command-line-of-the-process", "print(open('/proc/self/cmdline').read().split('\\0'))", arguments=("x",)),
    Behaviour("sys-path", "import sys; print(sys.path)"),
    Behaviour("executable", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix)"),
    Behaviour(
        "flags",
        """
        import sys

        print(sys.flags, sys.warnoptions, sys.dont_write_bytecode, sys._xoptions, sys.pycache_prefix)
        """,
    ),
    Behaviour(
        "variables-of-main",
        """
        import builtins

        print(sorted(vars()))
        print(__name__, __spec__, __package__, __doc__, __builtins__ is builtins, type(__loader__))
        print(globals().get("__cached__", "none"), globals().get("__annotations__", "none"))
        """,
    ),
    Behaviour(
        "main-is-the-module",
        """
        import __main__
        import sys

        def function(): ...

        print(sys.modules["__main__"] is __main__, vars(__main__) is globals(), function.__module__)
        """,
        thorough=True,
    ),
    Behaviour(
        "docstring",
        '"""What it is for."""\nprint(__doc__)',
        thorough=True,
    ),
    Behaviour(
        "future-import",
        "from __future__ import annotations\ndef f(x: int): ...\nprint(f.__annotations__)",
        thorough=True,
    ),
    Behaviour(
        "annotations-are-no-strings",
        """
        import dataclasses
        import typing

        @dataclasses.dataclass
        class Row:
            number: int

        def function():
            class Local: ...

            def takes(local: Local) -> "Row": ...

            return takes

        print(dataclasses.fields(Row)[0].type is int, function().__annotations__["local"].__qualname__)
        print(typing.get_type_hints(Row))
        """,
    ),
    Behaviour(
        "pydantic-model",
        """
        import pydantic

        class Row(pydantic.BaseModel):
            number: int
            others: list["Row"] = []

        print(Row(number="1", others=[{"number": 2}]))
        """,
        thorough=True,
    ),
    Behaviour(
        "pickle-of-a-class-of-main",
        """
        import pickle
        import subprocess
        import sys

        class Row: ...

        kept = pickle.dumps(Row())
        print(kept, type(pickle.loads(kept)) is Row)
        load = f"import pickle\\ntry: pickle.loads({kept})\\nexcept AttributeError as error: print(error)"
        subprocess.run([sys.executable, "-c", load], check=True)
        """,
    ),
    Behaviour(
        "own-source",
        """
        import inspect
        import linecache

        def function():
            return 1  # one

        print(inspect.getsource(function), inspect.getsourcefile(function), linecache.getline(__file__, 5))
        """,
    ),
    Behaviour(
        "exec-and-eval",
        """
        exec("number = 1 + 1")
        exec(compile("print(number, __name__, __file__)", "said.py", "exec"))
        print(eval("number + 1"))
        """,
        thorough=True,
    ),
    Behaviour(
        "runpy-within-the-script",
        """
        import runpy
        import sys

        runpy.run_path("other.py", run_name="__main__")
        runpy.run_module("other", run_name="__main__", alter_sys=True)
        print(sys.argv[0], __file__)
        """,
        files={"other.py": "import sys\nprint(__name__, __file__, sys.argv[0])"},
    ),
    Behaviour(
        "link-to-a-script",
        "",
        script="link.py",
        links={"link.py": "jobs/real.py"},
        files={
            "jobs/real.py": "import beside, sys; print(__file__, sys.argv, beside.__file__)",
            "jobs/beside.py": "",
        },
    ),
    Behaviour(
        "path-with-spaces-and-umlauts",
        "import sys; print(__file__, sys.argv, sys.path[0]); raise ValueError('raised')",
        script="my jöbs/it is.py",
    ),
    Behaviour("script-in-a-folder", "import sys; print(__file__, sys.argv[0], sys.path[0])", script="./jobs/theirs.py"),
    Behaviour(
        "absolute-path-of-a-script",
        "import sys; print(__file__, sys.argv[0], sys.path[0])",
        script="{folder}/theirs.py",
        thorough=True,
    ),
    Behaviour("script-without-suffix", "import sys; print(__file__, sys.argv[0])", script="theirs"),
    Behaviour(
        "main-file-of-a-package-as-a-script",
        "import beside, sys; print(__name__, __file__, sys.argv, sys.path[0], __package__, __spec__)",
        script="jobs/__main__.py",
        files={"jobs/beside.py": ""},
        thorough=True,
    ),
    Behaviour(
        "folder-with-main-as-a-script",
        "",
        script="jobs",
        files={
            "jobs/__main__.py": """
                import beside, sys

                print(__name__, __file__, sys.argv, sys.path[0], repr(__package__), __spec__.name)
                raise ValueError("raised")
                """,
            "jobs/beside.py": "",
        },
    ),
    Behaviour("folder-without-main", "", script="jobs", files={"jobs/beside.py": ""}),
    Behaviour(
        "zipped-application",
        "",
        script="jobs.pyz",
        files={
            "jobs.pyz": _zipped(
                {"__main__.py": "import beside, sys\nprint(__file__, sys.argv, beside.__file__)", "beside.py": ""}
            )
        },
    ),
    Behaviour("missing-script", "", script="missing.py"),
    Behaviour("syntax-error", "first = 1\nsecond = = 2\n"),
    Behaviour("wrong-indentation", "if True:\n    first = 1\n\tsecond = 2\n", thorough=True),
    Behaviour("null-byte", b"print('first')\0\n"),
    Behaviour(
        "latin-1-source",
        "# -*- coding: latin-1 -*-\nprint(ascii('é'))\n".encode("latin-1"),
        thorough=True,
    ),
    Behaviour("source-that-is-not-utf-8", "print(ascii('é'))\n".encode("latin-1")),
    Behaviour(
        "byte-order-mark",
        "\ufeffprint(ascii('é'), __doc__)\n",
        thorough=True,
    ),
    Behaviour("windows-line-ends", b"print('''first\r\nsecond''')\r\nraise ValueError\r\n", thorough=True),
    Behaviour(
        "empty-script",
        b"\n",
        thorough=True,
    ),
    Behaviour(
        "doctest",
        '''
        def double(number):
            """
            >>> double(2)
            5
            """
            return 2 * number

        import doctest
        import sys

        sys.exit(doctest.testmod().failed)
        ''',
    ),
    Behaviour(
        "unittest",
        """
        import unittest

        class Doubles(unittest.TestCase):
            def test_right(self):
                self.assertEqual(2 * 2, 4)

            def test_wrong(self):
                self.assertEqual(2 * 2, 5)

        unittest.main()
        """,
        arguments=("--verbose",),
    ),
    Behaviour(
        "debugger",
        """
        def function(number):
            breakpoint()
            return number

        print(function(1))
        """,
        stdin="where\np number\nup\ncontinue\n",
    ),
)

MODULE = (
    Behaviour(
        "package-by-m",
        "",
        module="etl",
        arguments=("--json", "20"),
        files={
            "etl/__init__.py": "print('package', __name__)",
            "etl/__main__.py": """
                import sys

                from . import steps

                print(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0], steps.__name__)
                """,
            "etl/steps.py": "",
        },
    ),
    Behaviour(
        "module-of-a-package-by-m",
        "",
        module="etl.steps",
        arguments=("-m", "x"),
        files={
            "etl/__init__.py": "",
            "etl/steps.py": """
                import sys

                print(sorted(vars()), __name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0])
                """,
        },
    ),
    Behaviour(
        "original-arguments-of-m",
        "",
        module="theirs",
        files={"theirs.py": "import sys; print(sys.orig_argv)"},
        thorough=True,
    ),
    Behaviour(
        "traceback-of-m",
        "",
        module="etl.steps",
        files={
            "etl/__init__.py": "",
            "etl/steps.py": "def function():\n    raise ValueError('raised')\n\nfunction()\n",
        },
    ),
    Behaviour("missing-module-by-m", "", module="missing.module"),
    Behaviour(
        "package-without-main-by-m",
        "",
        module="etl",
        files={"etl/__init__.py": "print('package')"},
        thorough=True,
    ),
    Behaviour(
        "package-that-raises-by-m",
        "",
        module="etl",
        files={"etl/__init__.py": "import missing", "etl/__main__.py": ""},
        thorough=True,
    ),
    Behaviour("standard-module-by-m", "", module="json.tool", stdin='{"first": [1, 2]}'),
    Behaviour(
        "other-script-by-m",
        "import sys; print(__name__, sys.argv); raise ValueError('raised')",
        module="pdb",
        arguments=("theirs.py", "x"),
        stdin="continue\nquit\n",
        thorough=True,
    ),
    Behaviour(
        "tests-by-m",
        "",
        module="pytest",
        arguments=("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_theirs.py"),
        files={"test_theirs.py": "def test_right(): ...\ndef test_wrong(): assert 2 * 2 == 5"},
        thorough=True,
    ),
    Behaviour(
        "spawned-processes-of-m",
        "",
        module="etl.steps",
        files={
            "etl/__init__.py": "",
            "etl/steps.py": """
                import multiprocessing

                def double(number):
                    return 2 * number, __name__

                if __name__ == "__main__":
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        print(pool.map(double, range(3)))
                """,
        },
        thorough=True,
    ),
)

RAISING_CUSTOMS = """
import sys

if sys.orig_argv[1] == "theirs.py":  # It leaves the command that runs the script alone.
    raise ValueError("raised")
"""

ENVIRONMENT = (
    Behaviour("variables-without-pythonpath", "import os; print(sorted(os.environ.items()))"),
    Behaviour(
        "variables-with-pythonpath",
        "import os, sys; print(sorted(os.environ.items()), sys.path)",
        environment={"PYTHONPATH": "lib:{folder}/other"},
    ),
    Behaviour(
        "empty-pythonpath",
        "import os, sys; print(os.environ['PYTHONPATH'] == '', sys.path)",
        environment={"PYTHONPATH": ""},
        thorough=True,
    ),
    Behaviour("safe-path", "import sys; print(sys.path, sys.flags)", environment={"PYTHONSAFEPATH": "1"}),
    Behaviour(
        "warnings-as-errors",
        "import sys, warnings; print(sys.warnoptions); warnings.warn('raised')",
        environment={"PYTHONWARNINGS": "error"},
    ),
    Behaviour(
        "development-mode",
        "import sys; print(sys.flags.dev_mode, sys.warnoptions); open('theirs.py'); raise ValueError",
        environment={"PYTHONDEVMODE": "1"},
    ),
    Behaviour(
        "optimised",
        '"""Goes."""\nassert False\nprint(__doc__, __debug__)',
        environment={"PYTHONOPTIMIZE": "2"},
        thorough=True,
    ),
    Behaviour(
        "hash-seed",
        "print(hash('text'), list({'a', 'b', 'c'}))",
        environment={"PYTHONHASHSEED": "7"},
        thorough=True,
    ),
    Behaviour(
        "encoding-of-streams",
        "import sys; print(sys.stdout.encoding, sys.stdout.errors); print('\\u20ac')",
        environment={"PYTHONIOENCODING": "latin-1"},
    ),
    Behaviour(
        "unbuffered",
        "import os, sys; print(sys.stdout.write_through); print('kept'); os._exit(7)",
        environment={"PYTHONUNBUFFERED": "1"},
    ),
    Behaviour("bytecode-of-modules", "import beside", files={"beside.py": ""}),
    Behaviour(
        "no-bytecode",
        "import beside",
        files={"beside.py": ""},
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        thorough=True,
    ),
    Behaviour(
        "language-of-c",
        "import locale, sys; print(locale.getlocale(), sys.stdout.encoding, sys.flags.utf8_mode)",
        environment={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        thorough=True,
    ),
    Behaviour(
        "own-sitecustomize",
        """
        import os
        import sitecustomize

        print(sitecustomize.__file__, sitecustomize.__name__, os.times_customized)
        """,
        files={
            "lib/sitecustomize.py": "import os\nos.times_customized = getattr(os, 'times_customized', 0) + 1\n",
        },
        environment={"PYTHONPATH": "lib"},
    ),
    Behaviour(
        "own-sitecustomize-that-raises",
        "import sitecustomize",
        files={"lib/sitecustomize.py": RAISING_CUSTOMS},
        environment={"PYTHONPATH": "lib"},
    ),
    Behaviour(
        "own-usercustomize",
        """
        import os
        import site

        print(site.ENABLE_USER_SITE, getattr(os, "times_customized", 0))
        """,
        files={"lib/usercustomize.py": "import os\nos.times_customized = getattr(os, 'times_customized', 0) + 1\n"},
        environment={"PYTHONPATH": "lib"},
        thorough=True,
    ),
    Behaviour("no-sitecustomize", "import sitecustomize"),
    Behaviour(
        "loaded-modules",
        """
        import sys

        print(sorted(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
        """,
    ),
    Behaviour("scalescope-stays-as-it-is", "import importlib.util; print(importlib.util.find_spec('scalescope'))"),
    Behaviour(
        "distributed-is-found-where-it-is",
        """
        import importlib.util
        import sys

        spec = importlib.util.find_spec("distributed")
        print(spec.name, spec.origin, type(spec.loader), spec.submodule_search_locations, "distributed" in sys.modules)
        """,
    ),
    Behaviour(
        "umask",
        "import os; print(os.umask(0)); open('w.txt', 'w')",
        launcher=_shell('umask 027; exec "$@"'),
        thorough=True,
    ),
    Behaviour(
        "limits",
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))",
        launcher=_shell('ulimit -n 200; ulimit -c 0; exec "$@"'),
        thorough=True,
    ),
    Behaviour(
        "open-descriptors",
        """
        import os

        print(sorted(int(name) for name in os.listdir("/proc/self/fd")))
        """,
    ),
    Behaviour(
        "closes-all-descriptors",
        """
        import os

        os.closerange(3, 4096)
        print(os.open("theirs.py", os.O_RDONLY))
        """,
    ),
    Behaviour(
        "threads-and-children-at-the-start",
        """
        import os
        import threading

        print(threading.enumerate()[1:], len(os.listdir("/proc/self/task")))
        os.wait()
        """,
    ),
)

SHADOWS = "abc ast bisect calendar collections csv dis enum heapq inspect json logging pickle queue random re sqlite3"
SHADOWS += " signal socket string struct tempfile threading token traceback types typing uuid weakref zlib"

MODULES = (
    Behaviour(
        "own-module-with-a-standard-name",
        "import json\nfrom calendar import mine\nprint(json.mine, mine)",
        files={"json.py": "mine = 'json'", "calendar.py": "mine = 'calendar'"},
    ),
    Behaviour(
        "own-modules-with-any-standard-name",
        f"""
        import importlib

        for name in {SHADOWS.split()}:
            print(name, importlib.import_module(name).__file__)
        """,
        files={f"{name}.py": "" for name in SHADOWS.split()},
    ),
    Behaviour(
        "own-modules-with-names-of-ours",
        """
        import cli, guest, model, own_code, record, rich, run, startup, typer

        print(cli.mine, guest.mine, model.mine, own_code.mine, record.mine)
        print(rich.mine, run.mine, startup.mine, typer.mine)
        """,
        files={
            f"{name}.py": f"mine = '{name}'"
            for name in ["cli", "guest", "model", "own_code", "record", "rich", "run", "startup", "typer"]
        },
    ),
    Behaviour(
        "own-module-on-pythonpath-with-the-name-of-a-package",
        "import rich, typing_extensions; print(rich.mine, typing_extensions.mine)",
        files={f"lib/{name}.py": f"mine = '{name}'" for name in ("rich", "typing_extensions")},
        environment={"PYTHONPATH": "lib"},
    ),
    Behaviour(
        "own-module-that-lacks-an-import",
        "def main():\n    import steps\n\nmain()",
        files={"steps.py": "from missing import name\n"},
        thorough=True,
    ),
    Behaviour(
        "own-module-with-a-syntax-error",
        "import steps",
        files={"steps.py": "def (\n"},
        thorough=True,
    ),
    Behaviour(
        "own-finder-of-modules",
        """
        import sys

        class Finder:
            asked = []

            def find_spec(self, name, path=None, target=None):
                self.asked.append(name)

        sys.meta_path.insert(0, Finder())
        import beside
        import other
        print(Finder.asked)
        """,
        files={"beside.py": "", "other.py": ""},
        thorough=True,
    ),
    Behaviour(
        "own-import-function",
        """
        import builtins

        original, asked = builtins.__import__, []

        def importing(name, *others):
            asked.append(name)
            return original(name, *others)

        print(original)
        builtins.__import__ = importing
        import beside
        print(asked)
        """,
        files={"beside.py": "import inner", "inner.py": ""},
    ),
    Behaviour(
        "pandas-blocked",
        """
        import sys

        sys.modules["pandas"] = None
        import dask.dataframe
        """,
        thorough=True,
    ),
)

ENDINGS = (
    Behaviour("exit-with-a-number", "import sys; print('said'); sys.exit(3)"),
    Behaviour(
        "exit-with-a-text",
        "import sys; sys.exit('enough')",
        thorough=True,
    ),
    Behaviour("exit-with-none", "import sys; sys.exit(None)", thorough=True),
    Behaviour("exit-with-a-large-number", "import sys; sys.exit(259)", thorough=True),
    Behaviour(
        "exit-with-a-negative-number",
        "import sys; sys.exit(-1)",
        thorough=True,
    ),
    Behaviour("exit-without-clearing", "import atexit, os; atexit.register(print, 'no'); print('lost'); os._exit(7)"),
    Behaviour(
        "exit-in-a-thread",
        """
        import sys
        import threading

        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        print("goes on")
        """,
        thorough=True,
    ),
    Behaviour(
        "uncaught-exception",
        """
        import steps

        def main(number):
            steps.divide(number)

        print("first")
        main(1)
        """,
        files={"steps.py": "def divide(number):\n    return number / 0\n"},
    ),
    Behaviour(
        "exception-with-cause-and-notes",
        """
        def parse(text):
            try:
                return int(text)
            except ValueError as error:
                error.add_note("a note")
                raise RuntimeError(f"no number: {text}") from error

        try:
            parse("x")
        except RuntimeError:
            raise KeyError("context")
        """,
    ),
    Behaviour(
        "exception-group",
        """
        def failed(number):
            try:
                raise ValueError(number)
            except ValueError as error:
                return error

        raise ExceptionGroup("two", [failed(1), failed(2)])
        """,
        thorough=True,
    ),
    Behaviour("too-deep-recursion", "def deeper(n):\n    return deeper(n + 1)\n\ndeeper(0)"),
    Behaviour(
        "exception-that-cannot-be-told",
        """
        class Untold(Exception):
            def __str__(self):
                raise ValueError("raised")

        raise Untold
        """,
        thorough=True,
    ),
    Behaviour(
        "exception-in-a-thread",
        """
        import threading

        def divide():
            1 / 0

        thread = threading.Thread(target=divide, name="divides")
        thread.start()
        thread.join()
        """,
    ),
    Behaviour(
        "exception-in-an-exit-handler",
        """
        import atexit

        @atexit.register
        def divide():
            1 / 0
        """,
        thorough=True,
    ),
    Behaviour(
        "exception-in-a-finaliser",
        """
        class Kept:
            def __del__(self):
                1 / 0

        kept = Kept()
        del kept
        last = Kept()
        """,
    ),
    Behaviour("keyboard-interrupt-raised", "def main():\n    raise KeyboardInterrupt\n\nmain()"),
    Behaviour(
        "own-excepthook",
        """
        import sys

        print(sys.excepthook is sys.__excepthook__)

        def told(kind, error, trace):
            print(kind, error, trace.tb_lineno, trace.tb_next, file=sys.stderr)

        sys.excepthook = told
        raise ValueError("raised")
        """,
    ),
    Behaviour(
        "own-unraisablehook",
        """
        import sys

        print(sys.unraisablehook is sys.__unraisablehook__)
        sys.unraisablehook = lambda raised: print("told", raised.exc_value)

        class Kept:
            def __del__(self):
                1 / 0

        Kept()
        """,
        thorough=True,
    ),
    Behaviour(
        "own-excepthook-of-threads",
        """
        import threading

        print(threading.excepthook is threading.__excepthook__)
        threading.excepthook = lambda raised: print("told", raised.exc_value)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        """,
        thorough=True,
    ),
    Behaviour(
        "order-of-exit-handlers",
        """
        import atexit
        import sys

        atexit.register(print, "first registered")
        atexit.register(print, "second registered", file=sys.stderr)
        print("ends")
        """,
    ),
    Behaviour(
        "thread-that-outlives-main",
        """
        import atexit
        import threading
        import time

        def late():
            time.sleep(0.2)
            print("late", threading.main_thread().is_alive())

        atexit.register(print, "exit handler")
        threading.Thread(target=late).start()
        print("main ends")
        """,
    ),
    Behaviour(
        "daemon-thread-that-never-ends",
        """
        import threading

        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("main ends")
        """,
        thorough=True,
    ),
    Behaviour(
        "process-that-outlives-it",
        """
        import subprocess

        subprocess.Popen(["sleep", "100"])
        print("ends")
        """,
    ),
    Behaviour(
        "another-program-in-its-place",
        """
        import os
        import sys

        print("first", flush=True)
        os.execv(sys.executable, [sys.executable, "-c", "import sys; print(sys.argv, sys.path); sys.exit(4)", "x"])
        """,
    ),
    Behaviour(
        "abort",
        "import os; os.abort()",
        launcher=_shell('ulimit -c 0; exec "$@"'),
        thorough=True,
    ),
)

ITSELF = "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.{}); print('after')"
WAITS = """
import time

def wait():
    print("ready", flush=True)
    time.sleep(30)

"""

SIGNALS = (
    Behaviour(
        "handlers-of-signals",
        """
        import signal

        for number in sorted(signal.valid_signals()):
            handler = signal.getsignal(number)
            print(number, getattr(handler, "__name__", handler))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """,
    ),
    Behaviour(
        "ignored-signals-stay-ignored",
        "import signal; print(*map(signal.getsignal, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)))",
        launcher=_shell('trap "" HUP INT QUIT; exec "$@"'),
    ),
    Behaviour("terminates-itself", ITSELF.format("SIGTERM")),
    Behaviour("interrupts-itself", ITSELF.format("SIGINT")),
    Behaviour("kills-itself", ITSELF.format("SIGKILL")),
    Behaviour("hangs-itself-up", ITSELF.format("SIGHUP"), thorough=True),
    Behaviour(
        "crashes",
        """
        import faulthandler
        import os
        import signal

        faulthandler.enable()

        def crash():
            os.kill(os.getpid(), signal.SIGSEGV)

        crash()
        """,
        launcher=_shell('ulimit -c 0; exec "$@"'),
    ),
    Behaviour(
        "own-handler-of-a-termination",
        """
        import os
        import signal
        import sys

        def ended(number, frame):
            print("ended", frame.f_lineno)
            sys.exit(5)

        signal.signal(signal.SIGTERM, ended)
        os.kill(os.getpid(), signal.SIGTERM)
        print("after")
        """,
    ),
    Behaviour("interrupted-from-outside", WAITS + "wait()", signal=signal.SIGINT),
    Behaviour("interrupted-with-its-group", WAITS + "wait()", signal=signal.SIGINT, to_group=True),
    Behaviour(
        "interrupted-once",
        WAITS
        + """
try:
    wait()
except KeyboardInterrupt:
    print("cleans up")
    time.sleep(0.3)
print("goes on")
raise SystemExit(6)
""",
        signal=signal.SIGINT,
        to_group=True,
    ),
    Behaviour(
        "interrupted-with-exit-handlers",
        "import atexit\natexit.register(print, 'exit')\n" + WAITS + "wait()",
        signal=signal.SIGINT,
        thorough=True,
    ),
    Behaviour("terminated-from-outside", WAITS + "wait()", signal=signal.SIGTERM),
    Behaviour(
        "own-handler-of-a-termination-from-outside",
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + WAITS + "wait()",
        signal=signal.SIGTERM,
    ),
    Behaviour(
        "own-handler-of-a-signal-of-its-own-from-outside",
        "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit('checkpoint'))\n" + WAITS + "wait()",
        signal=signal.SIGUSR1,
    ),
    Behaviour("hung-up-from-outside", WAITS + "wait()", signal=signal.SIGHUP, thorough=True),
    Behaviour(
        "killed-from-outside",
        """
        import time

        print("ready", flush=True)
        time.sleep(0.5)
        open("lives.txt", "w")
        """,
        signal=signal.SIGKILL,
    ),
    Behaviour(
        "without-hang-up",
        "import signal; print(signal.getsignal(signal.SIGHUP))\n" + WAITS.replace("30", "0.3") + "wait()",
        launcher=("nohup",),
        signal=signal.SIGHUP,
        thorough=True,
    ),
    Behaviour(
        "timer",
        """
        import signal
        import time

        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        time.sleep(0.3)
        """,
        thorough=True,
    ),
)

STREAMS = (
    Behaviour("input", "print(input('name? '), input())", stdin="first\nsecond\n"),
    Behaviour("input-at-the-end", "input()"),
    Behaviour(
        "input-in-bytes",
        "import sys; print(sys.stdin.buffer.read(), sys.stdin.encoding)",
        stdin="é\r\n",
        thorough=True,
    ),
    Behaviour(
        "input-that-it-leaves-goes-to-the-next-command",
        "print('reads nothing', flush=True)",
        stdin="first\nsecond\n",
        launcher=_shell('"$@"; cat'),
    ),
    Behaviour("no-stdin", "import sys; print(sys.stdin)", launcher=_shell('exec "$@" <&-')),
    Behaviour(
        "no-stdout",
        "import sys; print('lost'); print(sys.stdout, file=sys.stderr)",
        launcher=_shell('exec "$@" >&-'),
    ),
    Behaviour(
        "no-stderr",
        "import sys; print(sys.stderr); raise ValueError",
        launcher=_shell('exec "$@" 2>&-'),
    ),
    Behaviour(
        "bytes-that-are-not-utf-8",
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stderr.buffer.write(b'\\xff\\n')",
    ),
    Behaviour(
        "streams",
        """
        import sys

        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(type(stream), stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering)
            print(stream.isatty(), stream.write_through, stream.fileno())
        print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
        """,
    ),
    Behaviour(
        "order-of-streams",
        """
        import sys

        for number in range(20000):
            print("out", number)
            if number % 1000 == 0:
                print("err", number, file=sys.stderr)
        """,
        launcher=_shell('exec "$@" >&2'),
    ),
    Behaviour("broken-pipe", "print('x' * 1_000_000)", launcher=_shell('set -o pipefail; "$@" | head -c 1')),
    Behaviour(
        "death-by-a-broken-pipe",
        "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); print('x' * 1_000_000)",
        launcher=_shell('set -o pipefail; "$@" | head -c 1'),
        thorough=True,
    ),
    Behaviour("full-disk", "print('lost')", launcher=_shell('exec "$@" >/dev/full')),
    Behaviour(
        "own-streams",
        """
        import io
        import sys

        sys.stdout = sys.stderr = io.StringIO()
        print("lost")
        """,
        thorough=True,
    ),
    Behaviour(
        "stderr-closed-by-the-script",
        "import os, sys; print('last', file=sys.stderr); sys.stderr.close(); os.close(2); sys.exit(3)",
    ),
    Behaviour(
        "terminal",
        """
        import os
        import sys

        print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdout.line_buffering)
        print(os.ttyname(0) == os.ttyname(2), os.tcgetpgrp(0) == os.getpgrp(), os.get_terminal_size())
        print(input("ready? "))
        print("said", file=sys.stderr)
        """,
        terminal=True,
        stdin="mine\n",
    ),
    Behaviour("interrupted-on-a-terminal", WAITS + "wait()", terminal=True, stdin="\x03"),
    Behaviour(
        "interrupted-once-on-a-terminal",
        WAITS
        + """
try:
    wait()
except KeyboardInterrupt:
    print("cleans up")
    time.sleep(0.3)
raise SystemExit(6)
""",
        terminal=True,
        stdin="\x03",
        thorough=True,
    ),
)

INTROSPECTION = (
    Behaviour("printed-stack", "import traceback\ndef f():\n    traceback.print_stack()\n\nf()"),
    Behaviour(
        "formatted-exception",
        """
        import traceback

        try:
            [][1]
        except IndexError:
            print(traceback.format_exc())
        """,
        thorough=True,
    ),
    Behaviour("outermost-frame", "import inspect, sys; print(len(inspect.stack()), sys._getframe().f_back)"),
    Behaviour("recursion-limit", "import sys; print(sys.getrecursionlimit())", thorough=True),
    Behaviour(
        "dumped-stack",
        """
        import faulthandler

        print(faulthandler.is_enabled())

        def function():
            faulthandler.dump_traceback()

        function()
        """,
    ),
    Behaviour(
        "own-trace-function",
        """
        import sys
        import threading

        print(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
        lines = []

        def traced(frame, event, argument):
            lines.append((event, frame.f_code.co_name, frame.f_lineno))
            return traced

        def function():
            number = 1
            return number

        sys.settrace(traced)
        function()
        sys.settrace(None)
        print(lines)
        """,
    ),
    Behaviour(
        "own-profile-function",
        """
        import sys

        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append((event, frame.f_code.co_name)))
        sorted([2, 1], key=lambda number: number)
        sys.setprofile(None)
        print(calls)
        """,
    ),
    Behaviour(
        "own-trace-function-until-the-end",
        """
        import atexit
        import sys

        import beside

        names = []

        def traced(frame, event, argument):
            names.append(frame.f_code.co_name)

        atexit.register(lambda: print(names))
        sys.settrace(traced)
        beside.function()
        """,
        files={"beside.py": "def function(): ...\n"},
        thorough=True,
    ),
    Behaviour(
        "monitoring-tools",
        """
        import sys

        monitoring = getattr(sys, "monitoring", None)
        print(monitoring and [monitoring.get_tool(number) for number in range(6)])
        """,
        thorough=True,
    ),
    Behaviour(
        "garbage-collection", "import gc; print(gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.get_debug())"
    ),
    Behaviour(
        "builtins",
        """
        import builtins
        import io

        print(sorted(vars(builtins)), print.__module__, open is io.open)
        """,
        thorough=True,
    ),
    Behaviour(
        "context-variables",
        "import contextvars; print(len(contextvars.copy_context()))",
        thorough=True,
    ),
    Behaviour(
        "logging-at-the-start",
        """
        import logging

        print(logging.root.handlers, logging.root.level, sorted(logging.root.manager.loggerDict))
        logging.warning("by the last resort")
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("mine").info("said")
        """,
    ),
    Behaviour(
        "path-hooks",
        "import sys; print([getattr(hook, '__qualname__', hook) for hook in sys.path_hooks])",
        thorough=True,
    ),
    Behaviour("memory-tracing", "import tracemalloc; print(tracemalloc.is_tracing())", thorough=True),
)

WARNINGS = (
    Behaviour(
        "warning-of-the-script",
        """
        import warnings

        def careless():
            warnings.warn("beware")

        careless()
        careless()
        """,
    ),
    Behaviour(
        "warning-at-the-caller",
        """
        import steps

        steps.careless()
        """,
        files={"steps.py": "import warnings\n\ndef careless():\n    warnings.warn('beware', stacklevel=2)\n"},
    ),
    Behaviour("deprecation-in-main", "import warnings; warnings.warn('old', DeprecationWarning)"),
    Behaviour(
        "deprecation-in-a-module",
        "import steps",
        files={"steps.py": "import warnings\nwarnings.warn('old', DeprecationWarning)\n"},
        thorough=True,
    ),
    Behaviour(
        "warning-at-a-caller-that-is-not-there",
        "import warnings; warnings.warn('beware', stacklevel=2)",
        thorough=True,
    ),
    Behaviour("warning-as-an-error", "import warnings; warnings.simplefilter('error'); warnings.warn('beware')"),
    Behaviour(
        "filters-of-warnings",
        "import warnings; print(warnings.filters, warnings.showwarning.__module__)",
        thorough=True,
    ),
    Behaviour(
        "recorded-warnings",
        """
        import warnings

        with warnings.catch_warnings(record=True) as recorded:
            warnings.warn("beware", stacklevel=1)
        print(recorded[0].filename, recorded[0].lineno, len(recorded))
        """,
        thorough=True,
    ),
    Behaviour(
        "unclosed-file",
        "import warnings; warnings.simplefilter('always'); kept = open('theirs.py')",
        thorough=True,
    ),
)

DOUBLE = """
import os
import sys

def double(number):
    return 2 * number

"""

PROCESSES = (
    Behaviour(
        "forked-process",
        DOUBLE
        + """
child = os.fork()
if child == 0:
    with open("child.txt", "w") as file:
        file.write(f"{double(21)} {sys.argv} {__file__}")
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        arguments=("x",),
    ),
    Behaviour(
        "forked-process-that-ends-as-a-script-does",
        """
        import atexit
        import os
        import sys

        atexit.register(print, "exit handler")
        child = os.fork()
        if child == 0:
            print("child")
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    ),
    Behaviour(
        "spawned-processes",
        DOUBLE
        + """
import multiprocessing

print("imported", __name__, sys.argv, flush=True)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, range(3)))
""",
        arguments=("x",),
    ),
    Behaviour(
        "spawned-process-without-a-guard",
        """
        import multiprocessing

        process = multiprocessing.get_context("spawn").Process(target=print)
        process.start()
        process.join()
        print(process.exitcode)
        """,
        thorough=True,
    ),
    Behaviour(
        "process-of-a-fork-server",
        DOUBLE
        + """
import multiprocessing

if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(double, range(3)))
""",
        thorough=True,
    ),
    Behaviour(
        "pool-of-processes",
        DOUBLE
        + """
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        print(list(pool.map(double, range(3))))
        pool.submit(divmod, 1, 0).result()
""",
    ),
    Behaviour(
        "python-started-by-the-script",
        """
        import subprocess
        import sys
        import textwrap

        text = '''
        import os, sys
        print(sys.argv, sys.orig_argv, sorted(os.environ.items()), sys.path, sys.flags)
        print(sorted(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
        import sitecustomize
        '''
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text), "x"])
        print(done.returncode)
        """,
    ),
    Behaviour(
        "script-started-by-itself",
        """
        import subprocess
        import sys

        print(sys.argv, flush=True)
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, __file__, "again"])
        """,
    ),
    Behaviour(
        "coroutines",
        """
        import asyncio

        async def double(number):
            await asyncio.sleep(0.01)
            return 2 * number

        async def main():
            print(await asyncio.gather(double(1), double(2)), type(asyncio.get_running_loop()))
            lost = asyncio.create_task(fail(), name="lost")
            await asyncio.sleep(0.01)

        async def fail():
            raise ValueError("raised")

        asyncio.run(main())
        asyncio.run(fail())
        """,
    ),
)

CLIENTS = (
    _dask(
        "client-after-a-look-for-distributed",
        """
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result())
        """,
        before="""
            import importlib.util

            assert importlib.util.find_spec("distributed")
            """,
        thorough=True,
    ),
    _dask(
        "computed-results",
        """
        import dask.bag

        def double(number):
            return 2 * number

        with Client(**FEW) as client:
            print(dask.compute(dask.delayed(double)(1), dask.delayed(double)("x")))
            print(client.gather(client.map(double, [1, 2])))
            print(dask.bag.from_sequence(range(9), npartitions=3).map(double).sum().compute())
        """,
        thorough=True,
    ),
    _dask(
        "exception-of-a-task",
        """
        def parse(text):
            return int(text)

        client = Client(**FEW)
        client.submit(parse, "x").result()
        """,
    ),
    _dask(
        "exception-of-a-computed-graph",
        """
        import dask

        @dask.delayed(pure=True)
        def parse(text):
            return int(text)

        with Client(**FEW):
            dask.compute(parse("1"), parse("x"))
        """,
        thorough=True,
    ),
    _dask(
        "exception-within-a-decorated-function-of-dask",
        """
        import dask.array

        with Client(**FEW):
            dask.array.ones(3, dtype="wrong")
        """,
    ),
    _dask(
        "exception-while-a-client-is-open",
        """
        def main():
            with Client(**FEW) as client:
                client.submit(divmod, 7, 2).result()
                raise KeyError("mine")

        main()
        """,
        thorough=True,
    ),
    _dask(
        "exit-while-a-client-is-open",
        """
        import os
        import sys

        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result())
            sys.exit(3)
        """,
        thorough=True,
    ),
    _dask(
        "exit-without-clearing-while-a-client-is-open",
        """
        import os

        client = Client(**FEW)
        print(client.submit(divmod, 7, 2).result(), flush=True)
        os._exit(7)
        """,
        thorough=True,
    ),
    _dask(
        "killed-while-a-client-is-open",
        """
        import os
        import signal

        client = Client(**FEW)
        print(client.submit(divmod, 7, 2).result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        thorough=True,
    ),
    _dask(
        "interrupted-while-it-waits-for-a-task",
        """
        import time

        with Client(**FEW) as client:
            future = client.submit(time.sleep, 1)
            print("ready", flush=True)
            future.result()
        """,
        signal=signal.SIGINT,
    ),
    _dask(
        "client-that-finds-no-scheduler",
        """
        import traceback

        def main():
            Client("tcp://127.0.0.1:9", timeout="1s")

        try:
            main()
        except OSError:
            traceback.print_exc(chain=False)  # Its causes depend on which attempt was the last.
        """,
        judged=False,
    ),
    _dask(
        "client-with-a-wrong-option",
        "Client(n_wrokers=1, **FEW)",
        judged=False,
        thorough=True,
    ),
    _dask(
        "wrong-call-of-a-method",
        """
        with Client(**FEW) as client:
            client.submit()
        """,
        thorough=True,
    ),
    _dask(
        "file-that-is-missing",
        """
        import dask.dataframe as dd

        with Client(**FEW):
            dd.read_csv("missing.csv")
        """,
        thorough=True,
    ),
    _dask(
        "classes-of-dask",
        """
        import inspect

        methods = (Client.__init__, Client.close, Client.submit, Client.compute, Client.gather, LocalCluster.__init__)
        for method in methods:
            code = inspect.unwrap(method).__code__
            print(method.__qualname__, method.__module__, inspect.signature(method), code.co_name, code.co_filename)
            print(inspect.getsource(method)[:100], inspect.getsourcelines(method)[1], sorted(vars(method)))
        print(inspect.signature(Client), sorted(vars(Client)), Client.__mro__)
        """,
        judged=False,
    ),
    _dask(
        "subclass-of-a-client",
        """
        class Mine(Client):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **FEW, **options)
                self.closed = 0

            def close(self, *arguments, **options):
                self.closed += 1
                return super().close(*arguments, **options)

        with Mine(name="mine") as client:
            print(client.submit(divmod, 7, 2).result(), isinstance(client, Client), type(client))
        print(client.closed, client.status)
        """,
        thorough=True,
    ),
    _dask(
        "patched-client",
        """
        calls = []
        original = Client.submit

        def submit(self, *arguments, **options):
            calls.append(arguments)
            return original(self, *arguments, **options)

        Client.submit = submit
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result(), calls)
        Client.submit = original
        """,
        thorough=True,
    ),
    _dask(
        "facts-of-a-cluster",
        """
        with Client(**FEW) as client:
            workers = client.scheduler_info()["workers"].values()
            print([(worker["nthreads"], worker["resources"]) for worker in workers], list(client.nthreads().values()))
            print(client.cluster.status, client.status, client.asynchronous, client.futures, client.generation)
            print(repr(client), list(client.get_versions()))
        """,
        thorough=True,
    ),
    _dask(
        "keys",
        """
        import dask.bag
        from dask.base import tokenize

        def double(number):
            return 2 * number

        with Client(**FEW) as client:
            print(client.submit(double, 1).key, tokenize(double), dask.delayed(double, pure=True)(1).key)
            print(dask.bag.from_sequence([1]).map(double).name)
        """,
    ),
    _dask(
        "stack-of-submit-and-compute",
        """
        import sys
        from pathlib import Path

        import dask

        class Told:
            def __dask_tokenize__(self):
                frame = sys._getframe()
                while frame := frame.f_back:
                    print(Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno)
                print()
                return "told"

        def ignore(told): ...

        with Client(**FEW) as client:
            client.submit(ignore, Told()).result()
            dask.compute(dask.delayed(ignore, pure=True)(Told()), Told())
        """,
    ),
    _dask(
        "stack-of-a-task",
        """
        import sys
        from pathlib import Path

        def stack(number):
            frame, names = sys._getframe(), []
            while frame := frame.f_back:
                names.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno))
            return names

        with Client(**FEW) as client:
            print(*client.submit(stack, 1).result(), sep="\\n")
        """,
    ),
    Behaviour(
        "exception-in-a-worker-process",
        DOUBLE
        + """
def parse(text):
    return int(text), os.environ

if __name__ == "__main__":
    from distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        print(client.submit(double, 1).result(), client.submit(lambda: (__name__, sys.argv, __file__)).result())
        client.submit(parse, "x").result()
""",
        arguments=("x",),
        judged=True,
    ),
    Behaviour(
        "environment-of-a-worker-process",
        """
        import os
        import sys

        def told():
            path = [each for each in sys.path if "dask-scratch-space" not in each]
            return sorted(os.environ), path, repr(sys.flags), sys.warnoptions

        if __name__ == "__main__":
            from distributed import Client

            with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
                print(*client.submit(told).result(), sep="\\n")
        """,
        environment={"PYTHONPATH": "lib"},
        judged=True,
        thorough=True,
    ),
    _dask(
        "client-that-is-collected",
        """
        import gc
        import weakref

        def used():
            client = Client(**FEW)
            print(client.submit(divmod, 7, 2).result())
            client.close()
            return weakref.ref(client), weakref.ref(client.cluster)

        kept = used()
        gc.collect()
        print([ref() is None for ref in kept])
        """,
    ),
    _dask(
        "clients-in-threads",
        """
        from concurrent.futures import ThreadPoolExecutor

        def used(number):
            with Client(**FEW, set_as_default=False) as client:
                return client.submit(divmod, number, 2).result()

        with ThreadPoolExecutor(2) as pool:
            print(list(pool.map(used, [7, 8])))
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "as-completed",
        """
        from distributed import as_completed

        with Client(**FEW) as client:
            for future, result in as_completed(client.map(divmod, [7, 8, 9], [2, 2, 2]), with_results=True):
                print(future.status, result)
        """,
        thorough=True,
    ),
    _dask(
        "joblib",
        """
        import joblib

        with Client(**FEW), joblib.parallel_config(backend="dask"):
            print(joblib.Parallel()(joblib.delayed(divmod)(number, 2) for number in range(4)))
        """,
        thorough=True,
    ),
    _dask(
        "asynchronous-client",
        """
        import asyncio

        async def main():
            async with Client(asynchronous=True, **FEW) as client:
                print(await client.submit(divmod, 7, 2), await client.gather(client.map(abs, [-1, -2])))
                await client.submit(divmod, 1, 0)

        asyncio.run(main())
        """,
        judged=False,
    ),
    _dask(
        "client-that-is-never-closed",
        """
        import atexit

        client = Client(**FEW)
        atexit.register(lambda: print("last registered", client.status))
        print(client.submit(divmod, 7, 2).result())
        """,
        before=QUIET + "import atexit\natexit.register(print, 'first registered')\n",
    ),
    _dask(
        "cluster-closed-before-its-client",
        """
        cluster = LocalCluster(**FEW)
        client = Client(cluster)
        print(client.submit(divmod, 7, 2).result())
        cluster.close()
        print(cluster.status, client.status)
        client.close()
        print(client.status)
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "shut-down-by-its-client",
        """
        client = Client(**FEW)
        print(client.submit(divmod, 7, 2).result())
        client.shutdown()
        print(client.status)
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "clients-within-tasks",
        """
        from distributed import get_client, worker_client

        def outer():
            with worker_client() as client:
                return client.submit(divmod, 7, 2).result(), get_client() is client

        with Client(**FEW) as client:
            print(client.submit(outer).result(), Client.current() is client)
        """,
        thorough=True,
    ),
    _dask(
        "own-plugin-of-the-scheduler",
        """
        from distributed import SchedulerPlugin

        class Seen(SchedulerPlugin):
            seen = []

            def transition(self, key, start, finish, *arguments, **options):
                self.seen.append((key, start, finish))

        with Client(**FEW) as client:
            client.register_plugin(Seen())
            future = client.submit(divmod, 7, 2, key="mine")
            future.result()
            plugin = next(each for each in client.cluster.scheduler.plugins.values() if type(each).__name__ == "Seen")
            print(*plugin.seen, sep="\\n")
        """,
        thorough=True,
    ),
    _dask(
        "printing-task",
        """
        import sys

        def said(number):
            print("out", number)
            print("err", number, file=sys.stderr)

        with Client(**FEW) as client:
            client.gather([client.submit(said, 1)])
        """,
        thorough=True,
    ),
    _dask(
        "logging-of-distributed",
        """
        with Client(**FEW, silence_logs=False) as client:
            client.submit(divmod, 7, 2).result()
        for line in sorted(re.sub(r"\\S*\\d\\S*", "#", line) for line in seen):
            print(line)
        """,
        before="""
            import logging
            import re

            seen = []

            class Kept(logging.Handler):
                def emit(self, record):
                    seen.append(f"{record.name} {record.levelname} {record.getMessage()}")

            logging.basicConfig(level=logging.INFO, handlers=[Kept()])
            """,
    ),
    _dask(
        "logging-after-a-client",
        """
        import logging

        def told():
            print(logging.root.handlers, logging.root.level)
            for name in ("distributed", "distributed.client", "distributed.worker", "tornado", "asyncio", "mine"):
                logger = logging.getLogger(name)
                print(name, logger.level, logger.propagate, logger.disabled, [type(each) for each in logger.handlers])

        told()
        with Client(**FEW) as client:
            client.submit(divmod, 7, 2).result()
            told()
        told()
        """,
        thorough=True,
    ),
    _dask(
        "configuration",
        """
        import hashlib
        import json

        import dask

        with Client(**FEW) as client:
            text = json.dumps(dask.config.config, sort_keys=True, default=str)
            print(hashlib.sha256(text.encode()).hexdigest(), len(dask.config.defaults), dask.config.get("mine"))
            print(dask.config.get("scheduler", None), dask.config.get("distributed.comm.timeouts.connect"))
        """,
        before="""
            import dask

            dask.config.set({"distributed.comm.timeouts.connect": "7s", "mine": {"number": 1}})
            """,
    ),
    _dask(
        "modules-that-distributed-imports",
        """
        import sys

        packages = ("dask", "distributed", "numpy", "pandas")
        print(sorted(name for name in sys.modules if name.partition(".")[0] in packages))
        """,
        judged=False,
    ),
    _dask(
        "modules-that-a-client-imports",
        """
        import sys

        with Client(**FEW) as client:
            client.submit(divmod, 7, 2).result()
        packages = ("dask", "distributed", "numpy", "pandas")
        print(sorted(name for name in sys.modules if name.partition(".")[0] in packages))
        """,
    ),
    _dask(
        "warning-of-dask-at-the-caller",
        """
        def main():
            return LocalCluster(start=True, **FEW)

        main().close()
        """,
        judged=False,
    ),
    _dask(
        "warning-of-a-large-graph",
        """
        with Client(**FEW) as client:
            print(client.submit(len, bytes(20_000_000)).result())
        """,
        thorough=True,
    ),
    _dask(
        "forked-process-while-a-client-is-open",
        """
        import os
        import warnings

        warnings.simplefilter("ignore")
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result(), flush=True)
            child = os.fork()
            if child == 0:
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        thorough=True,
    ),
    Behaviour(
        "threads-of-dask-without-a-client",
        """
        import dask

        @dask.delayed
        def parse(text):
            return int(text)

        print(dask.compute(parse("1"), parse("2"), scheduler="threads"))
        parse("x").compute(scheduler="sync")
        """,
    ),
    Behaviour(
        "processes-of-dask-without-a-client",
        DOUBLE
        + """
import dask

if __name__ == "__main__":
    print(dask.compute([dask.delayed(double)(number) for number in range(3)], scheduler="processes", num_workers=1))
""",
        thorough=True,
    ),
)

BEHAVIOURS = (
    *SCRIPT,
    *MODULE,
    *ENVIRONMENT,
    *MODULES,
    *ENDINGS,
    *SIGNALS,
    *STREAMS,
    *INTROSPECTION,
    *WARNINGS,
    *PROCESSES,
    *CLIENTS,
)
