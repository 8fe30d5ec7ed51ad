# shellcheck shell=bash
# Two wheels, by hatchling, which the SDK is built with anyway: `cofferdam`, the SDK, and `cofferdam-server` with the programs.
# A wheel of finished programs is an archive with a tag, so no maturin. Needs tools.sh and package.sh's variables.

PACKAGING=$TOOLS/packaging
PACKAGING_REQUIREMENTS=$REPOSITORY/deploy/wheels/requirements.txt

# hatchling DIRECTORY: the wheel of the project there.
hatchling() { (cd "$1" && "$PACKAGING/bin/python" -m hatchling build --target wheel --directory "$DIST"); }

server_wheel() {
    local project=$WORK/wheel platform
    platform=manylinux_${GLIBC/./_}_$(uname -m)
    cp -r deploy/wheels "$project" && cp -r "$BIN" "$SHARE" "$project" || return 1
    COFFERDAM_VERSION=$VERSION COFFERDAM_PLATFORM=$platform hatchling "$project"
}

# From a copy, so that nothing is written beside the sources.
sdk_wheel() {
    local project=$WORK/sdk
    mkdir "$project" && git ls-files -z clients/python | xargs -0 cp --parents -t "$project" || return 1
    hatchling "$project/clients/python"
}

make_wheels() {
    ensure_packages hatchling "$PACKAGING" "$PACKAGING_REQUIREMENTS" || return 1
    step "Wheel cofferdam-server" server_wheel && step "Wheel cofferdam" sdk_wheel
}
