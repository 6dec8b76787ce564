#!/usr/bin/env bash
# Fails on an include that goes up, or sideways to a folder of the same floor. The floors are those of daemon/README.md; the public
# header lies below all of them.
set -uo pipefail
cd "${1:-$(dirname "$0")/..}" || exit 2

declare -A floor=([include/fsdp]=-1 [daemon/runtime]=0 [proto]=1 [daemon/math]=1 [daemon/store]=2 [daemon/transport]=2
  [daemon/engine]=3 [daemon/group]=3 [daemon/serve]=4 [daemon]=5)
failures=0
complain() {
  echo "$1: includes $2, which $3"
  failures=$((failures + 1))
}

check() { # file folder
  local file=$1 own=$2 header folder
  while read -r header; do
    case "$header" in
      fsdp/*) folder=include/fsdp ;;
      */*) folder=${header%/*} ;;
      *) continue ;;
    esac
    [ "$folder" = "$own" ] && continue
    if [[ "$own" == client/* || "$own" == client ]]; then
      case "$folder" in include/fsdp | proto | client | client/*) ;; *) complain "$file" "$header" "a client may not use" ;; esac
      continue
    fi
    if [ -z "${floor[$folder]:-}" ]; then
      complain "$file" "$header" "is on no floor"
    elif [ "${floor[$folder]}" -ge "${floor[$own]}" ]; then
      complain "$file" "$header" "is on floor ${floor[$folder]}, not below floor ${floor[$own]}"
    fi
  done < <(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]\([^">]*\)[">].*/\1/p' "$file" |
    grep -E '^(fsdp|daemon|proto|client|tests|include|\.\.?)/' | grep -v '\.pb-c\.h$')
}

files=0
while read -r file; do
  check "$file" "$(dirname "$file")"
  files=$((files + 1))
done < <(find include proto daemon client -name '*.[ch]' | sort)

# Third-party headers stay where they are used.
confined() { # pattern, allowed files
  local found
  found=$(grep -lE "#[[:space:]]*include[[:space:]]*[<\"]$1" -r daemon client proto include | grep -vE "$2")
  [ -z "$found" ] || { echo "$found: includes $1, which is confined to $2"; failures=$((failures + 1)); }
}
confined 'zmq\.h>' '^daemon/transport/'
confined '[a-z]+\.pb-c\.h' '^proto/[a-z_]+\.c$|^proto/wire_'
confined 'systemd/' '^daemon/(runtime/log|serve/[a-z_]+|[a-z_]+)\.[ch]$'

[ "$files" -gt 50 ] || { echo "only $files files looked at"; exit 1; }
[ "$failures" -eq 0 ] && echo "floors: $files files, no include goes up"
exit $((failures > 0))
