"""The OpenAPI document: valid, whole, and enough to make a client of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from openapi_spec_validator import validate

from api_world import Api

pytest_plugins = ["fixtures_api"]


@pytest.fixture
def document(api: Api) -> dict[str, Any]:
    """Return the document as the service shows it."""
    found: dict[str, Any] = api.get("/openapi.json", token=None).json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give every operation by path and method."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def references(value: Any) -> Iterator[str]:
    """Give every reference in *value*."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_it_is_valid(document: dict[str, Any]) -> None:
    """It is OpenAPI by its own rules, and every reference leads somewhere."""
    validate(document)
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= names


def test_every_route_is_in_it(api: Api, document: dict[str, Any]) -> None:
    """No route is left out but those for people alone."""
    hidden = {"/", "/login", "/logout"}
    for route in api.app.routes:
        if isinstance(route, APIRoute) and route.path not in hidden:
            assert route.include_in_schema, route.path


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    """A generated client calls its functions by them."""
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_every_refusal_is_a_problem(document: dict[str, Any]) -> None:
    """Each status from 400 on has the one schema of problems, but for HEAD, which has no body."""
    for path, method, operation in operations(document):
        for code, answer in operation["responses"].items():
            # whether a part is away is the answer there, and no refusal
            if int(code) >= 400 and method != "head" and (path, code) != ("/readyz", "503"):
                assert set(answer["content"]) == {"application/problem+json"}, (path, method, code)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_answer_with_a_body_says_what_it_is(document: dict[str, Any]) -> None:
    """Nothing that succeeds is left without a media type and a schema, and no schema is empty."""
    for path, method, operation in operations(document):
        for code, answer in operation["responses"].items():
            if method != "head" and int(code) in {200, 201, 202, 206}:
                assert answer.get("content"), (path, method, code)
                for content in answer["content"].values():
                    assert content["schema"], (path, method, code)


def test_what_needs_a_token_says_so(api: Api, document: dict[str, Any]) -> None:
    """Bearer token or cookie, wherever a request without them is refused."""
    for path, method, operation in operations(document):
        if "{" not in path and method == "get":
            refused = api.send("GET", path, token=None).status_code == 401
            assert refused == ("security" in operation), path
    assert set(document["components"]["securitySchemes"]) == {"bearer", "session"}
