"""The page that `natsr run` writes: what is on it, how it is recorded, and how it becomes one HTML file."""
