"""Fixtures of the federation's tests."""

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where the helpers beside the tests are found


@pytest.fixture(autouse=True)
def logged(caplog):
    """Warnings are logged, whatever an example has set before."""
    caplog.set_level(logging.WARNING, "psofed.federation")
