# Starts the driver with the Python that Ray runs in, which need not be the one in PATH: sh start.sh ARGUMENTS...
# The parent process must be Ray's job supervisor, of which every Ray job is a child.
directory=$(dirname "$0")
python=$(readlink "/proc/$PPID/exe")
packages=$(sed -n 's|^[^/]*\(/.*\)/ray/_raylet\.so$|\1|p' "/proc/$PPID/maps" | head -n 1)
[ -n "$packages" ] || python=python3
exec "$python" -c '
import runpy, sys
sys.path.append(sys.argv[1])
sys.argv[:2] = []
runpy.run_path(sys.argv[0], run_name="__main__")' "$packages" "$directory/driver.py" "$@"
