"""VNN-COMP: run benchmarks, write results in its three protocols, score by the rules of each year."""
