"""Waiting for nothing but time, through one door.

In: seconds. Out: nothing, that much later. Rule: only for what nobody tells us of, such as a file
that another process writes; whoever can be told waits for that.
"""

import time

pause = time.sleep
"""Wait so many seconds."""
