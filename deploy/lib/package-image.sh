# shellcheck shell=bash
# The context of the container images, as one tar for `docker build - <FILE`: it takes no engine, and it repeats byte for byte.
# Needs roots.sh, busybox.sh and package.sh's variables.

make_image() {
    local context=$WORK/context
    install -d "$WORK/roots" "$context"
    busybox_is_static || { printf '%s is no static busybox: apt-get install busybox-static\n' "$BUSYBOX" && return 1; }
    COFFERDAM_GRPCURL='' fill_images "$WORK/roots" "$BIN" || return 1
    pack_images "$WORK/roots" "$context"
    pack "$context" "$DIST/cofferdam-images_${VERSION}_$ARCHITECTURE.tar"
}
