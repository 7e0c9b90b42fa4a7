"""PID 1 of a node's container: keeps sshd running and reaps what it inherits.

The node program is started over SSH and re-parented to this process, so killing the program leaves the container, its
firewall rules and its disk as they are. Standard library only.
"""

import os
import signal
import subprocess
import sys

SSHD = [
    "/usr/sbin/sshd",
    "-D",
    "-e",
    *("-f", "/dev/null"),
    *("-h", "/etc/assay/host_key"),
    *("-o", "AuthorizedKeysFile=/etc/assay/authorized_keys"),
    *("-o", "PermitRootLogin=prohibit-password"),
    *("-o", "PasswordAuthentication=no"),
    *("-o", "StrictModes=no"),
    *("-o", "UsePAM=no"),
    *("-o", "UseDNS=no"),
    *("-o", "PrintMotd=no"),
    *("-o", "MaxStartups=100"),
    *("-o", "MaxSessions=100"),
]


def main() -> int:
    """Run until told to stop or until sshd ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    sshd = subprocess.Popen(SSHD)
    while True:
        pid, _ = os.wait()
        if pid == sshd.pid:
            return 1


if __name__ == "__main__":
    sys.exit(main())
