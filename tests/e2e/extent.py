"""Says how much the journeys test: everything if ADAPTDL_TESTS=full, as tests/full sets it, otherwise a faster selection."""
import os

FULL = os.environ.get("ADAPTDL_TESTS") == "full"
