"""`python -m amp_migrate`."""

import os
import sys

if __name__ == "__main__":
    # `-m` looks for modules in the current folder first: a click.py of the user's is none of this tool's.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        current = os.getcwd()
    except OSError:  # it was removed
        current = ""
    if sys.path[0] in ("", current) and os.path.realpath(sys.path[0]) != os.path.realpath(here):
        del sys.path[0]

    from amp_migrate.cli import main

    main(prog_name="amp-migrate")
