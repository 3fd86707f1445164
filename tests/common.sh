# Sourced by bootstrap, .ci/run and tests/full: where tests keep what they build once, the rules of the compiler cache, how
# long each stage takes, and how much memory all of it uses.

# As tests/e2e/python_peer.py has it.
test_cache() {
  if [ -n "${ADAPTDL_TEST_CACHE:-}" ]; then
    echo "$ADAPTDL_TEST_CACHE"
  elif [ "$(id -u)" -eq 0 ]; then
    echo /var/cache/adaptdl-tests
  else
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/adaptdl-tests"
  fi
}

# Objects compiled before are found again where ccache is installed; with precompiled headers, only under these rules.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}"

# Lets CI and tests/full find objects that any checkout compiled before. Nothing depends on this cache. ccache applies the
# limit to each sixteenth of it, and a precompiled header of LibTorch takes 100 MB.
use_compiler_cache() {
  export CCACHE_DIR CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=5G
  CCACHE_DIR="$(test_cache)/ccache"
}

# Two lines per stage, NAME<tab>begin<tab>TIME and NAME<tab>end<tab>TIME, in seconds since the epoch. Stages may overlap.
# Inner scripts add to the file of the outer one.
stages="${ADAPTDL_STAGES:-}"

stage() { # NAME COMMAND...
  local status=0
  printf '%s\tbegin\t%s\n' "$1" "$EPOCHSECONDS" >>"$stages"
  "${@:2}" || status=$?
  printf '%s\tend\t%s\n' "$1" "$EPOCHSECONDS" >>"$stages"
  return "$status"
}

# The names of the stages that have begun and not ended, comma-separated.
current_stages() {
  awk -F'\t' '
    $2 == "begin" {open[$1] = NR}
    $2 == "end" {delete open[$1]}
    END {for (name in open) names = names (names ? ", " : "") name; print names ? names : "none"}' "$stages"
}

# The MiB of memory in use on this machine beyond those at the start, at the highest, once a second.
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

# To be called before the first stage. Does nothing in a script that another with stages runs.
begin_stages() {
  [ -z "$stages" ] || return 0
  stages=$(mktemp -t adaptdl-stages-XXXXXX)
  export ADAPTDL_STAGES="$stages"
  echo 0 >"$stages.memory"
  watch_memory &
  trap "kill $! 2>/dev/null || true; rm -f '$stages'*" EXIT
}
