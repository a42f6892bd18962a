"""Put the root of the repository on the path: the package does not contain experiments/ and recipes/."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)
