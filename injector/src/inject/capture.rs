//! What the init container of an injected pod will reject or warn about, with the annotation or variable that
//! set it.

use std::cell::LazyCell;

use istio_iptables::cli::{Key, Origin};
use istio_iptables::config::{ConfigError, GivenOption, Warning};
use serde_json::{Map, Value};

use super::causes::bare;
use super::{InjectError, Injector, Plan, Request};
use crate::annotations::{keys, shown};
use crate::config::Mesh;
use crate::pod::init_options::InitOptions;
use crate::pod::list::annotation;

/// Maximum number of reported problems.
const MAX_REPORTED: usize = 10;

impl Injector {
    /// Warnings about the init container.
    /// Errors: what it would refuse: a pod that is let in with it never starts.
    pub(super) fn check_capture(
        &self,
        init: &InitOptions,
        request: Request<'_>,
    ) -> Result<Vec<String>, InjectError> {
        // Read again for the few pods that get a warning or an error.
        let own_mesh = LazyCell::new(|| self.own_mesh(&request, &mut Vec::new()));
        let name = |origin: &Origin| match &*own_mesh {
            Ok(own_mesh) => self.name(init, request, own_mesh, origin),
            Err(_) => self.name(init, request, &self.settings.mesh, origin),
        };
        if init.is_refused() {
            let mut problems: Vec<String> = init
                .unreadable
                .iter()
                .map(|error| format!("container {}: {error}", init.container))
                .collect();
            let by_config = self.refuses_any(init, request);
            problems.extend(init.refused.iter().map(|error| {
                let path = Some(error).filter(|_| by_config).and_then(|error| self.value_of(error));
                let path = path.map(|path| format!(" ({path} of {})", self.settings.values_from.of(&path)));
                format!("{}{}", error.calling(&name), path.unwrap_or_default())
            }));
            let more = problems.len().saturating_sub(MAX_REPORTED);
            problems.truncate(MAX_REPORTED);
            if more > 0 {
                problems.push(format!("{more} more values are not accepted"));
            }
            return Err(InjectError::Capture { problems, by_config });
        }
        let mut warnings: Vec<String> = init
            .foreign
            .iter()
            .map(|problem| format!("container {}: {problem}; the init image must support it", init.container))
            .collect();
        warnings.extend(
            init.elsewhere
                .iter()
                .map(|item| format!("{}: {}: {}", name(&item.origin), shown(&item.given), item.unknown)),
        );
        warnings.extend(init.off().map(|(given, instead)| {
            let (origin, text) = (name(&given.origin), shown(&given.text));
            format!("{origin}: {text} disables capture: the init container {instead}")
        }));
        // The flags of templates are there whether they have an effect or not.
        let resolved = init.resolved.iter().filter(|_| init.foreign.is_empty());
        let warned = resolved.flat_map(|resolved| &resolved.warnings);
        for warning in warned {
            let words = warning.calling(&name);
            if matches!(warning, Warning::WideExclusion { .. }) {
                warnings.extend(self.wide_exclusion(words, init, request));
            } else if matches!(warning.origin(), Origin::Variable(_)) {
                warnings.push(words);
            }
        }
        Ok(warnings)
    }

    /// The warning with the path of the values that has the excluded ranges. What the pod's own annotation
    /// excludes is warned of before.
    fn wide_exclusion(&self, words: String, init: &InitOptions, request: Request<'_>) -> Option<String> {
        if annotation(request.pod, keys::EXCLUDE_OUTBOUND_IP_RANGES).is_some() {
            return None;
        }
        let of_ranges = |given: &&GivenOption| given.key == Key::ServiceExcludeCidr;
        let given = init.resolved.as_ref().and_then(|resolved| resolved.given.iter().find(of_ranges));
        let path = given.and_then(|given| self.path_of(given.text.trim()));
        let of = path.map(|path| format!(" ({path} of {})", self.settings.values_from.of(&path)));
        Some(words + &of.unwrap_or_default())
    }

    /// The one path of the values that has a refused text, as a whole or as an item of a list.
    fn value_of(&self, error: &ConfigError) -> Option<String> {
        let (ConfigError::Value { given, .. } | ConfigError::EmptyList { given, .. }) = error else {
            return None;
        };
        self.path_of(given)
    }

    fn path_of(&self, given: &str) -> Option<String> {
        let mut found = Vec::new();
        paths_of(&self.settings.values, given.trim(), "", &mut found);
        match found.as_mut_slice() {
            [one] => Some(std::mem::take(one)),
            _ => None,
        }
    }

    /// Whether a pod without annotations gets the same errors.
    fn refuses_any(&self, init: &InitOptions, request: Request<'_>) -> bool {
        let bare = bare(request.pod);
        let native = super::wants_native_sidecar(&bare, request.context.native_sidecars);
        let bare = self.assemble(Plan::new(Request { pod: &bare, ..request }, native));
        let Some(other) = bare.ok().and_then(|bare| InitOptions::of(&bare.injected.pod)) else {
            return false;
        };
        init.refused.iter().all(|error| other.refused.contains(error))
            && init.unreadable.iter().all(|error| other.unreadable.contains(error))
    }

    /// The annotation or variable that sets an option.
    fn name(&self, init: &InitOptions, request: Request<'_>, own_mesh: &Mesh, origin: &Origin) -> String {
        if let Origin::Variable(variable) = origin {
            let metadata = |mesh: &Mesh| mesh.proxy().get("proxyMetadata")?.get(variable).cloned();
            let (own, all) = (metadata(own_mesh), metadata(&self.settings.mesh));
            let resource = |layer: &Map<String, Value>| {
                layer.get("proxyMetadata").and_then(|all| all.get(variable)) == own.as_ref()
            };
            if own.is_some() && self.layers(&request).into_iter().flatten().any(resource) {
                return format!("a ProxyConfig resource: environmentVariables.{variable}");
            }
            if own.is_some() && own != all {
                return format!("annotation proxy.istio.io/config: proxyMetadata.{variable}");
            }
            if own.is_some() {
                return format!("mesh config: defaultConfig.proxyMetadata.{variable}");
            }
        }
        format!("container {}: {origin}", init.container)
    }
}

/// The paths of the scalars whose text this is, or has this item.
fn paths_of(value: &Value, wanted: &str, path: &str, found: &mut Vec<String>) {
    let is_wanted =
        |text: &str| !wanted.is_empty() && text.split(',').chain([text]).any(|item| item.trim() == wanted);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                paths_of(value, wanted, &path, found);
            }
        }
        Value::String(text) if is_wanted(text) => found.push(path.to_owned()),
        Value::Number(number) if is_wanted(&number.to_string()) => found.push(path.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}
