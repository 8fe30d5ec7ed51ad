# Everyday commands. Each is a line or two of a tool that can be called without just as well.

# List the commands
_default:
    @just --list --unsorted

# Build cofferd and coffer
build *ARGS:
    cargo build --locked {{ ARGS }}

# From nothing to a finished call on this machine
quickstart *ARGS:
    ./deploy/quickstart.sh {{ ARGS }}

# What is wrong with this host, and what to do about it
doctor *ARGS:
    cargo run --locked --quiet --bin coffer -- doctor {{ ARGS }}

# The tests that need no Docker Engine
test *ARGS:
    ./tests/run.sh --no-engine {{ ARGS }}

# Every check of this repository, with the engine's
test-all *ARGS:
    ./tests/run.sh {{ ARGS }}

# Formatting, clippy, dependencies, files and scripts
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo deny check bans licenses sources
    ./tests/files.sh

# The code that the proto files give, after a change of one of them
generate:
    crates/wire/generate.sh

# Format the code
fmt:
    cargo fmt --all

# The licences of everything that a release is linked with, into target/licenses
licenses:
    ./deploy/licenses.sh

# Packages for Debian, Python, npm and Compose, into target/dist
package *ARGS:
    ./deploy/package.sh {{ ARGS }}

# Measure: tests/bench/README.md
bench *ARGS:
    ./tests/bench.sh {{ ARGS }}

# Fuzz the parsers of hostile input: tests/fuzz/README.md
fuzz *ARGS:
    ./tests/fuzz.sh {{ ARGS }}
