from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.blocks.core import Block
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import BlockDocumentCreate
from prefect.utilities.dispatch import get_registry_for_type
from pydantic import ValidationError

import scalescope_blocks as blocks
from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import kinds
from scalescope.model.parameters import declared
from scalescope_blocks.clusters import BLOCKS, ClusterBlock


def test_every_proven_cluster_kind_has_a_block() -> None:
    assert BLOCKS.keys() == {kind for kind, spec in kinds().items() if spec.proven}
    assert {"SimulatedCluster", "RunningScheduler", "SshCluster", "ResultStore", "saved"} < set(blocks.__all__)
    assert all(getattr(blocks, block.__name__) is block for block in BLOCKS.values())
    with pytest.raises(AttributeError):
        blocks.PbsCluster  # noqa: B018


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_has_the_fields_of_its_cluster_specification(kind: str) -> None:
    block, spec = BLOCKS[kind], kinds()[kind]
    assert set(block.model_fields) == {item.name for item in dataclasses.fields(spec)}
    needed = kinds()[kind].example
    assert block(**needed).spec() == spec(**needed)
    assert all(item.description for item in block.model_fields.values())


def test_fields_of_a_block_reach_the_cluster_specification() -> None:
    assert blocks.SimulatedCluster(task_cost="cpu", scheduler_us=30).spec() == SimulatedSpec("cpu", scheduler_us=30)
    assert blocks.LightCluster(hosts=3, check_limit=False).spec() == LightSpec(hosts=3, check_limit=False)
    assert blocks.LocalCluster(memory_limit_mb=512).spec() == LocalSpec(512)


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("light", {"hosts": -1}, "cluster.hosts: expected a whole number from 0 to 64, got -1"),
        ("local", {"start_timeout_s": 0}, "cluster.start_timeout_s"),
        ("simulated", {"durations": {"a": 1.0}}, 'only together with task_cost = "recorded"'),
        ("simulated", {"task_cost": "free"}, "task_cost"),
        ("light", {"host": 2}, "Extra inputs are not permitted"),
        ("slurm", {"walltime": "soon"}, "cluster.walltime"),
        ("slurm", {"gpus": 2, "workers_per_job": 8}, "every worker has a GPU of its own"),
        ("ssh", {"hosts": []}, "at least one machine"),
        ("kubernetes", {"groups": {"gpu": {"gpu": 1}}}, "did you mean 'gpus'"),
        ("custom", {"cluster_class": "a:B", "arguments": {"api_key": "x"}}, "no value that looks like a secret"),
    ],
)
def test_a_block_with_an_invalid_field_is_refused(kind: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        BLOCKS[kind](**fields)


def test_prefect_knows_which_fields_of_a_block_are_secret() -> None:
    assert blocks.CustomCluster.model_json_schema()["secret_fields"] == ["secrets"]
    assert blocks.ResultStore.model_json_schema()["secret_fields"] == ["password"]


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_form_of_a_block_has_titles_help_and_limits_without_tabs(kind: str) -> None:
    properties = BLOCKS[kind].model_json_schema()["properties"]
    for each in declared(kinds()[kind]):
        field = properties[each.name]
        assert (field["title"], field["description"]) == (each.title, each.explained)
        assert "_" not in field["title"]
        assert "anyOf" not in field
        assert (field.get("minimum"), field.get("maximum")) == (each.about.minimum, each.about.maximum)


def test_titles_of_fields_contain_their_units() -> None:
    titles = {each.name: each.title for kind in kinds().values() for each in declared(kind)}
    assert titles["scheduler_us"].startswith("Scheduler cost")
    assert titles["start_timeout_s"] == "Start timeout, s"
    assert titles["memory_mb"] == "Memory per job, MiB"
    assert titles.pop("cpu_ms_per_mb") == "CPU for packing, ms/MB"
    units = {"s": ", s", "us": ", µs", "mb": ", MiB"}
    assert all(title.endswith(units.get(name.rpartition("_")[2], "")) for name, title in titles.items())


def test_a_store_block_opens_its_store(tmp_path: Path) -> None:
    block = blocks.ResultStore(url=str(tmp_path / "results.db"), records=str(tmp_path / "raw"))
    with block.open() as store:
        assert store.where == str(tmp_path / "results.db")


def test_the_password_of_a_store_block_is_a_separate_hidden_field() -> None:
    block = blocks.ResultStore(url="postgresql://me@host/db", password="p@ss/w:rd")
    assert block.address == "postgresql://me:p%40ss%2Fw%3Ard@host/db"
    assert "p@ss" not in repr(block) + str(block.model_dump())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": ""}, "at least 1 character"),
        ({"url": "mysql://me:hunter2@host/db"}, "sqlite:///PATH or postgresql://"),
        ({"url": "postgresql://me:hunter2@2@host/db"}, "one @ at most"),
        ({"url": "postgresql://me@host/db?password=hunter2"}, "without a password"),
        ({"url": "postgresql://me:hunter2@host/db"}, "without a password"),
        ({"url": "results.db", "password": "hunter2"}, "expected none"),
        ({"url": "results.db", "passwort": "hunter2"}, "Extra inputs are not permitted"),
    ],
)
def test_an_invalid_store_block_is_refused_without_showing_its_password(fields: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as error:
        blocks.ResultStore(**fields)
    assert "hunter2" not in str(error.value)


@pytest.fixture
def name(prefect_server: None) -> str:
    """A name that no saved block has."""
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_saved_cluster_block_is_found_by_its_name(kind: str, name: str) -> None:
    needed = kinds()[kind].example
    BLOCKS[kind](**needed).save(name)
    slug = BLOCKS[kind].get_block_type_slug()
    assert blocks.saved("cluster", f"{slug}/{name}") == kinds()[kind](**needed)
    assert _pasted(BLOCKS[kind], name).spec() == kinds()[kind](**needed)


def test_secrets_of_a_custom_cluster_reach_only_the_environment_of_the_driver(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALESCOPE_SECRET_TOKEN", "")
    block = blocks.CustomCluster(cluster_class="package:Class", secrets={"token": "hunter2"})
    assert "hunter2" not in repr(block)
    block.save(name)
    spec = blocks.saved("cluster", f"custom-cluster/{name}")
    assert "hunter2" not in str(spec.to_mapping())
    assert spec.to_mapping()["secrets"] == {"token": "SCALESCOPE_SECRET_TOKEN"}
    assert os.environ["SCALESCOPE_SECRET_TOKEN"] == "hunter2"


def test_a_saved_store_block_is_found_with_its_password(name: str) -> None:
    blocks.ResultStore(url="postgresql://me@host/db", password="hunter2", records="s3://bucket").save(name)
    assert blocks.saved("store", f"result-store/{name}") == ("postgresql://me:hunter2@host/db", "s3://bucket")
    assert _pasted(blocks.ResultStore, name).url == "postgresql://me@host/db"
    with get_client(sync_client=True) as client:
        shown = client.read_block_document_by_name(name, "result-store", include_secrets=False).data
    assert shown == {"url": "postgresql://me@host/db", "password": "********", "records": "s3://bucket"}


def test_a_store_saved_with_the_password_in_its_url_is_refused_without_showing_it(name: str) -> None:
    """The form of the block accepts any text in that field."""
    blocks.ResultStore(url="results.db").save(f"{name}-registers-the-type")
    with get_client(sync_client=True) as client:
        client.create_block_document(
            BlockDocumentCreate(
                name=name,
                data={"url": "postgresql://me:hunter2@host/db"},
                block_type_id=client.read_block_type_by_slug("result-store").id,
                block_schema_id=blocks.ResultStore._block_schema_id,
            )
        )
    with pytest.raises(InvalidField) as caught:
        blocks.saved("store", f"result-store/{name}")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_block_or_one_of_another_type_is_refused(name: str) -> None:
    blocks.LocalCluster().save(name)
    for parameter, reference in (
        ("cluster", "local-cluster/none"),
        ("cluster", "no-such-type/none"),
        ("store", f"local-cluster/{name}"),
    ):
        with pytest.raises(InvalidField) as refused:
            blocks.saved(parameter, reference)
        assert refused.value.field == parameter


def test_a_flow_can_take_a_block_that_its_form_refers_to(name: str) -> None:
    """Prefect answers 409 if a block document fits several block types."""

    @flow
    def takes(cluster: blocks.LightCluster) -> int:
        return cluster.hosts

    document = blocks.LightCluster(hosts=5).save(name)
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(takes)
        schema = takes.to_deployment(name=name)._parameter_openapi_schema
        deployment = client.create_deployment(
            flow_id, name, parameter_openapi_schema=schema.model_dump(), enforce_parameter_schema=True
        )
        parameters = {"cluster": {"$ref": {"block_document_id": str(document)}}}
        run = client.create_flow_run_from_deployment(deployment, parameters=parameters)
    assert takes(**run.parameters) == 5


def test_the_block_classes_can_be_registered_with_prefect_as_a_collection(prefect_server: None) -> None:
    from prefect.settings import PREFECT_API_URL

    shown = subprocess.run(
        [sys.executable, "-m", "prefect", "block", "register", "-m", "scalescope_blocks"],
        env={**os.environ, "PREFECT_API_URL": str(PREFECT_API_URL.value())},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for registered in ("Simulated Cluster", "Light Cluster", "Local Cluster", "Result Store"):
        assert registered in shown
    # A server puts every class of this registry into its catalogue.
    known = get_registry_for_type(Block) or {}
    assert set(BLOCKS.values()) < set(known.values())
    assert ClusterBlock not in known.values()


def _pasted(kind: type[Block], name: str) -> Any:
    """The block that the code snippet on a block's page in Prefect loads."""
    code = kind.get_code_example().partition("```python")[2].partition("```")[0].replace("BLOCK_NAME", name, 1)
    made: dict[str, Any] = {}
    exec(textwrap.dedent(code), made)
    [found] = [each for each in made.values() if isinstance(each, kind)]
    return found
