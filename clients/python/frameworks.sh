#!/usr/bin/env bash
# Runs the frameworks' own suites of sandboxes, and our tests of those that have none, against a daemon of its own. Fetches the
# frameworks from PyPI, once. tests/frameworks/conftest.py has the checks that cannot hold, and why.
#
#   clients/python/frameworks.sh [PYTEST-ARGUMENTS…]
#
# COFFERDAM_TEST_COFFERD=PROGRAM   cofferd (target/debug/cofferd)
# COFFERDAM_TEST_PROFILE=NAME      the profile that the suites run with (harness)
# COFFERDAM_TEST_IMAGE=NAME        an image with bash and Python (images/dev, built unless it is there)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
REPOSITORY=$(cd ../.. && pwd)
PLACE=$REPOSITORY/target/tools/frameworks
WANTED=tests/frameworks/requirements.txt

[[ ${1-} != --help ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0; }

if ! cmp -s "$WANTED" "$PLACE/requirements.txt"; then
    rm -rf "$PLACE"
    python3 -m venv "$PLACE"
    "$PLACE/bin/pip" install --quiet --disable-pip-version-check -r "$WANTED"
    # With the package itself: frameworks find some integrations by its entry points.
    "$PLACE/bin/pip" install --quiet --disable-pip-version-check --editable .
    cp "$WANTED" "$PLACE/requirements.txt"
fi
export COFFERDAM_TEST_COFFERD=${COFFERDAM_TEST_COFFERD:-$REPOSITORY/target/debug/cofferd}
COFFERDAM_TEST_IMAGE=${COFFERDAM_TEST_IMAGE:-$("$REPOSITORY/tests/images.sh" dev)}
export COFFERDAM_TEST_IMAGE
exec "$PLACE/bin/python" -m pytest -p no:cacheprovider tests/frameworks/suite_*.py "$@"
