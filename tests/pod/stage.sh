# Sourced first: runs the sourcing script again in a stage of its own, with podman and this project's images.
#
# The stage has mount, network, IPC and process namespaces of its own, and podman's storage is in a temporary folder.
# All processes end with the first one, and that one when the script outside does, even if it is killed (SIGKILL). The
# folder and podman's control groups then stay; the next run takes them away.
# There: $work, a folder that goes away; $PROGRAMS, the built ones; podman, quietly, die; $version, the images' tag.
# A script that sets `arches` before gets images for these architectures; $PROGRAMS then has a folder for each.
# shellcheck shell=bash

HERE=$(dirname "$(realpath -- "$0")")

die() { echo "pod: $*" >&2; exit 1; }

# --- outside: what needs this machine's network, and a stage of its own -----------------------------------

if [ "${POD_STAGE:-}" = "" ]; then
    PROGRAMS=$(realpath -- "${1:?the folder of the programs is missing: let make call this}")
    shift
    [ "$(id -u)" -eq 0 ] || die "containers with NET_ADMIN need root"
    for tool in podman crun netavark catatonit busybox nsenter setpriv unshare python3 ip flock; do
        PATH="$PATH:/usr/libexec/podman:/usr/lib/podman" command -v "$tool" >/dev/null ||
            die "$tool is missing: \`make setup-checks\` installs it"
    done
    control_groups() { find /sys/fs/cgroup -type d -path '*/libpod_parent*' 2>/dev/null | sort; }
    leave() { # leave FOLDER: takes away what a run left, whose folder that is
        # Of podman's control groups those that were not there before; one in use cannot be removed.
        comm -13 "$1/control-groups" <(control_groups) | sort -r | xargs -r rmdir 2>/dev/null || true
        [ ! -e "$1/made-containers" ] || rmdir /var/lib/containers 2>/dev/null || true
        rm -rf "$1"
    }
    # The blank is there on purpose: nothing may break on one in TMPDIR.
    temporary=$(realpath -- "${TMPDIR:-/var/tmp}")
    for dead in "$temporary/pod stage."*/alive; do # every process of a run holds the lock of its folder
        [ ! -e "$dead" ] || ! flock --nonblock "$dead" true || leave "${dead%/alive}"
    done
    work=$(mktemp -d "$temporary/pod stage.XXXXXX")
    control_groups >"$work/control-groups"
    # podman keeps a cache there, wherever its storage is: the stage gets a /var/lib/containers of its own.
    [ -d /var/lib/containers ] || { : >"$work/made-containers"; mkdir -p /var/lib/containers; }
    exec {alive}>"$work/locked"
    flock "$alive"
    mv "$work/locked" "$work/alive" # not before it is locked
    finish() {
        trap - EXIT
        { kill "$stage" && wait "$stage"; } 2>/dev/null || true
        leave "$work"
    }
    stage=
    trap finish EXIT
    trap 'echo "pod: interrupted" >&2; exit 130' INT
    trap 'echo "pod: interrupted" >&2; exit 143' TERM
    root_file_system() { TMPDIR=$work setpriv --pdeathsig TERM "$HERE/../../image/rootfs" "$@"; }
    if [ -z "${arches[*]:-}" ]; then
        root_file_system "$work/iptables"
    else
        mkdir "$work/iptables"
        for arch in "${arches[@]}"; do root_file_system "$work/iptables/$arch" "$arch"; done
    fi
    export PROGRAMS work POD_STAGE=inside
    # unshare waits for its child and is deaf meanwhile; killed, it takes the stage along. A job in the background lets
    # this shell hear an interrupt.
    setpriv --pdeathsig TERM timeout --kill-after=1 "${LIMIT:-300}" unshare --mount --propagation private --net --ipc --uts --pid --fork \
        --kill-child --mount-proc "$0" "$@" </dev/null &
    stage=$! status=0
    wait "$stage" || status=$?
    case $status in 124 | 137) echo "pod: not done after ${LIMIT:-300} seconds" >&2 ;; esac
    exit "$status"
fi

# --- inside: the stage -----------------------------------------------------------------------------------------------

trap 'exit 143' TERM # whatever was running has got the signal too, and has not failed because of that
for place in /run /dev/shm /var/lib/containers; do mount -t tmpfs tmpfs "$place"; done # podman's state, locks and cache
if mountpoint -q /sys/fs/cgroup/unified; then
    echo "pod: hybrid control groups: crun gets a view without the unified hierarchy, in this mount namespace only"
    umount /sys/fs/cgroup/unified
fi
# A container may not have higher limits than its parent, and podman's defaults are higher than some machines'.
echo "pod: limits lowered for this run only: 1024 files, 4000 processes"
ulimit -n 1024 -u 4000
cat >"$work/containers.conf" <<END
[containers]
default_ulimits = ["nofile=1000:1000", "nproc=4000:4000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
END
# `podman` is this storage's, for other programs too.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %q --root %q --runroot %q --storage-driver vfs "$@"\n' \
    "$(command -v podman)" "$work/storage" "$work/run" >"$work/bin/podman"
chmod +x "$work/bin/podman"
export CONTAINERS_CONF=$work/containers.conf TMPDIR=$work PATH="$work/bin:$PATH"
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "failed: $*"; }; }

build_images() {
    ARCHES="${arches[*]:-}" ENGINE=podman ROOTFS=$work/iptables PROGRAMS=$PROGRAMS "$HERE/../../image/build" local
}
build_images
# shellcheck disable=SC2034 # for who sources this
version=$("$PROGRAMS${arches[*]:+/$(dpkg --print-architecture)}/istio-iptables" --version | cut -d ' ' -f 2)

