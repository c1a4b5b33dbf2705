"""Public aids for tests of this package and of what is built on it."""
