"""VNN-COMP benchmarks run instance by instance in fresh processes, resumably, and their results scored."""
