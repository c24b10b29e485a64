"""Studies of the paper's experiments: what is measured, and what comes of it."""
