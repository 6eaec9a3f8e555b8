"""The version, where everything can read it without importing everything."""

__version__ = "0.15.0"
