# Runs a script in this directory with the Python interpreter that runs Ray, which may differ from the one in PATH:
# sh start.sh SCRIPT ARGUMENTS...
# The parent process must be Ray's job supervisor, which is the parent of every Ray job.
script=$(dirname "$0")/$1
shift
python=$(readlink "/proc/$PPID/exe")
packages=$(sed -n 's|^[^/]*\(/.*\)/ray/_raylet\.so$|\1|p' "/proc/$PPID/maps" | head -n 1)
[ -n "$packages" ] || python=python3
exec "$python" -c '
import runpy, sys
sys.path.append(sys.argv[1])
sys.argv[:2] = []
runpy.run_path(sys.argv[0], run_name="__main__")' "$packages" "$script" "$@"
