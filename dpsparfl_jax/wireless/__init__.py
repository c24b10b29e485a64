"""The radio world: where clients are, what they hear, what sending costs."""
