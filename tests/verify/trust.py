"""`make trust`: see tests/trust/run.py."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.trust.run import main

    sys.exit(main())
