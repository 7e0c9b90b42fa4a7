#!/bin/sh
# Makes a base image's file tree with debootstrap and writes it as a tar file: make-base.sh OUTPUT.tar PACKAGE...
# The suite and the mirror are the host's own where it is a Debian with Python 3.11 or later, else debootstrap's defaults.
# Exit codes: 3 not root, 4 debootstrap is missing and can't be installed, 5 debootstrap failed.
set -eu

output=$1
shift
default_suite=bookworm

complain() {
    code=$1
    shift
    echo "make-base: $*" >&2
    exit "$code"
}

host_suite() {
    if [ -r /etc/os-release ]; then
        # shellcheck disable=SC1091
        (. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}") || true
    fi
}

host_mirror() {
    apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="$1" '$1 ~ /^https?:.*\/debian\/?$/ && $2 == suite && $3 == "main" { print $1; exit }'
}

export_apt_proxies() {
    eval "$(apt-config shell apt_http Acquire::http::Proxy apt_https Acquire::https::Proxy 2>/dev/null || true)"
    case "${apt_http:-DIRECT}" in DIRECT) ;; *) export http_proxy="$apt_http" ;; esac
    case "${apt_https:-DIRECT}" in DIRECT) ;; *) export https_proxy="$apt_https" ;; esac
}

ensure_debootstrap() {
    command -v debootstrap >/dev/null && return
    command -v apt-get >/dev/null || complain 4 "debootstrap is not installed and there is no apt-get to install it with"
    { apt-get install -y --no-install-recommends debootstrap ||
        { apt-get update && apt-get install -y --no-install-recommends debootstrap; }; } >&2 ||
        complain 4 "apt-get could not install debootstrap"
}

[ "$(id -u)" = 0 ] || complain 3 "debootstrap needs root"
ensure_debootstrap
suite=$(host_suite)
case "$suite" in '' | stretch | buster | bullseye) suite=$default_suite ;; esac
mirror=$(host_mirror "$suite")
export_apt_proxies

tree=$(mktemp -d /var/tmp/assay-base.XXXXXX)
trap 'rm -rf "$tree"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$tree"
packages=$(echo "$*" | tr ' ' ',')
debootstrap --variant=minbase --include="$packages" "$suite" "$tree" ${mirror:+"$mirror"} >&2 ||
    complain 5 "debootstrap of $suite from ${mirror:-its default mirror} failed"
rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* "$tree"/usr/share/doc/* \
    "$tree"/usr/share/man/* "$tree"/usr/share/locale/* "$tree"/etc/ssh/ssh_host_* "$tree"/debootstrap
tar -C "$tree" --numeric-owner --one-file-system -cf "$output" .
