# Sourced first: starts the script that sources it anew on a stage of its own, with podman and this project's images.
#
# The stage has mount, network, IPC and process namespaces of its own, and podman's storage is in a temporary folder:
# nothing of this machine is changed, and whatever happens nothing is left, since all processes end with the first one.
# There: $work, a folder that goes away; $PROGRAMS, the built ones; podman, quietly, die; $version, the images' tag.
# shellcheck shell=bash

HERE=$(dirname "$(realpath -- "$0")")

die() { echo "pod: $*" >&2; exit 1; }

# --- outside: what needs this machine's network, and a stage nobody else stands on -----------------------------------

if [ "${POD_STAGE:-}" = "" ]; then
    PROGRAMS=$(realpath -- "${1:?the folder of the programs is missing: let make call this}")
    shift
    [ "$(id -u)" -eq 0 ] || die "containers with NET_ADMIN need root"
    for tool in podman crun netavark catatonit busybox nsenter unshare python3 ip; do
        PATH="$PATH:/usr/libexec/podman:/usr/lib/podman" command -v "$tool" >/dev/null ||
            die "$tool is missing: \`make setup\` installs it"
    done
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/pod.XXXXXX")
    control_groups() { find /sys/fs/cgroup -type d -path '*/libpod_parent*' 2>/dev/null | sort; }
    before=$(control_groups)
    finish() {
        trap - EXIT
        { kill "$stage" && wait "$stage"; } 2>/dev/null || true
        rm -rf "$work"
        [ -n "$had_containers" ] || rmdir /var/lib/containers 2>/dev/null || true
        # Of podman's control groups those that were not there before; one in use cannot be removed.
        comm -13 <(echo "$before") <(control_groups) | sort -r | xargs -r rmdir 2>/dev/null || true
    }
    # podman keeps a cache there, wherever its storage is: the stage gets a /var/lib/containers of its own.
    had_containers=$(ls -d /var/lib/containers 2>/dev/null || true)
    mkdir -p /var/lib/containers
    stage=
    trap finish EXIT
    trap 'exit 130' INT TERM
    "$HERE/../../image/rootfs" "$work/iptables"
    export PROGRAMS work POD_STAGE=inside
    # unshare waits for its child and is deaf meanwhile; killed, it takes the stage along. A job in the background lets
    # this shell hear an interrupt.
    timeout --kill-after=1 "${LIMIT:-150}" unshare --mount --propagation private --net --ipc --uts --pid --fork \
        --kill-child --mount-proc "$0" "$@" </dev/null &
    stage=$! status=0
    wait "$stage" || status=$?
    case $status in 124 | 137) echo "pod: not done after ${LIMIT:-150} seconds" >&2 ;; esac
    exit "$status"
fi

# --- inside: the stage -----------------------------------------------------------------------------------------------

for place in /run /dev/shm /var/lib/containers; do mount -t tmpfs tmpfs "$place"; done # podman's state, locks and cache
if mountpoint -q /sys/fs/cgroup/unified; then
    echo "pod: hybrid control groups: crun gets a view without the unified hierarchy, in this mount namespace only"
    umount /sys/fs/cgroup/unified
fi
# A container may not have higher limits than whoever starts it, and podman's defaults are higher than some machines'.
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
END
export CONTAINERS_CONF=$work/containers.conf TMPDIR=$work
PODMAN="podman --root $work/storage --runroot $work/run --storage-driver vfs"
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "failed: $*"; }; }
# shellcheck disable=SC2086 # a command with its options
podman() { command $PODMAN "$@"; }

ENGINE=$PODMAN ROOTFS=$work/iptables PROGRAMS=$PROGRAMS "$HERE/../../image/build" local
# shellcheck disable=SC2034 # for who sources this
version=$("$PROGRAMS/istio-iptables" --version | cut -d ' ' -f 2)

