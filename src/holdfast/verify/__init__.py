"""Verification: proof that no input of a set breaks the network, or an input that does."""
