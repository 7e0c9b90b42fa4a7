"""`python -m assay` is the command `assay`, in whose working directory nothing is looked for: a run may lie there."""

import os
import sys

if __name__ == "__main__":
    # Python puts the working directory first, unless it was told not to.
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    from assay.cli import main

    main()
