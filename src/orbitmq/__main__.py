"""`python -m orbitmq`: the same as the command `orbitmq`.

In: the arguments of the command line. Out: the exit code.
For places where a virtual environment's commands are not on the path.
"""

import sys

from orbitmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
