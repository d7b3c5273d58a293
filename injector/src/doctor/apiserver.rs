//! Findings about the API server, if it runs as a pod.

use serde_json::Value;

use super::cluster::{command_line, list, text, title};
use super::hooks::Installation;
use super::{Context, Diagnosis, Finding, Problem};

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

pub(super) fn examine(context: &mut Context<'_>, installation: &Installation<'_>) {
    let servers = context.cluster.within("Pod", "kube-system");
    let servers = servers.filter(|pod| text(pod, "/metadata/labels/component") == "kube-apiserver");
    for server in servers {
        for container in list(server, "/spec/containers") {
            plugins(server, container, &mut context.diagnosis);
            if let Some(called) = installation.service {
                proxy(server, container, &called.host(), &mut context.diagnosis);
            }
        }
    }
}

fn plugins(server: &Value, container: &Value, diagnosis: &mut Diagnosis) {
    const PLUGIN: &str = "MutatingAdmissionWebhook";
    let off = command_line(container).filter_map(|word| word.strip_prefix("--disable-admission-plugins="));
    if off.flat_map(|names| names.split(',')).any(|name| name == PLUGIN) {
        diagnosis.found(Finding {
            problem: Problem::AdmissionDisabled,
            object: title(server),
            seen: format!("--disable-admission-plugins has {PLUGIN}"),
            cause: "the API server calls no mutating webhook".to_owned(),
            fix: format!(
                "on each control plane node, remove {PLUGIN} from --disable-admission-plugins in {MANIFEST}"
            ),
        });
    }
}

/// Go compares no_proxy with the name of the host: ranges of addresses do not match it.
fn proxy(server: &Value, container: &Value, host: &str, diagnosis: &mut Diagnosis) {
    let value = |wanted: &str| {
        let found =
            list(container, "/env").iter().find(|entry| text(entry, "/name").eq_ignore_ascii_case(wanted));
        found.map_or("", |entry| text(entry, "/value"))
    };
    let proxy = value("https_proxy");
    let exempt = value("no_proxy");
    if proxy.is_empty() || exempt.split(',').any(|entry| exempts(entry.trim(), host)) {
        return;
    }
    diagnosis.found(Finding {
        problem: Problem::ApiServerProxy,
        object: title(server),
        seen: format!("https_proxy is {proxy:?}, and no_proxy {exempt:?} does not cover {host}"),
        cause: "calls to the webhook may go to the proxy, which cannot reach it (Service Unavailable)".to_owned(),
        fix: format!("on each control plane node, add .svc to no_proxy in {MANIFEST} (with the ranges of pods and services)"),
    });
}

fn exempts(entry: &str, host: &str) -> bool {
    let domain = entry.trim_start_matches('.');
    entry == "*" || (!domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}"))))
}
