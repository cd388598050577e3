"""Fixtures of the federation's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # where the helpers beside the tests are found
