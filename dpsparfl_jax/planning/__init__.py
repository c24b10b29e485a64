"""A run before training: its whole schedule, and what theory says of it (host)."""
