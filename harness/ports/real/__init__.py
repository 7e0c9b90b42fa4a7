"""The real twins of the ports: the system's clock, TCP, files, entropy."""

from harness.ports.real.ports import real_ports

__all__ = ["real_ports"]
