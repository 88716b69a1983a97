# Sourced by run.sh: after tests/setup.sh, makes `.venv-peers` hold the peers, each as users have
# it, and sees that the server is installed. APT may ask for root.
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

for tool in /usr/sbin/nginx /usr/bin/wrk /usr/lib/nginx/modules/ngx_http_lua_module.so; do
    if [ ! -e "$tool" ]; then
        echo "Installing nginx with lua, and wrk ..."
        apt-get update --quiet --quiet
        apt-get install --quiet --quiet --yes --no-install-recommends nginx-extras wrk ||
            { echo "Install Debian's nginx-extras and wrk, then run this again" >&2; exit 1; }
        break
    fi
done

peers="$(cksum tests/benchmarks/peers.txt)"
if [ "$(cat .venv-peers/installed 2>/dev/null)" != "$peers" ]; then
    echo "Setting up .venv-peers (a few minutes the first time) ..."
    python -m venv --clear .venv-peers
    .venv-peers/bin/pip install --quiet --requirement tests/benchmarks/peers.txt
    echo "$peers" > .venv-peers/installed
fi
