"""``prefect.yaml``: every deployment loads, and its flow asks for what its kind's payload is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.flows import Flow, load_flow_from_entrypoint

from autocode.jobs import kinds

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = SETTINGS["deployments"]


def flow_of(deployment: dict[str, Any]) -> Flow[..., Any]:
    """Load the flow of a deployment from the root of the project."""
    file, _, function = str(deployment["entrypoint"]).rpartition(":")
    return load_flow_from_entrypoint(f"{ROOT / file}:{function}")


def shape(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return what a JSON schema demands, without the words that explain it to people."""
    if "$ref" in schema:
        return shape(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    found: dict[str, Any] = {
        key: schema[key] for key in ("type", "default", "enum", "const") if key in schema
    }
    if "anyOf" in schema:
        found["anyOf"] = [shape(each, definitions) for each in schema["anyOf"]]
    if "items" in schema:
        found["items"] = shape(schema["items"], definitions)
    if "properties" in schema:
        found["required"] = sorted(schema.get("required", []))
        found["properties"] = {name: shape(each, definitions) for name, each in schema["properties"].items()}
    return found


@pytest.fixture(params=DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give each deployment of prefect.yaml in turn."""
    chosen: dict[str, Any] = request.param
    return chosen


def test_a_flow_is_named_like_its_kind_and_takes_its_payload(deployment: dict[str, Any]) -> None:
    """Names, types, defaults and required parameters of the flow equal those of the payload model."""
    flow = flow_of(deployment)

    kind = kinds.get(flow.name)
    asked = flow.parameters.model_dump()
    payload = kind.payload.model_json_schema()

    assert shape(asked, asked["definitions"]) == shape(payload, payload["$defs"])


def test_the_parameters_of_a_deployment_are_a_valid_payload(deployment: dict[str, Any]) -> None:
    """A run of the deployment is accepted as a job as it stands."""
    flow = flow_of(deployment)

    parsed = kinds.get(flow.name).parse(deployment["parameters"])

    assert parsed.model_dump(mode="json").keys() == deployment["parameters"].keys()


def test_a_deployment_has_a_schedule_with_a_zone_and_a_limit(deployment: dict[str, Any]) -> None:
    """Every schedule names its time zone, and runs of one deployment don't pile up."""
    zones = [schedule.get("timezone") for schedule in deployment["schedules"]]
    limit = deployment["concurrency_limit"]

    assert zones
    assert None not in zones
    assert limit == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_nothing_in_prefect_yaml_names_an_absolute_path() -> None:
    """The file works from any clone."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [text for each in value.values() for text in texts(each)]
        if isinstance(value, list):
            return [text for each in value for text in texts(each)]
        return [str(value)]

    found = [text for text in texts(SETTINGS) if text.startswith(("/", "~")) or ":\\" in text]

    assert found == []
