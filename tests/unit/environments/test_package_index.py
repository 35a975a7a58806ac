from __future__ import annotations

from typing import Any

import pytest

from scalescope.environments import changelog, ensure, releases
from scalescope.environments import package_index as module
from scalescope.errors import EnvironmentFailed, EnvironmentUnavailable, InvalidField
from scalescope.model.environment import Environment


@pytest.mark.usefixtures("cache")
class TestReleases:
    def test_releases_are_listed_oldest_first_in_version_order(self) -> None:
        found = releases("Tiny_Thing")
        assert [release.version for release in found] == ["1.0", "1.1", "1.9", "1.10", "2.0"]
        assert found[0].requirement == "tiny-thing==1.0"

    def test_releases_are_limited_to_the_given_range(self) -> None:
        assert [release.version for release in releases("tiny-thing", first="1.1", last="1.10")] == [
            "1.1",
            "1.9",
            "1.10",
        ]

    def test_releases_can_be_listed_for_another_python(self) -> None:
        assert len(releases("tiny-thing", python_version="3.12")) == 5

    def test_no_more_than_the_maximum_number_of_releases_is_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_RELEASES", 2)
        assert [release.version for release in releases("tiny-thing")] == ["1.10", "2.0"]

    def test_a_range_without_releases_is_refused(self) -> None:
        with pytest.raises(EnvironmentFailed, match="the versions"):
            releases("tiny-thing", first="3")

    @pytest.mark.parametrize(
        ("package", "bounds"),
        [("-r x", {}), ("", {}), ("a b", {}), ("dask", {"first": ">1"}), ("dask", {"last": "1,2"})],
    )
    def test_invalid_package_names_and_bounds_are_refused(self, package: str, bounds: dict[str, str]) -> None:
        with pytest.raises(InvalidField):
            releases(package, **bounds)


@pytest.mark.usefixtures("cache")
def test_the_changelog_of_a_package_comes_from_its_project_urls() -> None:
    built = ensure(Environment.parse("tiny-thing==1.0"))
    assert changelog(built, "tiny-thing") == "https://tiny.example/news"
    assert changelog(built, "distributed") == ""
    with pytest.raises(EnvironmentFailed, match="no package nothing"):
        changelog(built, "nothing")


def test_a_real_package_index_lists_releases_and_an_environment_is_built(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, missing: Any
) -> None:
    """One release of a small package, and a driver's own needs, from wherever uv is set up to take them."""
    monkeypatch.setenv("SCALESCOPE_ENVIRONMENTS", f"{tmp_path}/environments")
    try:
        found = releases("six", first="1.15.0", last="1.16.0")
    except EnvironmentUnavailable as error:
        missing("environments", f"uv reaches no package index: {error.cause.splitlines()[0]}")
    assert [release.version for release in found] == ["1.15.0", "1.16.0"]
    built = ensure(Environment.parse("six==1.16.0"))
    assert built.packages["six"] == "1.16.0"
    assert "distributed" in built.packages
