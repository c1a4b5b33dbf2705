"""The whole OpenAPI document against a service: nothing fails, and no answer is undocumented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import InvalidArgument, Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from access_rules import RULES
from api_served import served
from api_world import noop
from autocode.jobs.engine.system import open_system
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import Role

_EXAMPLES: Final = int(os.environ.get("AUTOCODE_FUZZ_EXAMPLES", "10"))
_CHECKS: Final = (
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Serve a home with some jobs; give its address and a token of an admin."""
    folder = tmp_path_factory.mktemp("fuzz")
    with served(folder, request_rate=0) as serving, serving.client() as client:
        for number in range(5):
            client.enqueue(**{key: value for key, value in noop(f"job-{number}").items() if key != "job_id"})
        with open_system(serving.home) as system:
            token = access.create_token(system.db, name="fuzz", role=Role.ADMIN).text
        yield client.url, token


@pytest.fixture(scope="module")
def document(service: tuple[str, str]) -> Any:
    """Return the document as the service shows it."""
    return schemathesis.openapi.from_url(f"{service[0]}/openapi.json")


@pytest.mark.timeout(60 + 20 * _EXAMPLES)
def test_every_answer_is_documented(document: Any, service: tuple[str, str]) -> None:
    """Whatever is sent, the answer is one that the document names, and the service goes on."""
    failures: list[Exception] = []
    operations = [found.ok() for found in document.get_all_operations()]
    for operation in operations:
        for mode in GenerationMode:

            @settings(
                max_examples=_EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                case.call_and_validate(
                    headers={"Authorization": f"Bearer {service[1]}"}, checks=list(_CHECKS), timeout=60
                )

            try:
                check()
            except (Unsatisfiable, InvalidArgument):
                # an operation without parameters has nothing that could be wrong
                assert mode is GenerationMode.NEGATIVE, operation.label
            except Exception as error:  # noqa: BLE001 - all of them are reported together
                failures.append(error)
    assert len(operations) >= len([rule for rule in RULES if rule[1].startswith("/v1/")]) - 1
    if failures:
        raise ExceptionGroup("answers that the document doesn't have", failures)
