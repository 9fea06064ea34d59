"""What tests of several floors share."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """Let the tests of Ctrl-C work in the background, too: a shell starts jobs without SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium for the tests marked `browser`; CI must have one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    text = "no Chromium found: `apt-get install chromium` as root, then run again"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture
def quick_gc() -> Iterator[None]:
    """Garbage collection that skips what was there before: for tests of what is kept alive."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
