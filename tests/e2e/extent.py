"""Determines how much the end-to-end tests cover: everything if ADAPTDL_TESTS=full, which tests/full sets; otherwise a faster
selection."""
import os

FULL = os.environ.get("ADAPTDL_TESTS") == "full"
