#!/usr/bin/env bash
# Make .venv and install Evener into it with all that training and developing need.
# The only thing taken for granted is a Python of at least 3.11 and a package index.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3 python3.12 python3.13; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: no Python of at least 3.11 found; install one or set PYTHON=/path/to/python" >&2
  return 1
}

make_venv() {
  local python=$1
  "$python" -m venv .venv && return
  # Debian keeps the venv module's pip in a package of its own.
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    local version
    version=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
    apt-get update -qq
    apt-get install -y -qq "python$version-venv" || apt-get install -y -qq python3-venv
    "$python" -m venv .venv && return
  fi
  echo "setup: '$python -m venv .venv' failed; install the venv module of this Python" >&2
  return 1
}

if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  python=$(find_python)
  make_venv "$python"
fi

constraint=()
if ! command -v nvidia-smi >/dev/null; then
  # Without a GPU a pinned torch is enough, and it spares 5 GB of CUDA libraries.
  constraint=(-c constraints/cpu.txt)
fi
echo "setup: installing into .venv (about 2 GB without a GPU; takes a minute or two)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
  "${constraint[@]}" -e '.[train,dev]'
