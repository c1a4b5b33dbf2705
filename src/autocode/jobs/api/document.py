"""The OpenAPI document: what the routes say of themselves, completed by what holds for all of them.

Routes say what is theirs. That every refusal is a problem, who may answer 401, what goes with a status and
how an operation is called stands here once, so that the document can't forget it for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

__all__ = ["complete", "install", "operation_id"]

JSON = dict[str, Any]

_PROBLEM: Final[JSON] = {
    "title": "Problem details",
    "description": "RFC 9457, with a hint that says what to do next.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "hint"],
    "properties": {
        "type": {"type": "string", "description": "stable; what a program decides by"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}, "description": "each field that is off"},
    },
    "additionalProperties": True,
}

_SCHEMES: Final[JSON] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "a token, as an admin makes it",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "autocode_<epoch>",
        "description": "the cookie of a browser that logged in by a link; its name ends with the ledger's",
    },
}

_OPEN: Final = frozenset({"/livez", "/readyz"})
"""Paths that answer to everybody."""

_WORDS: Final[Mapping[int, str]] = {
    400: "the request can't be read",
    401: "no token that works",
    403: "the token's role or sessions don't allow it, or the request comes from a foreign page",
    404: "there is no such thing, or none that this token may see",
    413: "the body is too large",
    422: "something in the request is off; `errors` names each field where that can be said",
    429: "too many requests; `Retry-After` says when to come again",
    500: "an error that nobody expected; the service's log has it",
    503: "the ledger can't be reached, or there is too much at once; come again",
}

_ALWAYS: Final = (400, 403, 500, 503)
_KNOWN_CALLERS: Final = (401, 429)
_CHANGES: Final = frozenset({"post", "put", "patch", "delete"})
_METHODS: Final = _CHANGES | {"get", "head"}

_TEXT: Final[JSON] = {"schema": {"type": "string"}}
_SECONDS: Final[JSON] = {"schema": {"type": "integer", "minimum": 0}}
_HEADERS: Final[Mapping[int, JSON]] = {
    401: {"WWW-Authenticate": {**_TEXT, "description": "the scheme that is wanted"}},
    429: {"Retry-After": {**_SECONDS, "description": "seconds after which to come again"}},
}


def install(app: FastAPI) -> None:
    """Let *app* show the completed document, made once, when it is first asked for."""

    def document() -> JSON:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            app.openapi_schema = complete(made)
        return app.openapi_schema

    # FastAPI's documented way to replace it
    app.openapi = document  # type: ignore[method-assign]


def complete(document: JSON) -> JSON:
    """Return *document* with what holds for every route; changes it in place."""
    schemas: JSON = document.setdefault("components", {}).setdefault("schemas", {})
    for path, method, operation in _operations(document):
        _answers(path, method, operation)
        _lift_body(operation, schemas)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["ProblemDetails"] = _PROBLEM
    document["components"]["securitySchemes"] = _SCHEMES
    return document


def _operations(document: JSON) -> Iterator[tuple[str, str, JSON]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in _METHODS:
                yield path, method, operation


def operation_id(route: APIRoute) -> str:
    """Return the name of a route as an operation's id: what a generated client calls its function."""
    name = route.name.replace(".", "_")
    return f"head_{name}" if "HEAD" in (route.methods or ()) else name


def _answers(path: str, method: str, operation: JSON) -> None:
    answers: JSON = operation.setdefault("responses", {})
    # FastAPI's own description of what it would answer, which isn't what we do
    if "HTTPValidationError" in str(answers.get("422", "")):
        del answers["422"]
    expected = {*_ALWAYS}
    if path not in _OPEN:
        expected |= {*_KNOWN_CALLERS}
        operation["security"] = [{"bearer": []}, {"session": []}]
    if "requestBody" in operation:
        expected |= {413}
    if operation.get("parameters") or "requestBody" in operation:
        expected |= {422}
    if "{" in path:
        expected |= {404}
    for status in expected:
        answers.setdefault(str(status), {"description": _WORDS[status]})
    for code, answer in answers.items():
        _answer(int(code), method, answer)


def _answer(status: int, method: str, answer: JSON) -> None:
    answer.setdefault("description", HTTPStatus(status).phrase.lower())
    if method == "head" or status in {204, 304}:
        answer.pop("content", None)
    elif status >= 400 and not any(each.get("schema") for each in answer.get("content", {}).values()):
        answer["content"] = {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
        }
    elif "content" in answer:
        # FastAPI names JSON beside whatever a route says of itself
        known = {name: each for name, each in answer["content"].items() if each.get("schema")}
        answer["content"] = known or answer["content"]
    if status in _HEADERS:
        answer.setdefault("headers", {}).update(_HEADERS[status])


def _lift_body(operation: JSON, schemas: JSON) -> None:
    """Give the schemas of a body their names among the components; pydantic puts them into the body."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content.get("schema", {})
        for name, inner in schema.pop("$defs", {}).items():
            schemas[name] = _moved(inner)
        if "title" in schema and schema.get("type") == "object":
            schemas[schema["title"]] = _moved(schema)
            content["schema"] = {"$ref": f"#/components/schemas/{schema['title']}"}


def _moved(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: value.replace("#/$defs/", "#/components/schemas/")
            if name == "$ref" and isinstance(value, str)
            else _moved(value)
            for name, value in schema.items()
        }
    return [_moved(each) for each in schema] if isinstance(schema, list) else schema
