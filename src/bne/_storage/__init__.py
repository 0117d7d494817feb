"""Model files: their contents, and how they are read safely."""
