//! Whether a pod is captured, and with which options: one pure function.

use std::fmt;

use istio_iptables::config::{CAPTURE_ANNOTATION, parse_bool};

use crate::capture::{self, CaptureOptions, INTERCEPTION_MODE, OPTION_VARIABLES};
use crate::netconf::Defaults;
use crate::pod::{DISABLE_ENVOY, INIT, PROXY, Pod, STATUS, Status, VALIDATION};

/// Whether the pod is injected: a label, or an annotation.
const INJECT: &str = "sidecar.istio.io/inject";
/// The injection templates of a pod.
const TEMPLATES: &str = "inject.istio.io/templates";
/// The proxy's configuration.
const PROXY_CONFIG: &str = "proxy.istio.io/config";

/// What happens to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod is captured.
    Capture(CaptureOptions),
    /// The pod is not captured.
    NotCaptured(NotCaptured),
    /// The pod must not start.
    Refuse(Refusal),
}

/// Why a pod is not captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCaptured {
    /// The init container of the pod captures its traffic.
    InitContainer,
    /// The proxy runs without Envoy.
    EnvoyDisabled,
    /// The pod has no proxy.
    NoProxy,
    /// The proxy is none that is captured for: a gateway, for instance.
    ProxyType(String),
    /// Injection is disabled.
    InjectionDisabled,
    /// The pod was not injected.
    NotInjected,
    /// `interceptionMode` is NONE.
    ModeNone,
}

impl fmt::Display for NotCaptured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InitContainer => write!(f, "container {INIT} sets up capture"),
            Self::EnvoyDisabled => write!(f, "{DISABLE_ENVOY} is true in container {PROXY}"),
            Self::NoProxy => write!(f, "no container {PROXY}"),
            Self::ProxyType(name) => write!(f, "proxy type {name}, not sidecar"),
            Self::InjectionDisabled => write!(f, "{INJECT} is false"),
            Self::NotInjected => write!(f, "no annotation {STATUS}"),
            Self::ModeNone => write!(f, "{INTERCEPTION_MODE} is NONE"),
        }
    }
}

/// Why a pod must not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An annotation is wrong: which one, and what is accepted.
    BadAnnotation(String),
    /// The source does not say enough: what is missing.
    Unknown(String),
}

/// Decides. The order of the questions is that of Istio's plugin; what a source does not report is taken from
/// the annotation in which injection says what it added.
#[must_use]
pub fn decide(pod: &Pod, defaults: &Defaults) -> Decision {
    let passed = match &pod.containers {
        Some(_) => by_containers(pod),
        None => by_status(pod),
    };
    match passed {
        Err(missing) => return Decision::Refuse(Refusal::Unknown(missing)),
        Ok(Some(reason)) => return Decision::NotCaptured(reason),
        Ok(None) => {}
    }
    let options = match pod.annotations.get(CAPTURE_ANNOTATION) {
        Some(text) => capture::of_own_annotation(text),
        None => match unresolved(pod) {
            Some(missing) => return Decision::Refuse(Refusal::Unknown(missing)),
            None => capture::of_istio_annotations(pod, defaults),
        },
    };
    let resolved = options.and_then(|options| options.resolve(None).map(|_| options));
    match resolved {
        Ok(options) => Decision::Capture(options),
        Err(problem) => Decision::Refuse(Refusal::BadAnnotation(problem)),
    }
}

fn by_containers(pod: &Pod) -> Result<Option<NotCaptured>, String> {
    let Some(containers) = &pod.containers else { return Ok(None) };
    let has = |name: &str| containers.names.iter().any(|one| one == name);
    let proxy = &containers.proxy;
    let kind = match proxy.args.as_slice() {
        [first, kind, ..] if first == "proxy" && !kind.is_empty() => kind,
        _ => "sidecar",
    };
    Ok(if has(INIT) {
        Some(NotCaptured::InitContainer)
    } else if proxy.env.get(DISABLE_ENVOY).and_then(|text| parse_bool(text)) == Some(true) {
        Some(NotCaptured::EnvoyDisabled)
    } else if !has(PROXY) {
        Some(NotCaptured::NoProxy)
    } else if kind != "sidecar" {
        Some(NotCaptured::ProxyType(kind.to_owned()))
    } else if injection_disabled(pod) {
        Some(NotCaptured::InjectionDisabled)
    } else if !pod.annotations.contains_key(STATUS) {
        Some(NotCaptured::NotInjected)
    } else {
        mode_none(pod)
    })
}

/// From annotations alone. Istio's sidecar template adds `istio-validation` to each pod that a CNI plugin is
/// to capture.
fn by_status(pod: &Pod) -> Result<Option<NotCaptured>, String> {
    let Some(text) = pod.annotations.get(STATUS) else {
        return if pod.annotations.contains_key(CAPTURE_ANNOTATION) {
            Err(format!("annotation {CAPTURE_ANNOTATION} without {STATUS}: injection writes both"))
        } else {
            Ok(Some(NotCaptured::NotInjected))
        };
    };
    let status = match Status::parse(text) {
        Some(status) => status,
        None if injection_disabled(pod) => return Ok(Some(NotCaptured::InjectionDisabled)),
        None => return Err(format!("annotation {STATUS} is not the JSON object that injection writes")),
    };
    if status.has(INIT) {
        return Ok(Some(NotCaptured::InitContainer));
    }
    if let Some(pass) = mode_none(pod) {
        return Ok(Some(pass));
    }
    let for_plugin = status.has(VALIDATION) || pod.annotations.contains_key(CAPTURE_ANNOTATION);
    if injection_disabled(pod) {
        // The injector reads the label first: it may have enabled what the annotation disables.
        return if for_plugin {
            Err(format!(
                "annotation {INJECT} is false, but the pod is injected: its label of that name decides"
            ))
        } else {
            Ok(Some(NotCaptured::InjectionDisabled))
        };
    }
    if for_plugin {
        return Ok(None);
    }
    if !status.has(PROXY) {
        return Ok(Some(NotCaptured::NoProxy));
    }
    let templates = pod.annotations.get(TEMPLATES).map(String::as_str).unwrap_or_default();
    let uncaptured = |name: &&str| matches!(*name, "gateway" | "grpc-agent" | "grpc-simple");
    let names: Vec<&str> = templates.split(',').map(str::trim).collect();
    match names.iter().find(|name| uncaptured(name)) {
        Some(name) if !names.contains(&"sidecar") => Ok(Some(NotCaptured::ProxyType((*name).to_owned()))),
        _ => Err(format!(
            "annotation {STATUS} names container {PROXY}, but neither {INIT} nor {VALIDATION}: annotations do not say \
             whether the proxy is a sidecar"
        )),
    }
}

/// The label counts before the annotation. What is not a boolean means nothing.
fn injection_disabled(pod: &Pod) -> bool {
    let label = pod.labels.as_ref().and_then(|labels| labels.get(INJECT));
    let text = label.or_else(|| pod.annotations.get(INJECT));
    text.and_then(|text| parse_bool(text)) == Some(false)
}

/// In Istio's plugin this is an error; no rule is what it means.
fn mode_none(pod: &Pod) -> Option<NotCaptured> {
    (pod.annotations.get(INTERCEPTION_MODE).map(String::as_str) == Some("NONE"))
        .then_some(NotCaptured::ModeNone)
}

/// What changes capture and has its value elsewhere: without the proxy's environment, proxy configuration in
/// an annotation; of the proxy's variables, those of `valueFrom`.
fn unresolved(pod: &Pod) -> Option<String> {
    const BY: &str = "only the annotation";
    if let Some(containers) = &pod.containers {
        let proxy = &containers.proxy;
        if proxy.has_env_from {
            log::warn!(
                "container {PROXY} has envFrom: variables in it that change capture have no effect without the annotation {CAPTURE_ANNOTATION}"
            );
        }
        let name = proxy.unresolved.first()?;
        return Some(format!(
            "container {PROXY} sets {name} with valueFrom, which {BY} {CAPTURE_ANNOTATION} resolves"
        ));
    }
    let text = pod.annotations.get(PROXY_CONFIG)?;
    let name = OPTION_VARIABLES.into_iter().map(|(_, name)| name).find(|name| text.contains(name))?;
    Some(format!("annotation {PROXY_CONFIG} sets {name}, which {BY} {CAPTURE_ANNOTATION} resolves"))
}

#[cfg(test)]
mod tests;
