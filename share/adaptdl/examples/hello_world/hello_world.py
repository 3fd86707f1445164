import os
import signal
import sys
import time

# Process 1 in a container ignores SIGTERM by default. Exit code 143 means that the job may be restarted on other nodes.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

print("Hello, world!")

with open(os.path.join(os.environ["ADAPTDL_SHARE_PATH"], "foo.txt"), "w") as file:
    file.write("Hello, world!")

time.sleep(100)
