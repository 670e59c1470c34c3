"""The harness forks, and reads what Linux says of a process."""

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["*.py"]
