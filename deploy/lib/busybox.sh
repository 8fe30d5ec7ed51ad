# shellcheck shell=bash
# The static busybox of which cofferd makes its default image. Needs say.sh and packages.sh.

BUSYBOX=/bin/busybox # the default of `default_image.busybox`

# The package busybox puts a dynamic one at the same path; of a static one the loader lists no library.
busybox_is_static() { [[ -x $BUSYBOX ]] && ! LC_ALL=C ldd "$BUSYBOX" 2>/dev/null | grep -q '=>'; }

# The one function that others call.
ensure_busybox() {
    if busybox_is_static; then return 0; fi
    install_packages "The default image" busybox-static || return 1
    busybox_is_static || die "$BUSYBOX is no static busybox although busybox-static is installed. Remove what is there and run this again."
}
