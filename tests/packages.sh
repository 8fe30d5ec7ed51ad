#!/usr/bin/env bash
# Makes all packages of deploy/package.sh from the debug build, twice on two paths, and compares their bytes. Then installs each into
# an empty place and makes a run there. Needs the engine and root.
#
#   tests/packages.sh
#
# With COFFERDAM_LONG=1 also installs the Debian package on real systemd hosts (Debian 12 and 13, tests/packages/machine.sh), and checks
# that the published crates can be published.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
PLACE=$REPOSITORY/target/packages
DIST=$PLACE/dist
mkdir -p "$PLACE"
LOG_FILE=${LOG_FILE:-$PLACE/log}
for part in say packages engine toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

TARGET=${CARGO_TARGET_DIR:-$REPOSITORY/target}
export CARGO_TARGET_DIR=$TARGET SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
EMPTY=$(mktemp -d /var/tmp/cofferdam-packages.XXXXXX)

clean_up() {
    local status=$?
    trap - EXIT
    if ((status)) && [[ -n ${DEMO-} && -s $DEMO/cofferd.log ]]; then as_root tail -n 20 "$DEMO/cofferd.log" >&2; fi
    end_daemon || true
    as_root rm -rf "$EMPTY"
    exit "$status"
}
trap clean_up EXIT

make_packages_once() { env -u COFFERDAM_GRPCURL deploy/package.sh --profile debug --out "$DIST"; }

# The same sources on another path, with the same tools and another umask.
make_packages_elsewhere() (
    umask 077
    local copy=$EMPTY/another/path
    mkdir -p "$copy/target"
    git ls-files -z | xargs -0 cp --parents -t "$copy"
    ln -s "$REPOSITORY/target/tools" "$copy/target/tools"
    ln -s "$REPOSITORY/clients/typescript/node_modules" "$copy/clients/typescript/node_modules"
    git -C "$copy" init --quiet && git -C "$copy" add --all
    "$copy/deploy/package.sh" --profile debug --out "$EMPTY/dist"
)

same_bytes() { diff "$DIST/SHA256SUMS" "$EMPTY/dist/SHA256SUMS"; }

# begin_daemon PROGRAMS CONFIGURATION: a daemon of these programs, with the configuration of a package on paths of its own.
# The configuration begins as that of `coffer up` does, so that `coffer down` ends and deletes the daemon.
begin_daemon() {
    BIN=$1
    DEMO=$(mktemp -d /var/tmp/cofferdam-packaged.XXXXXX)
    export COFFERDAM_ENDPOINT=unix:$DEMO/cofferd.sock
    {
        # shellcheck disable=SC2016 # the backquotes are text
        printf '# A private daemon of `coffer demo` or `coffer up`, which write this file.\n'
        as_root cat "$2" | sed -e "s#/run/cofferdam/cofferd.sock#$DEMO/cofferd.sock#" -e 's#, group: cofferdam##' \
            -e "s#^state_dir:.*#state_dir: $DEMO/state#" -e 's#^workspace_roots:.*##' -e 's#^runs:.*#runs: { on_stop: end }#' \
            -e "s#^docker:.*#docker: { endpoint: \"$(engine_endpoint)\" }#"
    } >"$DEMO/cofferd.yaml"
    step "Starting its cofferd" start_daemon
}

# As root, because it mounts workspaces into containers. The first start makes the default image.
start_daemon() {
    local deadline=$((SECONDS + 90))
    "$BIN/cofferd" --config "$DEMO/cofferd.yaml" --check-config || return 1
    # shellcheck disable=SC2016 # expanded by the inner shell, which runs as root
    as_root setsid --fork sh -c 'echo $$ >"$1/pid"; exec "$2/cofferd" --config "$1/cofferd.yaml" >>"$1/cofferd.log" 2>&1 </dev/null' cofferd "$DEMO" "$BIN"
    until as_client "$BIN/coffer" run list >/dev/null 2>&1; do
        ((SECONDS < deadline)) && [[ ! -s $DEMO/pid || -d /proc/$(<"$DEMO/pid") ]] || return 1
        sleep 0.2
    done
}

# Fails if the daemon did not end by itself.
end_daemon() {
    local said
    [[ -n ${DEMO-} ]] || return 0
    said=$(as_root "$BIN/coffer" down "$DEMO" --delete 2>&1) || { printf '%s\n' "$said" >&2 && return 1; }
    DEMO=''
    [[ $said != *'was killed'* ]]
}

# makes_a_run coffer…: with this client.
makes_a_run() {
    local run
    run=$("$@" run create --profile open --managed) &&
        [[ $("$@" call exec "$run" -- echo hello) == hello ]] && "$@" run stop "$run"
}

unpack_deb() {
    dpkg-deb --extract "$DIST"/cofferdam_*.deb "$EMPTY/deb" && dpkg-deb --control "$DIST"/cofferdam_*.deb "$EMPTY/control" &&
        (cd "$EMPTY/deb" && md5sum --check --quiet "$EMPTY/control/md5sums") &&
        grep -q '^ExecStart=/usr/bin/cofferd ' "$EMPTY/deb/usr/lib/systemd/system/cofferd.service" &&
        zgrep -q 'coffer.run.create' "$EMPTY/deb/usr/share/man/man1/coffer-run-create.1.gz" &&
        grep -q complete "$EMPTY/deb/usr/share/bash-completion/completions/coffer" &&
        grep -q '^runs: { on_stop: leave }$' "$EMPTY/deb/etc/cofferdam/cofferd.yaml" &&
        grep -q '^  unix: .* group: cofferdam }$' "$EMPTY/deb/etc/cofferdam/cofferd.yaml"
}

install_wheels() {
    python3 -m venv "$EMPTY/server" &&
        "$EMPTY/server/bin/pip" install --quiet --disable-pip-version-check --no-index "$DIST"/cofferdam_server-*.whl &&
        python3 -m venv "$EMPTY/sdk" &&
        "$EMPTY/sdk/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$DIST"/cofferdam-*.whl &&
        "$EMPTY/sdk/bin/python" -c 'from importlib.metadata import metadata; assert "server" in metadata("cofferdam").get_all("Provides-Extra")' &&
        [[ -e $("$EMPTY/server/bin/cofferdam-server" --share)/policies/review.yaml ]]
}

# To its end, with nothing left.
demonstration() {
    as_root "$EMPTY/server/bin/cofferdam-server" demo && ! compgen -G '/var/tmp/cofferdam-demo.*'
}

# The SDK's dependencies are those of the tests; nothing is fetched.
python_sdk() {
    PYTHONPATH=$(echo "$VENDOR_PACKAGES"/lib/python3*/site-packages) as_client "$EMPTY/sdk/bin/python" -c '
import cofferdam

assert "/sdk/" in cofferdam.__file__, cofferdam.__file__
with cofferdam.Sandbox.create(profile="open") as sandbox:
    assert sandbox.commands.run("echo hello").stdout == "hello\n"
'
}

install_npm() {
    mkdir -p "$EMPTY/npm" "$EMPTY/npm-sdk"
    PATH=$CONFORMANCE/bin:$PATH npm install --prefix "$EMPTY/npm" --offline --no-audit --no-fund "$DIST"/cofferdam-coffer-*.tgz &&
        PATH=$CONFORMANCE/bin:$PATH npm install --prefix "$EMPTY/npm-sdk" --prefer-offline --no-audit --no-fund "$DIST"/cofferdam-sdk-*.tgz
}

npm_sdk() {
    cat >"$EMPTY/npm-sdk/run.mjs" <<'END'
import { Sandbox } from "@cofferdam/sdk";

const sandbox = await Sandbox.create({ profile: "open" });
const said = await sandbox.commands.run("echo hello");
await sandbox.kill();
process.exit(said.stdout === "hello\n" ? 0 : 1);
END
    PATH=$CONFORMANCE/bin:$PATH as_client node "$EMPTY/npm-sdk/run.mjs"
}

# Clients need root for the daemon's socket.
as_client() {
    if ((EUID == 0)); then "$@"; else sudo --preserve-env=COFFERDAM_ENDPOINT,PYTHONPATH,PATH "$@"; fi
}

# The same context as of deploy/compose-images.sh, of which tests/containerized makes its runs.
images() {
    local name
    for name in cofferd client; do
        engine build --quiet --force-rm --network none --target "$name" --tag "cofferdam-packages/$name:test" - <"$(echo "$DIST"/cofferdam-images_*.tar)" || return 1
    done
    [[ $(engine run --rm --network none cofferdam-packages/cofferd:test --version) == "cofferd "* ]] &&
        [[ $(engine run --rm --network none cofferdam-packages/client:test coffer --version) == "coffer "* ]] &&
        engine image rm cofferdam-packages/cofferd:test cofferdam-packages/client:test
}

machine() {
    local revision=2
    [[ -d $PLACE/second ]] || deploy/package.sh --profile debug --revision "$revision" --out "$PLACE/second" deb >/dev/null
    tests/packages/machine.sh "$1" "$DIST"/cofferdam_*.deb "$PLACE/second"/cofferdam_*.deb
}

title "Packages"
engine_answers || die "There is no Docker Engine that answers: tests/run.sh starts one."
[[ -x $TARGET/debug/cofferd && -x $TARGET/debug/coffer ]] || die "There is no debug build in $TARGET/debug: build it with 'cargo build'."
ensure_vendor_packages || die "The Python packages of the tests could not be installed; the lines above say why."
step "Making them" make_packages_once
step "Making them again on another path" make_packages_elsewhere
step "The same bytes" same_bytes

step "Debian package: unpacking" unpack_deb
begin_daemon "$EMPTY/deb/usr/bin" "$EMPTY/deb/etc/cofferdam/cofferd.yaml"
step "Debian package: a run" makes_a_run as_client "$EMPTY/deb/usr/bin/coffer"
step "npm packages: installing" again install_npm
PATH=$CONFORMANCE/bin:$PATH step "npm package of coffer: a run" makes_a_run as_client "$EMPTY/npm/node_modules/.bin/coffer"
step "npm package of the SDK: a run" npm_sdk
end_daemon

step "Wheels: installing" install_wheels
begin_daemon "$EMPTY/server/bin" "$("$EMPTY/server/bin/cofferdam-server" --share)/cofferd.example.yaml"
step "Wheel of the programs: the demonstration" demonstration
step "Wheel of the programs: a run" makes_a_run as_client "$EMPTY/server/bin/cofferdam-server"
step "Wheel of the SDK: a run" python_sdk
end_daemon
step "Images" images

if [[ -n ${COFFERDAM_LONG-} ]]; then
    rm -rf "$PLACE/second"
    for release in trixie bookworm; do machine "$release"; done
    step "Crates that are published" deploy/package.sh crates
fi
