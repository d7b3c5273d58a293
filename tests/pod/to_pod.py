"""The pod of an injected Deployment, as `podman kube play` reads it: to_pod.py <injected.yaml >pod.yaml

Security contexts, arguments, environment and order stay as injected. What podman has no counterpart for is removed:
probes and hooks (they ask the real proxy), and volumes that a cluster fills.

Two init containers are added behind istio-init: `again`, the same with the least privileges that do; and
`istio-validation`, as the pod has it where a node agent makes the rules.
"""

import copy
import sys

import yaml

CLUSTER_VOLUMES = {"downwardAPI", "projected", "configMap", "secret"}


def confined(container, name, **security):
    again = copy.deepcopy(container)
    again["name"] = name
    again["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **security,
    }
    return again


def least_privileges(istio_init):
    legacy = any("legacy" in str(variable.get("value")) for variable in istio_init["env"])
    capabilities = ["NET_ADMIN", "NET_RAW"] if legacy else ["NET_ADMIN"]
    return confined(
        istio_init, "again", runAsUser=0, runAsGroup=0, capabilities={"drop": ["ALL"], "add": capabilities}
    )


def validation(istio_init):
    container = confined(
        istio_init,
        "istio-validation",
        runAsUser=1337,
        runAsGroup=1337,
        runAsNonRoot=True,
        capabilities={"drop": ["ALL"]},
    )
    container["args"] += ["--run-validation", "--skip-rule-apply", "--probe-timeout", "60s"]
    return container


def main():
    deployment = next(d for d in yaml.safe_load_all(sys.stdin) if d and d["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    foreign = {volume["name"] for volume in spec["volumes"] if CLUSTER_VOLUMES & volume.keys()}
    # A volume that is only named is an emptyDir: the API server defaults it, podman does not.
    volumes = [volume for volume in spec["volumes"] if volume["name"] not in foreign]
    spec["volumes"] = [volume if len(volume) > 1 else {**volume, "emptyDir": {}} for volume in volumes]
    [istio_init] = spec["initContainers"]
    spec["initContainers"] += [least_privileges(istio_init), validation(istio_init)]
    for container in spec["initContainers"] + spec["containers"]:
        for key in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
            container.pop(key, None)
        container["imagePullPolicy"] = "Never"
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] not in foreign]
        # The cluster's and the node's own facts.
        container["env"] = [v for v in container.get("env", []) if "valueFrom" not in v]
    metadata = template["metadata"]
    metadata["name"] = deployment["metadata"]["name"]
    # Keeps them after they have ended, for their logs.
    metadata["annotations"] = {"io.podman.annotations.init.container.type": "always"}
    yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, sys.stdout)


main()
