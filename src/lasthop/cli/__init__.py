"""The commands, one file each."""

import signal
import sys

# Ctrl-C while modules are loaded ends a command as it ends any other program, without a traceback; `main.run` takes over.
if sys.argv[0].endswith(("/lasthop", "/kubectl-lasthop")) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
