"""Parameters of studies and isolations, each declared once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pkgutil import resolve_name
from typing import Any

import pytest

from scalescope.errors import InvalidField
from scalescope.fixing.parameters import FixParameters
from scalescope.isolation.parameters import IsolationParameters
from scalescope.model.parameters import check, declared
from scalescope.studies import STUDIES, StudyType
from scalescope.studies.comparison.judge import ComparisonQuestion
from scalescope.studies.release.judge import ReleaseQuestion
from scalescope.studies.threshold.question import ThresholdQuestion

CLASSES: dict[str, Any] = {each.command: each.parameters for each in STUDIES.values()} | {
    "isolate": IsolationParameters,
    "fix": FixParameters,
}
QUESTIONS: dict[str, Any] = {
    "find-threshold": ThresholdQuestion(1, 2),
    "find-release": ReleaseQuestion(("1", "2")),
    "compare": ComparisonQuestion(),
}


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_functions_named_in_the_table_of_studies_exist(study: StudyType) -> None:
    for module, names in ((study.plan, ("ask", "check")), (study.report, ("sheet", "picture"))):
        assert all(callable(getattr(resolve_name(module), name)) for name in names if module)
    assert study.summary.endswith(".")


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_parameter_of_a_study_has_a_valid_default_and_a_help_sentence(cls: Any) -> None:
    assert check(cls, {}) == cls()
    found = declared(cls)
    assert {each.name for each in found} == set(asdict(cls()))
    assert all(each.about.help.endswith(".") for each in found)
    options = [option for each in found for option in each.about.option]
    assert len(set(options)) == len(options)
    assert all(each.check(each.default) == each.default for each in found)


@pytest.mark.parametrize(("flow", "question"), QUESTIONS.items(), ids=QUESTIONS)
def test_a_question_has_the_same_defaults_as_its_parameters(flow: str, question: Any) -> None:
    given = asdict(CLASSES[flow]())
    names = {"max_points", "max_repeats", "min_jump", "max_pairs", "smallest_effect"}
    shared = {name for name in names if hasattr(question, name)}
    assert shared
    assert {name: getattr(question, name) for name in shared} == {name: given[name] for name in shared}


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("name", "value"), [("minutes", 0), ("minutes", float("nan")), ("run", 3), ("no_such", 1)])
def test_an_invalid_parameter_is_refused_by_its_name(cls: Any, name: str, value: object) -> None:
    with pytest.raises(InvalidField) as raised:
        check(cls, {name: value})
    assert raised.value.field == name


def test_importing_the_study_declarations_imports_no_heavy_package() -> None:
    """The command line imports the declarations in every call."""
    script = (
        "import sys\n"
        "from scalescope.studies import STUDIES\n"
        "from scalescope.isolation.parameters import IsolationParameters\n"
        "assert all(each.parameters for each in STUDIES.values())\n"
        "print({'numpy', 'sqlalchemy', 'distributed', 'prefect', 'rich'} & set(sys.modules) or 'none')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "none"
