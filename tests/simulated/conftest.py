"""Setup of the simulator's tests: the path of their modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
