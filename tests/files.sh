#!/usr/bin/env bash
# Looks at every tracked file: is it of a language that this project is written in, and is it ours? Nothing is copied here:
# what is others' comes in as a dependency, or is named in NOTICE. Then makes a repository with files that must not pass, and sees
# that none does.
#
#   tests/files.sh [DIRECTORY]
#
#   DIRECTORY   a git work tree to look at, without the second part; this repository unless given
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# Rust, shell, Python and its stubs, TypeScript, YAML, Markdown, proto; then data: pictures, settings, locks, snapshots, fuzzing, certificates.
KINDS='\.(rs|sh|py|pyi|ts|cts|mts|yaml|yml|md|proto)$'
DATA='\.(svg|png|toml|lock|json|jsonl|snap|txt|in|dict|service|hbs|pem|key|sha256)$'
# These have names and no kind: inputs of the fuzzers, what a tool looks for by its name, the compiled proto files. Java is for the test of
# grpc-java alone, and scripts and styles are those that the web console serves.
NAMES='^tests/clients/java/[A-Za-z]+\.java$|^crates/web-console/assets/[a-z]+\.(css|js)$|^tests/fuzz/seeds/[^.]+$|(^|/)(LICENSE|NOTICE|justfile|Dockerfile|gitconfig|\.gitattributes|\.gitignore|\.dockerignore|\.npmrc|py\.typed)$|^\.ci/run$|^crates/wire/src/generated/(descriptors|messages)\.bin$'
# In no file but LICENSE and NOTICE, and this one, which has to say them.
THEIRS='copyright (\(c\)|©|[0-9]{4})|spdx-license-identifier|gnu (lesser |affero )?general public license|all rights reserved'
# Messages to people name a heading of the book, as `see the book, "Compose"`, and no file of the sources.
ABSENT='deploy/(README|[a-z.]*compose)|(POLICY|ARCHITECTURE)\.md|deploy/cofferd\.example'
NAMED='see the book, \\?"[^"\\]+'
EXCEPT='^(LICENSE|NOTICE|tests/files\.sh)$'

# look DIRECTORY: names what is wrong, and fails if anything is.
look() {
    local wrong=0 file
    while IFS= read -r file; do
        printf '%s: of no language that this project is written in\n' "$file"
        wrong=1
    done < <(git -C "$1" ls-files | grep -vE "$KINDS|$DATA|$NAMES")
    while IFS= read -r file; do
        [[ $file =~ $EXCEPT ]] && continue
        printf '%s: has the copyright or licence header of others\n' "$file"
        wrong=1
    done < <(git -C "$1" grep -IliE "$THEIRS" || true)
    while IFS= read -r file; do
        printf '%s: a message names a file that a user of a package does not have\n' "$file"
        wrong=1
    done < <(git -C "$1" grep -nE "$ABSENT" -- 'crates/*/src/*.rs' 'crates/policy/policies' | grep -vE '^[^:]*:[0-9]+: *//' || true)
    while IFS= read -r file; do
        grep -rqxE "#+ $file" "$1/docs/src" && continue
        printf '%s: a message names this heading of the book, which has no such heading\n' "$file"
        wrong=1
    done < <(git -C "$1" grep -ohE "$NAMED" -- 'crates/*/src/*.rs' 'crates/policy/policies' | sed 's/.*"//' | sort -u)
    return "$wrong"
}

# Each planted file alone has to be found, and a good one not.
try() {
    local scratch file found name words
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$scratch'" EXIT
    git -C "$scratch" init --quiet
    mkdir -p "$scratch/docs/src"
    printf '# Compose\n' >"$scratch/docs/src/compose.md"
    while IFS='|' read -r file words found; do
        mkdir -p "$scratch/$(dirname "$file")"
        printf '%s\n' "$words" >"$scratch/$file"
        git -C "$scratch" add --all
        name=passes
        look "$scratch" >/dev/null || name=fails
        if [[ $name != "$found" ]]; then
            printf '%s with "%s" %s, and must not\n' "$file" "$words" "$name"
            return 1
        fi
        rm "${scratch:?}/$file"
        git -C "$scratch" add --all
    done <<'PLANTED'
src/lib.rs|fn main() {}|passes
tests/fuzz/seeds/glob/00|x|passes
LICENSE|Copyright (c) 1999 Somebody|passes
src/shell.c|int main(void) {}|fails
src/shell.h|int x;|fails
web/app.js|1|fails
box/a.pl|1|fails
Makefile|all:|fails
tool|#!/bin/sh|fails
src/diff.rs|// Copyright (c) 2005 Somebody|fails
src/diff.rs|// Copyright 2005 Somebody|fails
src/diff.rs|// SPDX-License-Identifier: GPL-2.0-only|fails
crates/a/src/lib.rs|const WHY: &str = "see deploy/README.md";|fails
crates/policy/policies/a.yaml|# see POLICY.md|fails
crates/a/src/lib.rs|// deploy/compose.yaml starts it|passes
crates/a/src/lib.rs|const WHY: &str = "see the book, \"Nowhere\"";|fails
crates/a/src/lib.rs|const WHY: &str = "see the book, \"Compose\"";|passes
src/a.py|# under the terms of the GNU General Public License|fails
PLANTED
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
-*) usage >&2 && exit 2 ;;
'') look "$REPOSITORY" && try ;;
*) look "$1" ;;
esac
