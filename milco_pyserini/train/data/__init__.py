"""Training data: translations and queries with passages, in an endless order that is the same after a resume."""
