"""The made-up runs, written once."""

import pytest

from tests.support.fixit_set import FixitSet, write_set


@pytest.fixture(scope="session")
def fixit_set(tmp_path_factory) -> FixitSet:
    return write_set(tmp_path_factory.mktemp("fixit"))
