"""Training against system noise: mix training, TENT, train × test tables. Needs torch."""
