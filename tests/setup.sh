# Sourced by both commands of the README: makes `.venv` beside the sources hold what
# constraints.txt pins, and `python` in the caller mean that environment's.
# PYTHON names the interpreter to build it with (default: python3, 3.10 or newer).

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
stamp="$(cat pyproject.toml tests/requirements.txt tests/constraints.txt | cksum)"
if [ "$(cat .venv/installed 2>/dev/null)" != "$stamp" ]; then
    echo "Setting up .venv (a few minutes the first time) ..."
    "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        { echo "Python 3.10 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
    "${PYTHON:-python3}" -m venv --clear .venv
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    .venv/bin/pip install --quiet --requirement tests/requirements.txt \
        --constraint tests/constraints.txt
    .venv/bin/pip install --quiet --no-deps --editable .
    # The oldest that pyproject.toml allows, for the tests of forks and interrupts.
    .venv/bin/pip install --quiet --no-deps --target .venv/pycurl-oldest pycurl==7.46.0
    .venv/bin/pip check
    echo "$stamp" > .venv/installed
fi
PATH="$root/.venv/bin:$PATH"
