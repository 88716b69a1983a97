# Sourced by run.sh: makes `tests/benchmarks/.venv` hold the peers that constraints.txt pins,
# and `python` in the caller mean that environment's; finds nginx with lua, and wrk. The tests'
# own environment is never touched.
# PYTHON names the interpreter to build it with (default: python3, 3.10 or newer);
# BENCHMARK_ENVIRONMENT names an environment to use as it is instead.

benchmarks="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$benchmarks/../.."

for tool in /usr/sbin/nginx /usr/bin/wrk /usr/lib/nginx/modules/ngx_http_lua_module.so; do
    [ -e "$tool" ] && continue
    echo "Installing nginx with lua, and wrk ..."
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends nginx-extras wrk; } ||
        { echo "The benchmarks need nginx with lua, and wrk, which apt-get could not install:" \
            "on Debian, as root, run: apt-get install nginx-extras wrk" >&2; exit 1; }
    break
done

environment="${BENCHMARK_ENVIRONMENT:-$benchmarks/.venv}"
if [ -z "${BENCHMARK_ENVIRONMENT:-}" ]; then
    stamp="$(cat "$benchmarks/requirements.txt" "$benchmarks/constraints.txt" | cksum)"
    if [ "$(cat "$environment/installed" 2>/dev/null)" != "$stamp" ]; then
        echo "Setting up $environment (a few minutes the first time) ..."
        "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
            { echo "Python 3.10 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
        "${PYTHON:-python3}" -m venv --clear "$environment"
        export PIP_DISABLE_PIP_VERSION_CHECK=1
        "$environment/bin/pip" install --quiet --requirement "$benchmarks/requirements.txt" \
            --constraint "$benchmarks/constraints.txt"
        "$environment/bin/pip" check
        echo "$stamp" > "$environment/installed"
    fi
fi
# The package is found beside the tests: the working directory is the root.
PATH="$environment/bin:$PATH"
