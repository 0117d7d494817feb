"""Model files: what they hold, and how they are read safely."""
