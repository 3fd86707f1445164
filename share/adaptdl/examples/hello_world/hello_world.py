import os
import signal
import sys
import time

# The first process of a container has no default for it; 143: it may be started again elsewhere.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

print("Hello, world!")

with open(os.path.join(os.environ["ADAPTDL_SHARE_PATH"], "foo.txt"), "w") as file:
    file.write("Hello, world!")

time.sleep(100)
