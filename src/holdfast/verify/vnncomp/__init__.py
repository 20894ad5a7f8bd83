"""VNN-COMP as pure functions: the texts of its three protocols, and its rules of scoring year by year."""
