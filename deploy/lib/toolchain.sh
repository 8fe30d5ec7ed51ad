# shellcheck shell=bash
# What it takes to compile Cofferdam: git, a C compiler, and a Rust at least as new as Cargo.toml asks for. Nothing is
# installed that is there. Rust comes by rustup, the distribution's where it has one; where that cannot be reached, from
# the distribution's packages. Needs say.sh and packages.sh; REPOSITORY is the root of the sources.

# Networks fail for a moment; cargo says so in a warning, and asks again.
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-10}

missing_build_packages() {
    local -A package=([cc]=build-essential [make]=build-essential [pkg-config]=pkg-config [git]=git [python3]=python3 [curl]=curl)
    local command
    for command in cc make pkg-config git python3 curl; do
        command -v "$command" >/dev/null || printf '%s\n' "${package[$command]}"
    done | sort -u
}

wanted_rust() { sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' "$REPOSITORY/Cargo.toml"; }

# at_least WANTED FOUND: is the version FOUND no older?
at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; }

# What rust-toolchain.toml names, and rustup would fetch.
pinned_rust() { sed -n 's/^channel *= *"\(.*\)".*/\1/p' "$REPOSITORY/rust-toolchain.toml"; }

# Where rustup has the pinned Rust it is used; else one that is there and new enough, and nothing is fetched.
choose_installed_rust() {
    local usual found
    command -v rustup >/dev/null && [[ -z ${RUSTUP_TOOLCHAIN:-} ]] || return 0
    if rustup toolchain list 2>/dev/null | grep -q "^$(pinned_rust)\(-\| \|\$\)"; then return 0; fi
    usual=$(cd / && rustup show active-toolchain 2>/dev/null | cut -d ' ' -f 1)
    found=$([[ -z $usual ]] || RUSTUP_TOOLCHAIN=$usual rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    if [[ -n $found ]] && at_least "$(wanted_rust)" "$found"; then export RUSTUP_TOOLCHAIN=$usual; fi
}

rust_is_new_enough() {
    local found
    choose_installed_rust
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    [[ -n $found ]] && command -v cargo >/dev/null && at_least "$(wanted_rust)" "$found"
}

# rustup puts its commands where a shell that was started earlier does not look.
find_cargo() {
    local bin=${CARGO_HOME:-$HOME/.cargo}/bin
    if [[ -d $bin && :$PATH: != *:$bin:* ]]; then export PATH="$bin:$PATH"; fi
}

install_by_rustup() { rustup toolchain install "$(pinned_rust)" --profile minimal --no-self-update; }

# The official installer, from the host that also serves the compilers (sh.rustup.rs is only a script that picks it).
install_rustup_and_rust() {
    local url directory
    url=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init
    directory=$(mktemp -d) &&
        curl --proto '=https' --tlsv1.2 --retry 3 --max-time 300 -sSfL -o "$directory/rustup-init" "$url" &&
        chmod +x "$directory/rustup-init" &&
        "$directory/rustup-init" -y --profile minimal --default-toolchain "$(pinned_rust)" --no-modify-path
    local status=$?
    rm -rf "$directory"
    return "$status"
}

# Debian's stable releases carry a newer Rust beside their own, for web browsers.
install_distribution_rust() {
    local suffix version
    for suffix in '' -web; do
        version=$(apt_version "rustc$suffix")
        if [[ -n $version ]] && at_least "$(wanted_rust)" "$version"; then
            install_packages "The Rust compiler" "rustc$suffix" "cargo$suffix"
            return
        fi
    done
    return 1
}

install_rust() {
    if ! command -v rustup >/dev/null && has_apt && apt_refresh && apt_offers rustup; then
        install_packages "The Rust compiler" rustup || return 1
    fi
    if command -v rustup >/dev/null; then
        step "Installing Rust $(pinned_rust)" again install_by_rustup || return 1
        RUSTUP_TOOLCHAIN=$(pinned_rust)
        export RUSTUP_TOOLCHAIN
    elif ! step "Installing Rust with rustup" install_rustup_and_rust; then
        note "trying the distribution's own Rust instead"
        has_apt && apt_refresh && install_distribution_rust || return 1
    fi
    find_cargo
}

# The one function that others call.
ensure_toolchain() {
    local missing
    mapfile -t missing < <(missing_build_packages)
    if ((${#missing[@]})); then
        install_packages "Building Cofferdam" "${missing[@]}" || return 1
    fi
    find_cargo
    if rust_is_new_enough; then return 0; fi
    install_rust || die "Rust could not be installed. Install Rust $(wanted_rust) or newer from https://rustup.rs and run this again."
    rust_is_new_enough || die "Rust $(wanted_rust) or newer is needed, and $(rustc --version 2>/dev/null || echo none) is what was found. Run 'rustup toolchain install $(pinned_rust)' and then this again."
}
