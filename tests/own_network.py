"""Run a command in a network of its own, if the system allows it: python tests/own_network.py COMMAND…

Ray's processes listen on all addresses of their machine. In a network namespace that is loopback and nothing else.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, UP = 0x8913, 0x8914, 0x1


def enter():
    """Move this process into a new network whose loopback is up; False if that is not allowed."""
    unshare, user, group = ctypes.CDLL(None, use_errno=True).unshare, os.getuid(), os.getgid()
    if unshare(NEW_NETWORK) != 0:
        if unshare(NEW_USER | NEW_NETWORK) != 0:
            return False
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, name))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | UP))
    return True


def allowed():
    """Try it in another process: one that got half of the way has no network at all."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if enter() else 1)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    if allowed():
        enter()
    else:
        print("no network of its own: the system does not allow it", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
