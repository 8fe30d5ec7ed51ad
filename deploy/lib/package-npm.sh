# shellcheck shell=bash
# Three packages for npm: the SDK, the launcher of coffer, and the program for this platform. npm packs them with fixed times.
# Needs tools.sh and package.sh's variables.

# For Node.js as the SDK's tests have it.
npm_tool() { PATH=$CONFORMANCE/bin:$PATH "$@"; }

# npm runs `prepare` of a directory that it is given by name, whatever it is told.
pack_npm() { (cd "$1" && npm_tool npm pack --ignore-scripts --silent --pack-destination "$DIST"); }

npm_cpu() {
    case $(uname -m) in
    x86_64) echo x64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
    esac
}

# fill_npm NAME: a copy of deploy/npm/NAME with version and platform.
fill_npm() {
    local place=$WORK/npm/$1
    install -d "$place"
    sed -e "s/@VERSION@/$VERSION/" -e "s/@CPU@/$(npm_cpu)/" "deploy/npm/$1/package.json" >"$place/package.json"
    install -m 0644 -t "$place" LICENSE
}

npm_launcher() {
    local place=$WORK/npm/coffer
    fill_npm coffer
    install -m 0644 -t "$place" deploy/npm/coffer/README.md
    npm_tool "$TYPESCRIPT_SDK/node_modules/.bin/tsc" --ignoreConfig --target es2022 --module nodenext --strict --skipLibCheck --types node \
        --typeRoots "$TYPESCRIPT_SDK/node_modules/@types" --outDir "$place" deploy/npm/coffer/launcher.mts || return 1
    chmod 0755 "$place/launcher.mjs"
    pack_npm "$place"
}

npm_program() {
    local place=$WORK/npm/platform
    fill_npm platform
    install -D -m 0755 "$BIN/coffer" "$place/bin/coffer"
    find "$SHARE" -maxdepth 1 -type f ! -name '*.yaml' -exec install -m 0644 -t "$place" {} +
    pack_npm "$place"
}

# From a copy, so that `dist` has no file of an earlier build.
npm_sdk() {
    local copy=$WORK/npm/sources
    install -d "$copy"
    git ls-files -z clients/typescript | xargs -0 cp --parents -t "$copy" || return 1
    copy=$copy/clients/typescript
    cp LICENSE "$copy"
    ln -s "$TYPESCRIPT_SDK/node_modules" "$copy/node_modules"
    printf '{"extends": "./tsconfig.json", "include": ["src"]}\n' >"$copy/tsconfig.package.json"
    (cd "$copy" && npm_tool node_modules/.bin/tsc --project tsconfig.package.json) || return 1
    rm "$copy/node_modules"
    (cd "$copy" && npm_tool npm pkg delete scripts devDependencies) || return 1
    chmod -R u=rwX,go=rX "$copy"
    pack_npm "$copy"
}

make_npm() {
    ensure_conformance && ensure_typescript_sdk || return 1
    step "npm packages of coffer" npm_launcher && step "The program for $(npm_cpu)" npm_program && step "npm package of the SDK" npm_sdk
}
