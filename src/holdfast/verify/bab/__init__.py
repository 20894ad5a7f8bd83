"""Branch and bound on the signs of neurons: the engine for networks with many inputs."""

from holdfast.verify.bab.decide import decide

__all__ = ["decide"]
