"""VNN-COMP: run benchmarks, answer in its three protocols, score by the rules of each year."""
