"""Benchmarks: measured, printed and written down, never asserted by a test."""
