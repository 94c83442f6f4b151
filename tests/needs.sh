#!/bin/sh
# Installs what the tests use beyond Python packages, where that is possible: Debian packages as root or with sudo, npm
# packages with Node.js. What cannot be installed makes its tests skip with a reason; nothing here fails.
set -u
cd "$(dirname "$0")/.." || exit 0

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

java_is_there() { # Spark takes Java 17 or newer
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/^[^"]*version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

missing=""
java_is_there || missing="$missing openjdk-17-jre-headless"
command -v mosquitto_pub > /dev/null 2>&1 || missing="$missing mosquitto-clients"
command -v mosquitto > /dev/null 2>&1 || [ -x /usr/sbin/mosquitto ] || missing="$missing mosquitto"
command -v node > /dev/null 2>&1 || missing="$missing nodejs npm"
command -v chromium > /dev/null 2>&1 || command -v google-chrome > /dev/null 2>&1 || missing="$missing chromium"
command -v systemd-analyze > /dev/null 2>&1 || missing="$missing systemd"
if [ -n "$missing" ] && command -v apt-get > /dev/null 2>&1; then
    echo "installing$missing"
    {
        as_root timeout 300 apt-get -q update
        # shellcheck disable=SC2086
        as_root timeout 600 env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing
    } > .venv/needs.log 2>&1 < /dev/null || echo "not installed (see .venv/needs.log):$missing"
fi

# npm writes its own lock file last, so an older one is from before the present list of packages.
if command -v npm > /dev/null 2>&1 && ! [ tests/e2e/node_modules/.package-lock.json -nt tests/e2e/package-lock.json ]; then
    (cd tests/e2e && timeout 300 npm ci --no-audit --no-fund > ../../.venv/npm.log 2>&1 < /dev/null) ||
        echo "npm packages of tests/e2e not installed (see .venv/npm.log)"
fi
exit 0
