"""What the tests of downloading share."""

import pytest


@pytest.fixture
def server(monkeypatch):
    from tests.helpers.misbehaving import serving
    from tests.helpers.tiny import CONTENT

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving({"/tiny.tar.gz": CONTENT}) as running:
        yield running
