#!/usr/bin/env bash
# Makes packages of Cofferdam from finished programs, into target/dist, with their SHA-256 sums and an SBOM (CycloneDX 1.5).
# Needs neither root nor an engine. The same commit and the same programs give the same bytes.
#
#   deploy/package.sh [--profile PROFILE] [--revision N] [--out DIRECTORY] [deb] [wheels] [npm] [image] [crates]
#
#   --profile PROFILE   takes cofferd and coffer of target/PROFILE (release), and builds them if they are missing
#   --revision N        revision of the Debian package (1)
#   --out DIRECTORY     where the packages go (target/dist); earlier files in it are deleted
#
# Without names it makes all but `crates`, which checks that the published crates can be published.
# The packages of a release have the licence texts of all dependencies, which takes cargo-about (deploy/licenses.sh).
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/package.log}
for part in say packages busybox toolchain tools roots package-deb package-wheels package-npm package-image; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

PROFILE=release REVISION=1 OUT=$REPOSITORY/target/dist KINDS=()
while (($#)); do
    case $1 in
    --profile) PROFILE=${2:?--profile needs a value} && shift ;;
    --revision) REVISION=${2:?--revision needs a value} && shift ;;
    --out) OUT=$(realpath -m "${2:?--out needs a value}") && shift ;;
    -h | --help) usage && exit 0 ;;
    deb | wheels | npm | image | crates) KINDS+=("$1") ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
((${#KINDS[@]})) || KINDS=(deb wheels npm image)
[[ $REVISION =~ ^[0-9][0-9A-Za-z.+~]*$ ]] || die "--revision is '$REVISION': it begins with a digit, then has letters, digits, '.', '+' and '~'."

VERSION=$(sed -n 's/^version *= *"\(.*\)".*/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
PROGRAMS=${CARGO_TARGET_DIR:-$REPOSITORY/target}/$PROFILE
[[ $PROFILE != debug && $PROFILE != dev ]] || PROGRAMS=${PROGRAMS%/*}/debug
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# Paths of this machine are replaced in what the compilers write down. The static programs are built by a build script, which
# sets flags of its own.
build_programs() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} profile=$PROFILE
    [[ $profile != debug ]] || profile=dev
    RUSTFLAGS="--remap-path-prefix=$REPOSITORY=. --remap-path-prefix=$cargo_home=cargo" \
        CFLAGS="-ffile-prefix-map=$REPOSITORY=. -ffile-prefix-map=$cargo_home=cargo" \
        cargo build --locked --profile "$profile"
}

# The programs without debugging information; names of functions stay, for backtraces.
take_programs() {
    local program
    BIN=$WORK/bin
    mkdir "$BIN"
    for program in cofferd coffer; do
        strip --strip-debug -o "$BIN/$program" "$PROGRAMS/$program" || return 1
        chmod 0755 "$BIN/$program"
    done
}

# machine FILE: the processor of a program, as its ELF header has it. /proc/self/exe is od, a program of this machine.
machine() { od --address-radix=n --format=x2 --skip-bytes=18 --read-bytes=2 "$1"; }

# The names of the packages have the architecture of this machine, and some of their files come from the programs themselves.
check_programs() {
    local program
    for program in cofferd coffer; do
        [[ $(machine "$PROGRAMS/$program") == "$(machine /proc/self/exe)" ]] ||
            die "$PROGRAMS/$program is for another processor than this machine's. Make the packages on a machine of its architecture."
    done
}

# newest_glibc FILE…: the newest version of the C library whose symbols the programs need.
newest_glibc() { objdump -T "$@" | grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -n 1 | cut -d _ -f 2; }

# Files that several packages have: configuration, policies, licence, SBOM.
share_files() {
    SHARE=$WORK/share
    install -d "$SHARE/policies"
    install -m 0644 -t "$SHARE/policies" crates/policy/policies/*.yaml
    install -m 0644 -t "$SHARE" deploy/cofferd.example.yaml LICENSE NOTICE
    cargo metadata --locked --format-version 1 >"$WORK/metadata.json" || return 1
    python3 deploy/sbom.py Cargo.lock "$SOURCE_DATE_EPOCH" <"$WORK/metadata.json" >"$SHARE/cofferdam.cdx.json" || return 1
    [[ $PROFILE == release ]] || return 0
    [[ target/licenses/THIRD-PARTY-LICENSES.md -nt Cargo.lock ]] || deploy/licenses.sh || return 1
    install -m 0644 -t "$SHARE" target/licenses/THIRD-PARTY-LICENSES.md
}

# Sorted, without this machine's users, times and umask.
reset_times() { find "$@" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

publishable_crates() { cargo publish --dry-run --allow-dirty --locked -p cofferdam-node-id -p cofferdam-wire -p cofferdam-client; }

sums() { (cd "$DIST" && sha256sum -- * >"$WORK/sums") && install -m 0644 "$WORK/sums" "$DIST/SHA256SUMS"; }

# The SDKs have files of their own for it.
same_versions() {
    grep -qx "version = \"$VERSION\"" clients/python/pyproject.toml &&
        grep -qx "server = \[\"cofferdam-server==$VERSION\"\]" clients/python/pyproject.toml &&
        grep -qx "  \"version\": \"$VERSION\"," clients/typescript/package.json
}

title "Packages of Cofferdam $VERSION"
same_versions || die "clients/python/pyproject.toml (version, extra server) or clients/typescript/package.json has another version than $VERSION, which Cargo.toml has."
if [[ ${KINDS[*]} == crates ]]; then
    step "Crates that are published" publishable_crates
    exit
fi
if [[ ! -x $PROGRAMS/cofferd || ! -x $PROGRAMS/coffer ]]; then
    ensure_toolchain
    deploy/console-assets.sh || die "xterm.js could not be fetched; the lines above say why."
    step "Compiling cofferd and coffer (profile $PROFILE, takes minutes)" build_programs || die "The programs did not build; the lines above say why."
fi
check_programs
for tool in strip objdump; do
    command -v "$tool" >/dev/null || install_packages "Making packages" binutils
done
step "The programs" take_programs || die "The programs could not be stripped; the lines above say why."
# shellcheck disable=SC2034 # for the parts
GLIBC=$(newest_glibc "$BIN/cofferd" "$BIN/coffer")
# shellcheck disable=SC2034
ARCHITECTURE=$(dpkg --print-architecture 2>/dev/null || uname -m)
step "Policies, licences, SBOM" share_files || die "A file for the packages could not be made; the lines above say why."

[[ ! -e $OUT || -e $OUT/SHA256SUMS ]] || rmdir "$OUT" 2>/dev/null || die "$OUT has files that are no packages. Name another directory with --out."
DIST=$WORK/dist
install -d "$DIST"
install -m 0644 -t "$DIST" "$SHARE/cofferdam.cdx.json"
for kind in "${KINDS[@]}"; do
    case $kind in
    deb) step "Debian package" make_deb ;;
    wheels) make_wheels ;;
    npm) make_npm ;;
    image) step "Container image" make_image ;;
    crates) step "Crates that are published" publishable_crates ;;
    esac || die "The $kind could not be made; the lines above say why."
done
sums
rm -rf "$OUT"
install -d "$(dirname "$OUT")"
mv "$DIST" "$OUT"
ls -1 "$OUT" >&2
printf '%s\n' "$OUT"
