//! What the init container of an injected pod will say about its settings, in terms of those who made them.

use std::cell::LazyCell;

use istio_iptables::cli::Origin;
use serde_json::{Value, json};

use super::{InjectError, Injector, Request, native};
use crate::annotations;
use crate::config::Mesh;
use crate::pod::init::Reading;
use crate::pod::list::annotation;

const TEMPLATES: &str = "inject.istio.io/templates";

/// How many problems are told.
const TOLD: usize = 10;

impl Injector {
    /// What is odd about the init container.
    ///
    /// # Errors
    ///
    /// What it would refuse: a pod that is let in with it never starts.
    pub(super) fn judge_capture(
        &self,
        init: &Reading,
        request: Request<'_>,
    ) -> Result<Vec<String>, InjectError> {
        // Read again for the few pods of which something has to be said.
        let own_mesh = LazyCell::new(|| self.own_mesh(request.pod, &mut Vec::new()));
        let name = |origin: &Origin| match &*own_mesh {
            Ok(own_mesh) => self.name(init, own_mesh, origin),
            Err(_) => self.name(init, &self.settings.mesh, origin),
        };
        if init.is_refused() {
            let mut problems: Vec<String> = init
                .unreadable
                .iter()
                .map(|error| format!("container {}: {error}", init.container))
                .collect();
            problems.extend(init.refused.iter().map(|error| error.calling(&name)));
            let more = problems.len().saturating_sub(TOLD);
            problems.truncate(TOLD);
            if more > 0 {
                problems.push(format!("{more} more values are not accepted either"));
            }
            return Err(InjectError::Capture { problems, by_config: self.refuses_any(init, request) });
        }
        let mut warnings: Vec<String> = init
            .foreign
            .iter()
            .map(|problem| {
                format!("container {}: {problem}; the init image has to be one that knows it", init.container)
            })
            .collect();
        warnings.extend(init.elsewhere.iter().map(|item| {
            format!("{}: {}: {}", name(&item.origin), annotations::shown(&item.given), item.unknown)
        }));
        warnings.extend(init.off().map(|(given, instead)| {
            let (origin, text) = (name(&given.origin), annotations::shown(&given.text));
            format!("{origin}: {text} switches capture off: the init container {instead}")
        }));
        // The flags of templates are there whether they have an effect or not.
        let resolved = init.resolved.iter().filter(|_| init.foreign.is_empty());
        let odd = resolved.flat_map(|resolved| &resolved.warnings);
        let odd = odd.filter(|warning| matches!(warning.origin(), Origin::Variable(_)));
        warnings.extend(odd.map(|warning| warning.calling(&name)));
        Ok(warnings)
    }

    /// Whether a pod that asks for nothing gets all of the same refused.
    fn refuses_any(&self, init: &Reading, request: Request<'_>) -> bool {
        let mut bare = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        if let Some(names) = annotation(request.pod, TEMPLATES)
            && let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("annotations".to_owned(), json!({ TEMPLATES: names }));
        }
        let native = native::wanted(&bare, request.place.native_sidecars);
        let injected = self.put_together(Request { pod: &bare, ..request }, native);
        let Some(other) = injected.ok().and_then(|injected| Reading::of(&injected.pod)) else {
            return false;
        };
        init.refused.iter().all(|error| other.refused.contains(error))
            && init.unreadable.iter().all(|error| other.unreadable.contains(error))
    }

    /// What people call an option: where they have written it.
    fn name(&self, init: &Reading, own_mesh: &Mesh, origin: &Origin) -> String {
        if let Origin::Variable(variable) = origin {
            let metadata = |mesh: &Mesh| mesh.proxy().get("proxyMetadata")?.get(variable).cloned();
            let (own, all) = (metadata(own_mesh), metadata(&self.settings.mesh));
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
