"""Branch and bound on the signs of neurons: the engine for networks with many inputs."""
