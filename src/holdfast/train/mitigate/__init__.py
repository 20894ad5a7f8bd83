"""What helps against system noise: a model trained in several ways, each tested under every noise."""
