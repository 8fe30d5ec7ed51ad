# shellcheck shell=bash
# The Debian package, by dpkg-deb alone: every Debian and Ubuntu has it, and it repeats byte for byte. Needs package.sh's
# variables.

# The unit of this directory, with the package's paths and without the steps that the package does.
deb_unit() { sed -e '1,/^\[Unit\]/{/^\[Unit\]/!d}' -e 's#/usr/local/bin/#/usr/bin/#g' deploy/cofferd.service; }

# The example configuration, in which the group may use the socket and runs outlive a daemon that an upgrade replaces.
deb_configuration() {
    sed -e 's#^\(  unix: {.*mode: "0660"\) }$#\1, group: cofferdam }#' -e 's#^runs: { on_stop: end }$#runs: { on_stop: leave }#' \
        deploy/cofferd.example.yaml >"$1"
    grep -q '^  unix: {.*group: cofferdam }$' "$1" && grep -q '^runs: { on_stop: leave }$' "$1" && return 0
    printf 'deploy/cofferd.example.yaml has other lines now: correct deb_configuration.\n'
    return 1
}

# cofferd has few options, which its help explains. A page for coffer and one for each of its commands come from `coffer manual`.
deb_manual() {
    local root=$1
    install -d "$root/usr/share/man/man1" "$root/usr/share/man/man8"
    "$PROGRAMS/coffer" manual "$root/usr/share/man/man1" || return 1
    {
        printf '.TH cofferd 8 "" "cofferd %s"\n.SH NAME\ncofferd \\- daemon in which coding agents work\n' "$VERSION"
        printf '.SH SYNOPSIS\ncofferd [OPTIONS]\n.SH DESCRIPTION\n.nf\n'
        "$PROGRAMS/cofferd" --help | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\&&/"
        printf '.fi\n.SH FILES\n/etc/cofferdam/cofferd.yaml\n.SH SEE ALSO\ncoffer(1)\n'
    } >"$root/usr/share/man/man8/cofferd.8" || return 1
    find "$root/usr/share/man" -type f -exec gzip -9n {} +
}

deb_completions() {
    local root=$1/usr/share
    install -d "$root/bash-completion/completions" "$root/zsh/vendor-completions" "$root/fish/vendor_completions.d"
    "$PROGRAMS/coffer" completions bash >"$root/bash-completion/completions/coffer" &&
        "$PROGRAMS/coffer" completions zsh >"$root/zsh/vendor-completions/_coffer" &&
        "$PROGRAMS/coffer" completions fish >"$root/fish/vendor_completions.d/coffer.fish"
}

deb_documents() {
    local doc=$1/usr/share/doc/cofferdam file
    install -d "$doc"
    find "$SHARE" -maxdepth 1 -type f -exec install -m 0644 -t "$doc" {} +
    mv "$doc/LICENSE" "$doc/copyright"
    gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
    sed 's#\.\./docs/src/#book/#g' deploy/README.md >"$doc/README.md"
    install -m 0644 deploy/prometheus/cofferdam.rules.yml deploy/grafana/cofferdam.json "$doc/"
    (cd docs/src && find . -type f -exec install -D -m 0644 {} "$doc/book/{}" \;)
    for file in "$doc/THIRD-PARTY-LICENSES.md" "$doc/cofferdam.cdx.json"; do
        [[ ! -e $file ]] || gzip -9n "$file"
    done
}

deb_control() {
    local root=$1 size
    size=$(du -k --apparent-size -s "$root" | cut -f 1)
    install -d "$root/DEBIAN"
    printf '/etc/cofferdam/cofferd.yaml\n' >"$root/DEBIAN/conffiles"
    (cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$VERSION-$REVISION/" -e "s/@ARCHITECTURE@/$ARCHITECTURE/" -e "s/@GLIBC@/$GLIBC/" -e "s/@SIZE@/$size/" \
        deploy/debian/control.in >"$root/DEBIAN/control"
    local script
    for script in postinst prerm postrm; do
        install -m 0755 "deploy/debian/$script.sh" "$root/DEBIAN/$script"
    done
}

make_deb() {
    local root=$WORK/deb
    install -d "$root/etc/cofferdam" "$root/usr/bin" "$root/usr/lib/systemd/system" "$root/usr/share/cofferdam/policies"
    install -m 0755 -t "$root/usr/bin" "$BIN/cofferd" "$BIN/coffer"
    deb_unit >"$root/usr/lib/systemd/system/cofferd.service"
    install -m 0644 -t "$root/usr/share/cofferdam/policies" "$SHARE"/policies/*.yaml
    deb_configuration "$root/etc/cofferdam/cofferd.yaml" || return 1
    chmod 0640 "$root/etc/cofferdam/cofferd.yaml"
    deb_manual "$root" && deb_completions "$root" && deb_documents "$root" || return 1
    deb_control "$root" || return 1
    reset_times "$root"
    # xz takes minutes for programs that nothing has optimised.
    local compression=(-Zgzip -z1)
    [[ $PROFILE != release ]] || compression=(-Zxz --threads-max=1)
    dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$DIST/cofferdam_${VERSION}-${REVISION}_$ARCHITECTURE.deb"
}
