"""How much the journeys try: as much as a change should wait for, or with ADAPTDL_TESTS=full all of it, as tests/full has it."""
import os

FULL = os.environ.get("ADAPTDL_TESTS") == "full"
