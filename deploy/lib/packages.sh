# shellcheck shell=bash
# Root's rights and the distribution's packages. Debian and Ubuntu are served; anybody else is told in one sentence
# what to install. Needs say.sh.

# Runs a command as root: directly, or through sudo.
as_root() {
    if ((EUID == 0)); then "$@"; else sudo --preserve-env=DEBIAN_FRONTEND,DOCKER_HOST,NO_COLOR,http_proxy,https_proxy "$@"; fi
}

# Fails with a plain message when root's rights cannot be had. `step` has no terminal for sudo's question, so it is
# asked for here.
need_root() {
    if ((EUID == 0)); then return 0; fi
    command -v sudo >/dev/null || die "This has to $1, which needs root. Run it as root, or install sudo."
    sudo -v || die "This has to $1, which needs root, and sudo refused."
}

has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# The version of a package that could be installed, if there is one. (The lists must have been fetched.)
apt_version() { apt-cache policy "$1" 2>/dev/null | sed -n '/(none)/d;s/^ *Candidate: *//p'; }

apt_offers() { [[ -n $(apt_version "$1") ]]; }

apt_refresh() {
    if [[ -n ${APT_REFRESHED:-} ]]; then return 0; fi
    step "Reading the distribution's package lists" apt_update || return 1
    APT_REFRESHED=1
}

# A list that cannot be fetched fails it, because a package would be missed later. One that stays away is left out.
apt_update() {
    local update=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update)
    again "${update[@]}" -o APT::Update::Error-Mode=any || "${update[@]}"
}

# install_packages "what for" package…   The caller has found that something is missing.
install_packages() {
    local why=$1
    shift
    has_apt || die "$why needs the packages: $*. This script installs them on Debian and Ubuntu only; install their like by hand and start again."
    need_root "install $*"
    apt_refresh || return 1
    step "Installing $*" again as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}
