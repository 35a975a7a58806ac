from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from scalescope.capture.sent_code import with_file


def test_a_line_of_the_script_gets_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "mine.py"
    script.write_text("def load(n):\n    return n\n\n\ndef other():\n    map(lambda n: n, ())\n")
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert with_file("line 2 in load") == "line 2 in load"  # as in a notebook
    main.__file__ = str(script)
    assert with_file("line 2 in load") == "mine.py:2 in load"
    assert with_file("line 6 in <lambda>") == "mine.py:6 in <lambda>"
    for elsewhere in ("line 6 in load", "line 2 in clean", "b.py:2 in load", "line 2", ""):
        assert with_file(elsewhere) == elsewhere
    assert with_file("line 2 in load", ["gone.py", str(script)]) == "mine.py:2 in load"
    main.__file__ = str(tmp_path / "gone.py")
    assert with_file("line 2 in load") == "line 2 in load"
