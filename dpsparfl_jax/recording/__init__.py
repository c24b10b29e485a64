"""Runs that are recorded while they train, checkpointed, and resumed."""
