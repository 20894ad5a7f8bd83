"""`python -m holdfast`: the command line."""

import os
import sys

if __name__ == "__main__":
    # `python -m` puts the working directory first on the module path: a `json.py` there would be imported.
    home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - a `pathlib.py` too
    if not sys.flags.safe_path and sys.path[0] != home:
        del sys.path[0]
    from holdfast.cli import main

    main()
