# Completes adaptdl command lines in bash. `adaptdl help --complete` prints the candidates.

_adaptdl_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$@")
}

_adaptdl() {
  # bash splits words at '=', but the command expects whole words. `origin` contains the index at which each word begins.
  local words=() origin=() joined="" i word
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    if ((i > 0)) && [[ $word == "=" || -n $joined ]]; then
      words[-1]+="$word"
    else
      words+=("$word")
      origin+=("$i")
    fi
    [[ $word == "=" ]] && joined=1 || joined=""
  done
  local typed="${words[-1]}" before="" candidates
  [[ $typed == --*=* ]] && before="${typed%%=*}="
  typed="${typed#"$before"}"
  mapfile -t candidates < <("${COMP_WORDS[0]}" help --complete -- "${words[@]:1}" 2>/dev/null)
  COMPREPLY=()
  case "${candidates[0]}" in
    :dir) _adaptdl_paths -d -- "$typed" ;;
    :file) _adaptdl_paths -f -- "$typed" ;;
    :program)
      if [[ -z $typed || $typed == */* ]]; then _adaptdl_paths -f -- "$typed"; else _adaptdl_paths -c -- "$typed"; fi
      ;;
    :rest*)
      if declare -F _command_offset >/dev/null; then
        _command_offset "${origin[${candidates[0]#:rest } + 1]}"
      else
        _adaptdl_paths -f -- "$typed"
      fi
      ;;
    *)
      for word in "${candidates[@]}"; do
        word="${word%%$'\t'*}"
        COMPREPLY+=("${word#"$before"}")
      done
      ;;
  esac
}

complete -F _adaptdl adaptdl
