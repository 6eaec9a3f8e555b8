"""Online time-series forecasting that keeps learning."""

__version__ = "0.1.0"
