from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from scalescope.errors import InvalidField
from scalescope.store import Store
from scalescope.store.location import holds_password, locate, redact

SECRETS = ["hunter2", "p%40ss%2Fword", "p@ss/word"]


def test_a_path_and_a_sqlite_address_locate_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for address in (str(path), f"sqlite:///{path}"):
        location = locate(address)
        assert (location.path, location.default_records, location.shown) == (path, tmp_path / "records", str(path))


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("a.db").path == locate("sqlite:///a.db").path == tmp_path / "a.db"


def test_a_tilde_in_the_path_means_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~/a.db").path == tmp_path / "a.db"


def test_the_default_store_follows_scalescope_store_and_xdg_data_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SCALESCOPE_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert locate("").path == tmp_path / ".local/share/scalescope/scalescope.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the XDG specification says to ignore relative paths
    assert locate("").path == tmp_path / ".local/share/scalescope/scalescope.db"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert locate("").path == tmp_path / "data/scalescope/scalescope.db"
    assert locate("postgresql://db/x").default_records == tmp_path / "data/scalescope/records"
    monkeypatch.setenv("SCALESCOPE_STORE", str(tmp_path / "team.db"))
    assert locate("").path == tmp_path / "team.db"
    assert locate("other.db").path == Path.cwd() / "other.db"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_postgresql_scheme_becomes_psycopg(scheme: str) -> None:
    location = locate(f"{scheme}://ann:hunter2@db:5433/results?sslmode=require")
    assert location.path is None
    assert location.url.drivername == "postgresql+psycopg"
    assert (location.url.password, location.url.port) == ("hunter2", 5433)
    assert location.shown == "postgresql+psycopg://ann:***@db:5433/results?sslmode=require"
    assert "hunter2" not in repr(location)


def test_an_unquoted_password_is_refused_with_an_explanation() -> None:
    with pytest.raises(InvalidField, match="%40"):
        locate("postgresql://ann:p@ss/word@db/results")


@pytest.mark.parametrize(
    "address",
    [":memory:", "sqlite://", "sqlite:///:memory:", "sqlite://host/path", "sqlite:///a.db?mode=ro", "mysql://u@h/d",
     "postgresql://u@h", "postgresql://u@h:port/d", "s3://bucket/key", "://", "https://example.org"],
)  # fmt: skip
def test_addresses_of_other_databases_are_refused(address: str) -> None:
    with pytest.raises(InvalidField, match="sqlite:///PATH or postgresql://") as error:
        locate(address)
    assert error.value.field == "store"


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "address",
    [
        "mysql://u:{}@h/d",
        "postgresql://u:{}@h:port/d",
        "postgresql://u:{}@h",
        "postgresql://h?password={}",
        "x://:{}@h",
    ],
)
def test_a_wrong_address_does_not_show_its_password(address: str, secret: str) -> None:
    try:
        shown = locate(address.format(secret)).shown
    except InvalidField as error:
        shown = "".join(traceback.format_exception(error)) + repr(error.__dict__)
    assert secret not in shown
    assert "***" in shown


@pytest.mark.parametrize("secret", SECRETS[:2])
def test_a_password_in_the_query_is_hidden(secret: str) -> None:
    assert secret not in locate(f"postgresql://db/x?user=u&password={secret}").shown


def test_redact_does_not_change_addresses_without_a_password() -> None:
    for text in ("memory://a/b", "s3://bucket/a:b@c", "postgresql://u@h/d", "a sentence: at x@y"):
        assert redact(text) == text
        assert not holds_password(text)


def test_an_address_of_records_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="without a password") as error:
        Store.open(str(tmp_path / "a.db"), "ftp://u:hunter2@h/x")
    assert "hunter2" not in str(error.value)
    assert not (tmp_path / "a.db").exists()
