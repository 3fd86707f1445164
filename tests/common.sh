# Functions and settings for bootstrap, .ci/run and other test scripts: the directory of the tests' cache, the settings of the
# compiler cache, and a record of how long each stage takes and how much memory is used.

# Prints the directory in which the tests keep what they download and build. tests/e2e/python_peer.py must use the same
# directory.
test_cache() {
  if [ -n "${ADAPTDL_TEST_CACHE:-}" ]; then
    echo "$ADAPTDL_TEST_CACHE"
  elif [ "$(id -u)" -eq 0 ]; then
    echo /var/cache/adaptdl-tests
  else
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/adaptdl-tests"
  fi
}

# If ccache is installed, it reuses compiled objects. With precompiled headers, it does so only with these settings.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}"

# Lets CI and tests/full reuse objects that any checkout has compiled. Nothing depends on this cache. ccache divides the size limit
# among 16 directories, and a precompiled header of LibTorch takes 100 MB, so the limit must not be too low.
use_compiler_cache() {
  export CCACHE_DIR CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=5G
  CCACHE_DIR="$(test_cache)/ccache"
}

# Adds a command to those that run when the script ends, for whatever reason. The last one that is added runs first.
at_exit() { # COMMAND
  exit_commands="$1; ${exit_commands:-}"
  trap "$exit_commands" EXIT
}

# This file contains two lines per stage, NAME<tab>begin<tab>TIME and NAME<tab>end<tab>TIME, with times in seconds since the epoch.
# Stages may overlap. A script that another script calls appends to the caller's file.
stages="${ADAPTDL_STAGES:-}"

stage() { # NAME COMMAND...
  local status=0
  printf '%s\tbegin\t%s\n' "$1" "$EPOCHSECONDS" >>"$stages"
  "${@:2}" || status=$?
  printf '%s\tend\t%s\n' "$1" "$EPOCHSECONDS" >>"$stages"
  return "$status"
}

has_ended() { grep -qs "^$1"$'\t'end "$stages"; } # STAGE

# Prints a comma-separated list of the stages that have begun but not ended.
current_stages() {
  awk -F'\t' '
    $2 == "begin" {open[$1] = NR}
    $2 == "end" {delete open[$1]}
    END {for (name in open) names = names (names ? ", " : "") name; print names ? names : "none"}' "$stages"
}

# Samples the machine's memory use once a second, and records its largest increase since the start, in MiB.
watch_memory() {
  local name value _ first=0 used peak=0
  while :; do
    used=0
    while read -r name value _; do
      case $name in
        MemTotal:) used=$value ;;
        MemAvailable:) used=$(((used - value) / 1024)); break ;;
      esac
    done </proc/meminfo
    [ "$first" -gt 0 ] || first=$used
    if [ $((used - first)) -gt "$peak" ]; then
      peak=$((used - first))
      echo "$peak" >"$stages.memory"
    fi
    sleep 1
  done
}

# Must be called before the first stage. Does nothing if the script was called by another script that records stages.
begin_stages() {
  [ -z "$stages" ] || return 0
  stages=$(mktemp -t adaptdl-stages-XXXXXX)
  export ADAPTDL_STAGES="$stages"
  echo 0 >"$stages.memory"
  watch_memory &
  at_exit "kill $! 2>/dev/null || true; rm -f '$stages'*"
}
