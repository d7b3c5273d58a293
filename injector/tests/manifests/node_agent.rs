//! The node agent's objects: what it takes, what it may do, where it runs.

use std::collections::{BTreeMap, BTreeSet};

use istio_cni::environment::PodName;
use istio_cni::install::options::{Command, Install, InstallMode, PodsOptions, RepairAction, install};
use istio_cni::install::platform::{PLATFORMS, Platform};
use istio_cni::netconf::NetConf;
use istio_iptables::config::GuardAction;
use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};
use sidecar_injector::manifests::node_agent::{
    NAME, NodeAgent, POD_LABEL, SETTINGS, Settings, objects, uninstall,
};
use sidecar_injector::yaml;

use super::only;

pub(crate) fn of(platform: &str, namespace: &str) -> NodeAgent {
    NodeAgent {
        namespace: namespace.parse().unwrap(),
        image: concat!("localhost/istio-cni:", env!("CARGO_PKG_VERSION")).parse().unwrap(),
        platform: Platform::by_name(platform).unwrap(),
        settings: Settings::default(),
    }
}

pub(crate) fn all() -> Vec<NodeAgent> {
    let names = PLATFORMS.iter().map(|platform| platform.name);
    names.flat_map(|name| ["istio-system", "kube-system"].map(|namespace| of(name, namespace))).collect()
}

/// The node of the agent that the tests look at.
const NODE: &str = "node-1.example.com";

fn pod(objects: &[Value]) -> &Value {
    &only(objects, "DaemonSet")["spec"]["template"]
}

/// The only object of its kind whose name ends like this.
fn only_named<'a>(objects: &'a [Value], kind: &str, end: &str) -> &'a Value {
    let named = |object: &&Value| {
        object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(end)
    };
    let found: Vec<&Value> = objects.iter().filter(named).collect();
    assert_eq!(found.len(), 1, "{kind} {end}");
    found[0]
}

fn container(objects: &[Value]) -> &Value {
    let containers = pod(objects)["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// The arguments as kubelet expands them.
fn arguments(options: &NodeAgent, objects: &[Value]) -> Vec<String> {
    let mut variables: BTreeMap<String, String> =
        serde_json::from_value(only(objects, "ConfigMap")["data"].clone()).unwrap();
    assert_eq!(
        container(objects)["envFrom"][0]["configMapRef"]["name"],
        only(objects, "ConfigMap")["metadata"]["name"]
    );
    for (name, field, value) in [
        ("NODE_NAME", "spec.nodeName", NODE),
        ("POD_NAMESPACE", "metadata.namespace", options.namespace.as_str()),
    ] {
        let env = container(objects)["env"].as_array().unwrap().iter();
        let variable = env.clone().find(|variable| variable["name"] == name).unwrap();
        assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], field);
        variables.insert(name.to_owned(), value.to_owned());
    }
    let expand = |text: &str| {
        variables
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
    };
    let all = container(objects)["args"].as_array().unwrap().iter();
    let all: Vec<String> = all.map(|argument| expand(argument.as_str().unwrap())).collect();
    assert!(all.iter().all(|argument| !argument.contains("$(")), "{all:?}");
    all
}

fn installs(options: &NodeAgent, objects: &[Value]) -> Install {
    let all = arguments(options, objects);
    assert_eq!(all[0], "install");
    match install(&all[1..]).unwrap().0 {
        Command::Install(install) => *install,
        other @ (Command::Status(_) | Command::Audit(_) | Command::Uninstall(_) | Command::Print(_)) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn agent_takes_its_arguments_and_writes_where_the_node_is_mounted() {
    for options in all() {
        let objects = objects(&options).unwrap();
        let install = installs(&options, &objects);
        let platform = options.platform;
        assert_eq!(install.dirs.bin.to_str(), Some(platform.bin_dir));
        assert_eq!(install.dirs.net.to_str(), Some(platform.net_dir));
        assert_eq!(install.mode, if platform.chained { InstallMode::List } else { InstallMode::Standalone });
        assert!(install.dry_add && !install.once && !install.uninstall && !install.replace_istio);
        assert_eq!(
            install.pods,
            Some(PodsOptions { node: NODE.to_owned(), kubeconfig: None, remove_taint: false, events: true })
        );
        let mounts = container(&objects)["volumeMounts"].as_array().unwrap();
        let mounted = |mount: &Value| {
            let volumes = pod(&objects)["spec"]["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            // The plugin reads the run directory by its path on the node, so it has the same one in the
            // agent.
            assert_eq!(volume["hostPath"]["path"], mount["mountPath"]);
            mount["mountPath"].as_str().unwrap().to_owned()
        };
        let mounted: BTreeSet<String> = mounts.iter().map(mounted).collect();
        // Namespaces of pods that start later are mounted there later.
        let netns = mounts.iter().find(|mount| mount["name"] == "netns").unwrap();
        assert_eq!(netns["mountPropagation"], "HostToContainer");
        let netns = install.guard.expect("rules are guarded").netns_dir;
        // The runtime's own files are not written.
        let writable = |mount: &&Value| mount.get("readOnly").is_none();
        assert_eq!(mounts.iter().filter(writable).count() + 1, mounts.len());
        let results = mounts.iter().find(|mount| mount["name"] == "results").unwrap();
        assert_eq!(results["readOnly"], true);
        let results = install.repair.expect("pods without capture are repaired").results_dir;
        let dirs = [&install.dirs.bin, &install.dirs.net, &install.dirs.run, &netns, &results];
        assert_eq!(
            mounted,
            dirs.map(|dir| dir.to_str().unwrap().to_owned()).into(),
            "and nothing else of the node"
        );
    }
}

#[test]
fn every_setting_reaches_the_entry_and_the_plugin_reads_it() {
    let options = of("default", "mesh");
    let mut objects = objects(&options).unwrap();
    let map = objects.iter_mut().find(|object| object["kind"] == "ConfigMap").unwrap();
    let changed = json!({"BACKEND": "nftables", "CAPTURE": "{\"dns\": true}", "DEADLINE_MS": "7000",
        "CNI_CONF_NAME": "20-b.conflist", "EXCLUDE_NAMESPACES": "a,b", "GUARD": "report", "LOG_LEVEL": "debug", "DROP_IN": "yes", "ON_UNKNOWN": "pass", "REPLACE_ISTIO": "true",
        "REMOVE_TAINT": "true", "POD_EVENTS": "false", "RESET_ESCAPED": "true", "REPAIR": "label", "REPAIR_BROKEN_POD_LABEL_KEY": "a/b",
        "REPAIR_BROKEN_POD_LABEL_VALUE": "c"});
    assert_eq!(map["data"].as_object().unwrap().len(), changed.as_object().unwrap().len());
    map["data"] = changed;
    let install = installs(&options, &objects);
    let pods = install.pods.unwrap();
    assert!(install.replace_istio && pods.remove_taint && !pods.events);
    assert_eq!(install.mode, InstallMode::DropIn);
    let guard = install.guard.unwrap();
    assert!(guard.action == GuardAction::Report && guard.reset_escaped);
    let repair = install.repair.unwrap();
    assert_eq!((repair.action, repair.label), (RepairAction::Label, ("a/b".to_owned(), "c".to_owned())));
    assert_eq!(install.dirs.conf_name.as_deref(), Some("20-b.conflist"));
    let entry = install.entry;
    for (key, value) in [
        ("backend", json!("nftables")),
        ("capture", json!({"dns": true})),
        ("deadline_ms", json!(7000)),
        ("exclude_namespaces", json!(["a", "b"])),
        ("plugin_log_level", json!("debug")),
        ("on_unknown", json!("pass")),
        ("pod_namespace", json!("mesh")),
    ] {
        assert_eq!(entry[key], value, "{key}");
    }
    for options in all() {
        let entry = installs(&options, &super::node_agent::objects(&options).unwrap()).entry.to_string();
        NetConf::parse(entry.as_bytes()).unwrap().settings().unwrap();
    }
}

#[test]
fn plugin_never_captures_the_agent_and_the_system() {
    for options in all() {
        let entry = installs(&options, &objects(&options).unwrap()).entry.to_string();
        let excluded = |namespace: &str, name: &str| {
            let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
            NetConf::parse(entry.as_bytes()).unwrap().excludes(&pod).unwrap()
        };
        assert_eq!(
            excluded(options.namespace.as_str(), &format!("{NAME}-abcde")),
            Some("pod of the node agent")
        );
        assert_eq!(excluded("kube-system", "coredns"), Some("excluded namespace"));
        assert_eq!(
            excluded(options.namespace.as_str(), "istio-sidecar-injector-abcde"),
            Some("excluded namespace")
        );
        assert_eq!(excluded("shop", "web"), None);
    }
}

/// What an action needs, and nothing for the others.
#[test]
fn permissions_to_write_pods_are_those_of_the_action() {
    for (action, verbs) in [
        ("repair", None),
        ("event", None),
        ("off", None),
        ("label", Some("patch")),
        ("delete", Some("delete")),
    ] {
        let mut options = of("default", "mesh");
        let given = if action == "event" {
            json!({"REPAIR": action})
        } else {
            json!({"REPAIR": action, "POD_EVENTS": "false"})
        };
        options.settings = Settings::new(&given, &options.platform).unwrap();
        let objects = objects(&options).unwrap();
        let rules = only_named(&objects, "ClusterRole", "-api")["rules"].as_array().unwrap().clone();
        let pods = |rule: &&Value| rule["resources"] == json!(["pods"]);
        let more: Vec<_> = rules.iter().filter(pods).skip(1).map(|rule| rule["verbs"].clone()).collect();
        assert_eq!(more, verbs.map(|verb| json!([verb])).into_iter().collect::<Vec<_>>(), "{action}");
        assert_eq!(rules.iter().any(|rule| rule["resources"] == json!(["events"])), action == "event");
        let mounts = container(&objects)["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.iter().any(|mount| mount["name"] == "results"), action != "off");
    }
    // Without the guard, repair still has events.
    let mut options = of("default", "mesh");
    options.settings = Settings::new(&json!({"GUARD": "off"}), &options.platform).unwrap();
    let events = |options: &NodeAgent| {
        let rules = only_named(&objects(options).unwrap(), "ClusterRole", "-api")["rules"].clone();
        rules.as_array().unwrap().iter().any(|rule| rule["resources"] == json!(["events"]))
    };
    assert!(events(&options));
    options.settings = Settings::new(&json!({"GUARD": "off", "REPAIR": "off"}), &options.platform).unwrap();
    assert!(!events(&options));
}

/// What the agent does today needs this; each further capability is a reason to change this test.
#[test]
fn agent_has_the_least_privileges() {
    for options in all() {
        let objects = objects(&options).unwrap();
        let spec = &pod(&objects)["spec"];
        for key in
            ["hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace", "initContainers"]
        {
            assert_eq!(spec.get(key), None);
        }
        assert_eq!(spec["securityContext"], json!({"seccompProfile": {"type": "RuntimeDefault"}}));
        let context = &container(&objects)["securityContext"];
        assert_eq!(
            context["capabilities"],
            json!({"add": ["NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"], "drop": ["ALL"]})
        );
        assert_eq!(
            (&context["privileged"], &context["allowPrivilegeEscalation"]),
            (&json!(false), &json!(false))
        );
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert!(
            container(&objects)["ports"]
                .as_array()
                .unwrap()
                .iter()
                .all(|port| port.get("hostPort").is_none())
        );
        // Its own pods have the token, and no other pod of the account.
        assert_eq!(only(&objects, "ServiceAccount")["automountServiceAccountToken"], false);
        assert_eq!(spec["automountServiceAccountToken"], true);
        let openshift = options.platform.name == "openshift";
        let (role, binding) =
            (only_named(&objects, "ClusterRole", "-api"), only(&objects, "ClusterRoleBinding"));
        let pods = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
        ]);
        assert_eq!(role["rules"], pods);
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let account =
            json!([{"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace.as_str()}]);
        assert_eq!(binding["subjects"], account);
        let roles = objects.iter().filter(|object| object["kind"].as_str().unwrap().contains("Role"));
        assert_eq!(roles.count(), if openshift { 4 } else { 2 });
        if openshift {
            let constraints = only(&objects, "SecurityContextConstraints");
            assert_eq!(constraints["allowedCapabilities"], context["capabilities"]["add"]);
            assert_eq!(constraints["allowPrivilegedContainer"], false);
            // The hostPath volumes, and that of the token.
            assert_eq!(constraints["volumes"], json!(["hostPath", "projected"]));
            let role = only_named(&objects, "ClusterRole", constraints["metadata"]["name"].as_str().unwrap());
            let rule = &role["rules"];
            assert_eq!(rule.as_array().unwrap().len(), 1);
            assert_eq!(rule[0]["verbs"], json!(["use"]));
            assert_eq!(rule[0]["resourceNames"], json!([constraints["metadata"]["name"]]));
            let binding = only(&objects, "RoleBinding");
            assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
            assert_eq!(binding["subjects"][0]["name"], spec["serviceAccountName"]);
        }
    }
}

#[test]
fn agent_runs_on_every_node_and_is_ready_when_it_has_installed() {
    for options in all() {
        let objects = objects(&options).unwrap();
        let set = only(&objects, "DaemonSet");
        let spec = &pod(&objects)["spec"];
        assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(spec["priorityClassName"], "system-node-critical");
        assert_eq!(spec["serviceAccountName"], only(&objects, "ServiceAccount")["metadata"]["name"]);
        let labels = pod(&objects)["metadata"]["labels"].as_object().unwrap();
        let selected = set["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)));
        assert!(!selected.contains_key(POD_LABEL.0), "pods of Istio's agent are not adopted");
        assert_eq!(labels[POD_LABEL.0], POD_LABEL.1);
        assert_eq!(labels["sidecar.istio.io/inject"], "false");
        let container = container(&objects);
        let port = installs(&options, &objects).listen.unwrap().port();
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            assert_eq!(container[probe]["httpGet"]["path"], path);
            assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"]);
        }
        assert_eq!(container["ports"][0]["containerPort"], port);
        let quotas = objects.iter().filter(|object| object["kind"] == "ResourceQuota");
        assert_eq!(quotas.count(), usize::from(options.namespace.as_str() != "kube-system"));
        assert_eq!(objects.last(), Some(set), "what it needs comes first");
    }
}

#[test]
fn change_of_a_setting_restarts_the_agents() {
    let objects = objects(&of("default", "mesh")).unwrap();
    let sum = |data: &Value| {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(data.to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let annotation = &pod(&objects)["metadata"]["annotations"]["checksum/config"];
    assert_eq!(annotation, &sum(&only(&objects, "ConfigMap")["data"]));
}

#[test]
fn names_are_those_of_no_other_installation() {
    const ISTIO: [&str; 6] = [
        "istio-cni-node",
        "istio-cni",
        "istio-cni-config",
        "istio-cni-resource-quota",
        "istio-cni-repair-role",
        "istio-cni-ambient",
    ];
    for options in all() {
        for object in objects(&options).unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with(NAME) && !ISTIO.contains(&name), "{name}");
        }
    }
}

#[test]
fn uninstalling_begins_with_the_agents() {
    for options in all() {
        let (installed, deleted) = (objects(&options).unwrap(), uninstall(&options).unwrap());
        assert_eq!(deleted[0]["kind"], "DaemonSet");
        assert_eq!(deleted.len(), installed.len());
        for (one, other) in deleted.iter().zip(installed.iter().rev()) {
            assert_eq!(
                (&one["kind"], &one["metadata"]["name"]),
                (&other["kind"], &other["metadata"]["name"])
            );
            assert_eq!(one["metadata"].get("namespace"), other["metadata"].get("namespace"));
        }
    }
}

fn run(arguments: &[&str]) -> Result<Output, Failure> {
    let all = ["sidecar-injector", "manifests", "--cni"].iter().chain(arguments);
    cli::run(all.map(Into::into), &Environment::default())
}

fn printed(arguments: &[&str]) -> Vec<Value> {
    let text = run(arguments).unwrap().text;
    yaml::read_documents(text.as_bytes()).unwrap().into_iter().map(|document| document.value).collect()
}

#[test]
fn command_prints_the_agent_alone() {
    assert_eq!(printed(&[]), objects(&of("default", "istio-system")).unwrap());
    let names = PLATFORMS.iter().flat_map(Platform::names);
    for platform in names.chain(["", "Kubernetes", "GKE", "OpenShift"]) {
        let flags = ["--namespace=kube-system", &format!("--platform={platform}"), "--image=example.com/a:1"];
        let options = NodeAgent { image: "example.com/a:1".parse().unwrap(), ..of(platform, "kube-system") };
        assert_eq!(printed(&flags), objects(&options).unwrap());
    }
    assert_eq!(printed(&["--create-namespace"])[0]["kind"], "Namespace");
    let notes = |arguments: &[&str]| run(arguments).unwrap().notes;
    assert!(notes(&[])[0].contains("the node agent's image localhost/istio-cni:"), "{:?}", notes(&[]));
    assert_eq!(notes(&["--image=example.com/a:1"]), [""; 0]);
    assert!(notes(&["--image=a:1", "--platform=openshift"])[0].contains("NetworkAttachmentDefinition"));
}

#[test]
fn settings_are_those_of_the_config_map_and_rights_follow() {
    let rules = |flags: &[&str]| {
        let objects = printed(flags);
        only_named(&objects, "ClusterRole", "-api")["rules"].as_array().unwrap()[1..].to_vec()
    };
    for flags in [
        &["--set=POD_EVENTS=false"][..],
        &["--set=GUARD=off,REPAIR=off"],
        &["--set=GUARD=off,REPAIR=off,POD_EVENTS=true"],
    ] {
        assert_eq!(rules(flags), [] as [Value; 0], "{flags:?}");
    }
    let of_events = [
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
        json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}),
    ];
    assert_eq!(rules(&[]), of_events);
    assert_eq!(rules(&["--set=GUARD=report"]), of_events);
    let nodes = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}]);
    assert_eq!(json!(rules(&["--set=DROP_IN=auto,GUARD=off,REPAIR=off"])), nodes(&["get"]));
    assert_eq!(rules(&["--set=DROP_IN=yes,GUARD=off,REPAIR=off"]), [] as [Value; 0]);
    assert_eq!(
        json!(rules(&["--set=REMOVE_TAINT=true,DROP_IN=auto,POD_EVENTS=false"])),
        nodes(&["get", "patch"])
    );
    let objects = printed(&[
        "--set=CAPTURE.dns=true",
        "--set=EXCLUDE_NAMESPACES=a\\,b",
        "--set=DEADLINE_MS=7000",
        "--set=BACKEND=nftables",
    ]);
    let data = &only(&objects, "ConfigMap")["data"];
    assert_eq!(data.as_object().unwrap().len(), SETTINGS.len());
    for (key, value) in [
        ("CAPTURE", "{\"dns\":true}"),
        ("EXCLUDE_NAMESPACES", "a,b"),
        ("DEADLINE_MS", "7000"),
        ("BACKEND", "nftables"),
        ("LOG_LEVEL", "info"),
    ] {
        assert_eq!(data[key], value, "{key}");
    }
    let objects = printed(&["--set=EXCLUDE_NAMESPACES={a,b}"]);
    assert_eq!(only(&objects, "ConfigMap")["data"]["EXCLUDE_NAMESPACES"], "a,b");
    for (set, parts) in [
        ("backend=nftables", ["backend", "BACKEND, CAPTURE"]),
        ("BACKEND=nftable", ["--set: BACKEND: \"nftable\"", "iptables-nft"]),
        ("DEADLINE_MS=0", ["--set: DEADLINE_MS: 0", "240000"]),
        ("CNI_CONF_NAME=cluster", ["--set: CNI_CONF_NAME: \"cluster\"", "NAME.conflist"]),
        ("REMOVE_TAINT=yes", ["--set: REMOVE_TAINT: \"yes\"", "true, false"]),
        ("CAPTURE.dsn=true", ["--set: CAPTURE: ", "dns"]),
    ] {
        let failure = run(&["--set", set]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{set}");
        assert!(parts.iter().all(|part| failure.to_string().contains(part)), "{set}: {failure}");
    }
    // A drop-in file needs a list.
    let failure = run(&["--platform=openshift", "--set=DROP_IN=yes"]).unwrap_err().to_string();
    assert!(failure.contains("--set: DROP_IN: yes is not accepted with --platform=openshift"), "{failure}");
}

#[test]
fn options_of_the_injector_are_refused() {
    for argument in [
        "--revision=canary",
        "--replace-istiod",
        "--replicas=3",
        "--failure-policy=ignore",
        "--enable-namespaces-by-default",
        "--cert-manager",
        "--validating-policy",
        "--inject-config=x",
        "--values=x",
        "--mesh-config=x",
        "--init-image=x",
    ] {
        let failure = run(&[argument]).unwrap_err();
        let flag = argument.split('=').next().unwrap();
        assert_eq!(failure.exit, Exit::Usage, "{argument}");
        assert!(failure.to_string().contains("--cni") && failure.to_string().contains(flag), "{failure}");
    }
    let failure = run(&["--platform=aks"]).unwrap_err().to_string();
    for part in ["aks", &Platform::accepted()] {
        assert!(failure.contains(part), "{failure}");
    }
}
