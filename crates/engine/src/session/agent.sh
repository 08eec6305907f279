# The agent of a bash session: reads a line of words and the code from descriptor 3, evaluates it in this shell, answers
# with a frame. While code runs the channel and the spare pipes are closed; the shell's own copies are close-on-exec.
exec 0</dev/null 1>/dev/null 2>/dev/null
_cofferdam_closed=
for _cofferdam_fd in /proc/self/fd/*; do
  _cofferdam_fd=${_cofferdam_fd##*/}
  if ((_cofferdam_fd > 2)) && [[ -e /proc/self/fd/$_cofferdam_fd ]]; then _cofferdam_closed+=" $_cofferdam_fd<&-"; fi
done
unset _cofferdam_fd
_cofferdam_reply() {
  local LC_ALL=C body size
  builtin printf -v body '{"type":"%s","id":"%s","exit_code":%d}' "$@"
  builtin printf -v size '\\x%02x' $((${#body} >> 8)) $((${#body} & 255))
  builtin printf "\0\0$size%s" "$body" >&3
}
_cofferdam_read() {
  local LC_ALL=C IFS=' ' out err size
  builtin read -r -u 3 _cofferdam_id out err size || exit 0
  if [[ $_cofferdam_id == end ]]; then exit 0; fi
  _cofferdam_out=$out _cofferdam_err=$err _cofferdam_code=
  if ((size)); then IFS= builtin read -r -N "$size" -u 3 _cofferdam_code || exit 0; fi
}
_cofferdam_reply ready '' 0
while :; do
  _cofferdam_read
  eval '{ eval "$_cofferdam_code
"; } >/proc/self/fd/'"$_cofferdam_out"' 2>/proc/self/fd/'"$_cofferdam_err$_cofferdam_closed"
  _cofferdam_reply result "$_cofferdam_id" "$?"
done
