# Completion of plumb for bash. The executable names the candidates; without one bash offers files.
_plumb() {
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
}
complete -o default -o nosort -F _plumb plumb
