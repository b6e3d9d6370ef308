"""Noise and accounting: the one module that draws release noise, and the conversions."""
