#!/usr/bin/env bash
# Make sure that a Chromium for the browser tests is there, from Debian's packages when root.
# Never fails: without a browser the tests themselves fail in CI and say why elsewhere.
set -u
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "chromium: installing Debian's package for the browser tests"
  log=$(mktemp)
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
    >"$log" 2>&1 </dev/null || { tail -n 5 "$log"; echo "chromium: could not be installed"; }
else
  echo "chromium: not found; 'apt-get install chromium' as root brings it"
fi
exit 0
