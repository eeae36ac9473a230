"""What tests of the litellm client share. They name the fixtures; other clients' tests import no litellm."""

from collections.abc import Iterator

import pytest

from tests.unit.models.parts import KEY


@pytest.fixture
def litellm_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment."""
    monkeypatch.setenv("LITELLM_TEST_KEY", KEY)


@pytest.fixture(scope="module")
def litellm_loop() -> Iterator[None]:
    """One event loop for the module: a new one for each test would take litellm longer."""
    from ptxbench.models import litellm_library

    litellm_library.acquire_loop()
    yield
    litellm_library.release_loop()
