from __future__ import annotations

import os

import pytest

from scalescope.errors import InvalidField
from scalescope.model.environment import Environment


@pytest.mark.parametrize("text", ["", "present", " present ", "now = present"])
def test_empty_text_and_present_mean_the_present_environment(text: str) -> None:
    environment = Environment.parse(text)
    assert environment.present
    assert environment.text == ""
    assert environment.label in ("present", "now")


def test_a_named_environment_is_parsed_into_name_python_and_requirements() -> None:
    environment = Environment.parse("2023 = python==3.11 dask[distributed]==2023.5.0 apache-beam==2.47.0")
    assert (environment.name, environment.label) == ("2023", "2023")
    assert environment.python_version == "3.11"
    assert environment.requirements == ("apache-beam==2.47.0", "dask[distributed]==2023.5.0")
    assert environment.text == "python==3.11 apache-beam==2.47.0 dask[distributed]==2023.5.0"
    assert not environment.present


@pytest.mark.parametrize("text", ["foo==1", "foo===1", "foo>=1", "foo~=1.0", "foo!=1", "foo<=1", "foo<1"])
def test_a_requirement_is_not_taken_for_a_name(text: str) -> None:
    environment = Environment.parse(text)
    assert environment.name == ""
    assert environment.requirements == (text,)


@pytest.mark.parametrize(
    "text",
    [
        "B.b_c[y,X]>=1,<2 a==1",
        "a==1 b-b-c[x,y]<2,>=1",
        "any = a == 1  b-b-c[x,y] >= 1, < 2",
        "a==1 a==1 b_b_c[x,y]<2,>=1",
    ],
)
def test_requirements_written_in_different_ways_have_one_canonical_text(text: str) -> None:
    assert Environment.parse(text).text == "a==1 b-b-c[x,y]<2,>=1"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/opt/old one/bin/python", "/opt/old one/bin/python"),
        ("old = /opt/python@3.11/bin/../bin/python", "/opt/python@3.11/bin/python"),
        ("~/venv/bin/python", os.path.expanduser("~/venv/bin/python")),
        ("venv/bin/python", os.path.abspath("venv/bin/python")),
    ],
)
def test_a_path_of_an_interpreter_is_made_absolute(text: str, path: str) -> None:
    environment = Environment.parse(text)
    assert environment.python == environment.text == path
    assert environment.requirements == ()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("A_b[c] @ git+https://example.org/x", "a-b[c]@git+https://example.org/x"),
        ("a@git+ssh://git@example.org/x@feature/y b==1", "a@git+ssh://git@example.org/x@feature/y b==1"),
        ("n = a @ /folder/x @ v1", "a@git+file:///folder/x@v1"),
        ("a@~/x", f"a@git+file://{os.path.expanduser('~/x')}"),
    ],
)
def test_a_requirement_from_a_git_repository_gets_a_canonical_text(text: str, canonical: str) -> None:
    assert Environment.parse(text).text == canonical
    assert Environment.parse(canonical).text == canonical


@pytest.mark.parametrize("text", ["", "x = /a b/python", "python==3.12.1 z a[b]>1", "dask"])
def test_parsing_the_canonical_text_gives_the_same_text_again(text: str) -> None:
    once = Environment.parse(text).text
    assert Environment.parse(once).text == once


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-r requirements.txt", "options are refused"),
        ("dask -e .", "options are refused"),
        ("dask --index-url=x", "options are refused"),
        ("git+https://example.org/x", "addresses are refused"),
        ("dask@https://example.org/x", "addresses are refused"),
        ("a @ b", "addresses are refused"),
        ("a @ git+http://example.org/x", "addresses are refused"),
        ("a @ git+https://me:secret@example.org/x", "addresses are refused"),
        ("a @ git+https://example.org/x@-x", "addresses are refused"),
        ("dask;python_version>'3'", "markers are not allowed"),
        ("dask ./folder", "a path among requirements"),
        ("foo=1", "write the requirement as"),
        ("dask,distributed", "write the requirement as"),
        ("dask==", "write the requirement as"),
        ("$(id)", "write the requirement as"),
        ("python>=3.11", "exact version of Python"),
        ("python", "exact version of Python"),
        ("python==3.10 dask", "3.11 or newer"),
        ("python==3.11 python==3.12", "one version of Python"),
    ],
)
def test_invalid_text_of_an_environment_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidField, match=reason) as caught:
        Environment.parse(text, "axes.environment")
    assert caught.value.field == "axes.environment"


def test_an_error_does_not_show_the_password_in_an_address() -> None:
    with pytest.raises(InvalidField) as caught:
        Environment.parse("git+https://me:secret@example.org/x")
    assert "secret" not in str(caught.value)
