"""Verification: a proof that no input of a set violates a property, or a counterexample."""
