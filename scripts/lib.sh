# Common to all scripts: the clone's root, and a virtual environment inside it that matches the lock.
# Sourced, not run. Needs Python 3.11 or later with venv and pip, or uv.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
PYTHON=$VENV/bin/python

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# setup [LOCK]: make .venv hold exactly what LOCK names, and argosy itself from src. Does nothing the second
# time: a stamp in the environment holds the hashes of what it was made from. Two at once wait for each other.
setup() {
  local lock=$ROOT/${1:-requirements-dev.lock} want
  want=$(cat "$lock" "$ROOT/pyproject.toml" | sha256sum | cut -d' ' -f1)
  exec 9>"$ROOT/.venv.lock"
  flock 9
  discard_if_unusable
  if ! grep -qx "$want" "$VENV/argosy-stamp" 2>/dev/null; then
    if command -v uv >/dev/null; then setup_with_uv "$lock"; else setup_with_pip "$lock"; fi
    # The stamps of all locks that the environment satisfies: the developers' lock holds the users'.
    { echo "root $ROOT"
      echo "$want"
      if [ "$(basename "$lock")" = requirements-dev.lock ]; then
        cat "$ROOT/requirements.lock" "$ROOT/pyproject.toml" | sha256sum | cut -d' ' -f1
      fi; } > "$VENV/argosy-stamp.new"
    mv "$VENV/argosy-stamp.new" "$VENV/argosy-stamp"
  fi
  flock -u 9
  exec 9>&-
}

# An environment depends on its path and on its Python: after a move or an upgrade it is created again.
discard_if_unusable() {
  local made
  made=$(sed -n 's/^root //p' "$VENV/argosy-stamp" 2>/dev/null) || made=
  if [ -n "$made" ] && [ "$made" != "$ROOT" ]; then rm -rf "$VENV"; fi
  if [ -e "$VENV" ] && ! "$PYTHON" -c '' 2>/dev/null; then rm -rf "$VENV"; fi
}

setup_with_uv() {
  say "setting up .venv with uv"
  [ -x "$PYTHON" ] || uv venv -q --python '>=3.11' "$VENV" 9>&-
  uv pip install -q --python "$PYTHON" --require-hashes -r "$1" 9>&-
  link_source
}

setup_with_pip() {
  local python
  say "setting up .venv with venv and pip"
  if [ ! -x "$PYTHON" ]; then
    python=$(find_python) || die "Python 3.11 or later is needed, and was not found on PATH (Debian, Ubuntu: apt install python3 python3-venv)"
    "$python" -m venv "$VENV" 2>/dev/null || { rm -rf "$VENV"; die "$python cannot make a virtual environment; install its venv package (Debian, Ubuntu: apt install python3-venv) or uv"; }
  fi
  # An environment made by uv has no pip of its own.
  "$PYTHON" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m ensurepip >/dev/null || die "pip is missing in $VENV; remove that folder and try again"
  "$PYTHON" -m pip install -q --disable-pip-version-check --require-hashes -r "$1" 9>&-
  link_source
}

find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

# argosy itself, editable: the build backend is in the lock, so that nothing more is fetched.
link_source() {
  if command -v uv >/dev/null; then
    uv pip install -q --python "$PYTHON" --no-deps --no-build-isolation -e "$ROOT" 9>&-
  else
    "$PYTHON" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e "$ROOT" 9>&-
  fi
}
