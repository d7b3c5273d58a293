//! The injection pipeline: from pod to injected pod.

mod capture;
mod capture_options;
mod causes;
mod check;
mod conflicts;
mod error;
mod faults;
mod findings;
mod merge;
mod merge_existing;
mod misspelt;
mod overlay_cache;
mod postprocess;
mod preserve;
mod relocate;
mod render;
mod uninject;
pub(crate) mod validate;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::annotations::keys;
use crate::config::{Layers, Mesh, ProxyConfigs, Settings};
use crate::pod::annotations::{self, AnnotationError};
use crate::pod::ids::{self, Ids};
use crate::pod::image::{self, Which};
use crate::pod::init_options::InitOptionsCache;
use crate::pod::injected_fields::InjectedFields;
use crate::pod::list::{self, annotation};
use crate::pod::original_forms::{self, OriginalForms, Patched};
use crate::pod::prometheus;
use crate::pod::status::Status;
use crate::pod::strip::{Stripped, strip};
use crate::pod::workload::Workload;
use crate::quantity;
use crate::schema;
use crate::template::Data;
use crate::validity::{self, Fault};

pub use crate::template::functions;
pub use crate::validity::EnforcedBy;
use causes::Causes;
pub(crate) use check::exempt_apps;
pub use error::InjectError;
pub use faults::InvalidField;
use faults::Origins;
use findings::{Finding, TemplateFlaw};
pub(crate) use misspelt::misspelt;
use overlay_cache::OverlayCache;
pub use uninject::Uninjected;

/// Settings for every pod.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The revision, as templates see it: `default` for the default one; empty counts as that in what is
    /// written.
    pub revision: String,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// The init container's image, instead of that of the values.
    pub init_image: Option<String>,
    /// Whether an app container with the proxy's user denies the pod, or only gives a warning.
    pub reject_proxy_uid: bool,
    /// Whether the fields of injected containers are noted in an annotation, so that a second injection keeps
    /// what others changed in them.
    pub note_fields: bool,
}

/// What cluster, network and namespace prescribe for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InjectionContext {
    /// What the namespace prescribes.
    pub ids: Ids,
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// More environment of the proxy, such as the cluster and the network it is in.
    pub environment: Vec<(String, String)>,
    /// ProxyConfig resources.
    pub proxy_configs: Arc<ProxyConfigs>,
}

/// Config and options: everything but the pod.
#[derive(Debug)]
pub struct Injector {
    /// What was read from files. It does not change after the first injection: overlays are kept.
    pub settings: Settings,
    /// Command-line options.
    pub options: Options,
    mesh_json: Value,
    init_options: InitOptionsCache,
    overlays: OverlayCache,
}

/// One pod, or pod template, to be injected.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object with `metadata` and `spec`.
    pub pod: &'a Value,
    /// The workload of the pod.
    pub workload: &'a Workload,
    /// The cluster, network and namespace of the pod.
    pub context: &'a InjectionContext,
}

impl Request<'_> {
    fn check_shape(&self) -> Result<(), InjectError> {
        let malformed = schema::check::pod(self.pod, "/metadata", "/spec");
        if malformed.is_empty() { Ok(()) } else { Err(InjectError::Malformed(malformed)) }
    }
}

/// An injected pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The pod.
    pub pod: Value,
    /// Warnings.
    pub warnings: Vec<String>,
    /// What Kubernetes does not accept of it, because of the injection.
    pub invalid: Vec<InvalidField>,
}

/// An injection: of which pod, and how.
#[derive(Clone, Copy)]
struct Plan<'a> {
    request: Request<'a>,
    /// Whether the proxy is a native sidecar.
    native: bool,
    /// The template of the pod that is left out, to see what it does.
    without: Option<&'a str>,
}

impl<'a> Plan<'a> {
    const fn new(request: Request<'a>, native: bool) -> Self {
        Self { request, native, without: None }
    }
}

/// An injected pod whose result is not checked, and what its templates lose or lack.
struct Assembled {
    injected: Injected,
    flaws: Vec<TemplateFlaw>,
}

/// What the steps of an injection start from.
struct Prepared<'i> {
    own_mesh: Cow<'i, Mesh>,
    stripped: Stripped,
    names: Vec<String>,
    overlays: Vec<render::Overlay>,
    forms: OriginalForms,
    warnings: Vec<String>,
}

impl Injector {
    /// Puts the parts together.
    #[must_use]
    pub fn new(mut settings: Settings, options: Options) -> Self {
        if let Some(image) = &options.init_image
            && let Some(global) = list::object_mut(&mut settings.values, "global")
            && let Some(init) = global.entry("proxy_init").or_insert_with(|| json!({})).as_object_mut()
        {
            init.insert("image".to_owned(), json!(image));
        }
        let mesh_json = settings.mesh.to_json();
        let (init_options, overlays) = Default::default();
        Self { settings, options, mesh_json, init_options, overlays }
    }

    /// Injects a pod; one that is injected already is injected again.
    ///
    /// # Errors
    ///
    /// Why the pod cannot be injected, for the author of the pod.
    pub fn inject(&self, request: Request<'_>) -> Result<Injected, InjectError> {
        let native = wants_native_sidecar(request.pod, request.context.native_sidecars);
        let plan = Plan::new(request, native);
        let Assembled { mut injected, flaws } = self.assemble(plan)?;
        let init = self.init_options.of(&injected.pod);
        if let Some(init) = &init {
            injected.warnings.extend(self.check_capture(init, request)?);
            injected.warnings.extend(self.write_capture_options(&mut injected.pod, init));
        }
        self.check_users(&mut injected, init.as_deref(), request.context.ids)?;
        injected.invalid = self.check_validity(&injected.pod, flaws, plan);
        Ok(injected)
    }

    /// What is wrong with the config, found by injections of a sample pod.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        validate::inject(self)
    }

    /// Finds what Kubernetes would refuse.
    fn check_validity(&self, pod: &Value, flaws: Vec<TemplateFlaw>, plan: Plan<'_>) -> Vec<InvalidField> {
        let found = validity::faults(pod);
        if found.is_empty() && flaws.is_empty() {
            Vec::new()
        } else {
            self.name_causes(pod, found, flaws, plan)
        }
    }

    /// Only a pod with a fault is injected again, to name its origin.
    #[cold]
    fn name_causes(
        &self,
        pod: &Value,
        found: Vec<Fault>,
        flaws: Vec<TemplateFlaw>,
        plan: Plan<'_>,
    ) -> Vec<InvalidField> {
        let Ok(Prepared { stripped, overlays, .. }) = self.prepare(plan) else { return Vec::new() };
        let before = &stripped.pod;
        let added = faults::added(before, found, &overlays).into_iter().map(Finding::Fault);
        let findings: Vec<Finding> = flaws.into_iter().map(Finding::Flaw).chain(added).collect();
        if findings.is_empty() {
            return Vec::new();
        }
        let causes = Causes::of(self, plan, &stripped, &overlays, &findings);
        let injected_annotations = &self.settings.injector.injected_annotations;
        let values = &self.settings.values_from;
        let origins = Origins { before, injected: pod, overlays: &overlays, injected_annotations, values };
        faults::explain_all(&findings, &causes, &origins)
    }

    /// What an injection brings that Kubernetes would refuse, or that is lost.
    fn findings(&self, plan: Plan<'_>) -> Result<Vec<Finding>, InjectError> {
        let Assembled { injected, flaws } = self.assemble(plan)?;
        let Prepared { stripped, overlays, .. } = self.prepare(plan)?;
        let added = faults::added(&stripped.pod, validity::faults(&injected.pod), &overlays);
        Ok(flaws.into_iter().map(Finding::Flaw).chain(added.into_iter().map(Finding::Fault)).collect())
    }

    /// The pod without an earlier injection, and what its templates say.
    fn prepare(&self, plan: Plan<'_>) -> Result<Prepared<'_>, InjectError> {
        let Plan { request, native, without } = plan;
        request.check_shape()?;
        let checked = annotations::check(request.pod);
        let mut warnings = checked.warnings;
        let mut problems = checked.errors;
        let own_mesh = self.own_mesh(&request, &mut warnings);
        problems.extend(own_mesh.as_ref().err().into_iter().flatten().cloned());
        let port = own_mesh.as_deref().unwrap_or(&self.settings.mesh).status_port();
        let merges_metrics = self.merges_metrics(request.pod);
        let stripped = strip(request.pod, port, merges_metrics);
        problems.extend(stripped.as_ref().err().cloned());
        if let (Ok(stripped), true) = (&stripped, merges_metrics) {
            problems.extend(prometheus::problems(&stripped.pod, port));
        }
        let (Ok(own_mesh), Ok(mut stripped), true) = (own_mesh, stripped, problems.is_empty()) else {
            problems.sort_by_cached_key(ToString::to_string);
            return Err(InjectError::Annotations(problems));
        };
        list::no_null_texts(&mut stripped.pod);
        if request.context.ids != Ids::default() {
            ids::drop_assigned(&mut stripped.pod);
        }
        check::no_duplicates(&stripped.pod, request.pod)?;
        if stripped.previous.is_none() && annotation(request.pod, keys::OVERRIDES).is_some() {
            warnings.push(format!(
                "annotation {}: only injection writes it; what it says of containers of Istio's counts as if the pod had \
                 them, the rest is dropped; expected such containers in the pod instead",
                keys::OVERRIDES
            ));
        }
        // Templates print quantities as Go does: in canonical form.
        let noted = stripped.previous.as_ref().map(|previous| previous.forms.clone()).unwrap_or_default();
        let mut forms = OriginalForms {
            annotations: noted.annotations,
            written: noted.written,
            own: noted.own,
            ..OriginalForms::default()
        };
        let rewritten = quantity::canonicalize(&mut stripped.pod)
            .map_err(|error| InjectError::Quantity(Box::new(error)))?;
        forms.add_quantities(&stripped.pod, rewritten);
        let mut names = render::select(&stripped.pod, &self.settings.injector)?;
        names.retain(|name| without != Some(name));
        let templates = names.iter().filter_map(|name| self.settings.injector.templates.get(name));
        let texts: Vec<&str> = templates.map(|one| one.template.text()).collect();
        warnings.extend(annotations::unread(&stripped.pod, &texts));
        let mut overlays = self.render(&request, &stripped, &own_mesh, &names, native)?;
        if stripped.keep_undefined(request.pod, |container| render::defines(&overlays, container)) {
            overlays = self.render(&request, &stripped, &own_mesh, &names, native)?;
        }
        if self.notes_forms() && stripped.previous.is_none() {
            forms.annotations = OriginalForms::default_containers(&stripped.pod, |bare| {
                let bare = Stripped { pod: bare, previous: None };
                let overlays = self.render(&request, &bare, &own_mesh, &names, native).unwrap_or_default();
                overlays.into_iter().map(|one| one.patch).collect()
            });
        }
        Ok(Prepared { own_mesh, stripped, names, overlays, forms, warnings })
    }

    /// The injected pod, before the options of its init container are checked.
    fn assemble(&self, plan: Plan<'_>) -> Result<Assembled, InjectError> {
        let Plan { request, native, .. } = plan;
        let Prepared { own_mesh, mut stripped, names, mut overlays, mut forms, mut warnings } =
            self.prepare(plan)?;
        let flaws = overlays
            .iter_mut()
            .flat_map(|one| std::mem::take(&mut one.flaws).into_iter().map(|flaw| (one.name.clone(), flaw)));
        let flaws = flaws.map(|(template, flaw)| TemplateFlaw { template, flaw }).collect();
        let own = self.relocate(&request, &mut stripped, &overlays, native);
        warnings.extend(conflicts::warnings(request.pod, &stripped, &overlays, &self.options.revision));
        let own_volumes = conflicts::own_volumes(&stripped, &overlays);
        let is_copy = conflicts::is_copy(&stripped);
        let patches = overlays.iter().map(|overlay| &overlay.patch);
        let previous = stripped.previous.as_ref();
        let added = |list: &str| previous.map(|previous| previous.added(list)).unwrap_or_default();
        let noted = previous.map(|previous| &previous.forms.changes);
        let built_in = names.iter().all(|name| crate::config::BUILTIN_TEMPLATES.contains(&name.as_str()));
        let first = previous.is_none();
        let patched = Patched { built_in, first, ..Patched::of(&stripped.pod, patches, noted, added) };
        let own_containers: HashSet<String> = list::all_containers(&stripped.pod)
            .chain(own.iter().map(|(_, container)| container))
            .map(|container| list::name(container).to_owned())
            .collect();
        let deletes = overlays.iter().any(|overlay| preserve::has_directive(&overlay.patch));
        let mut deleted = if deletes { list::positions(&stripped.pod) } else { Vec::new() };
        let places = if first { list::name_places(&stripped.pod) } else { Vec::new() };
        let merged = merge::merge_templates(&mut stripped, overlays, own)?;
        deleted.retain(|(_, _, container)| list::places(&merged.pod, list::name(container)).is_empty());
        forms.deleted = deleted;
        let changed_volumes = conflicts::changed_volumes(&own_volumes, &merged.pod)?;
        warnings.extend(changed_volumes.into_iter().filter(|_| !is_copy));
        let status = Status::of_templates(&merged.templates, &self.options.revision);
        let mut injected = Injected { pod: merged.pod, warnings, invalid: Vec::new() };
        let probes = self.postprocess(&mut injected, request.context, &merged.asked, &own_mesh, &status);
        (forms.ports, forms.probes) = (probes.names, probes.unnoted);
        forms.containers =
            status.own_containers().filter(|name| !own_containers.contains(*name)).cloned().collect();
        self.merge_previous(&mut injected, request, &stripped, &status)?;
        forms.own.extend(OriginalForms::moved_places(places, &injected.pod));
        forms.note_written(request.pod, &injected.pod, &patched);
        self.note_forms(&mut injected, &forms);
        check::check_result(&mut injected, &names, &own_containers)?;
        injected.warnings.extend(check::windows(&injected.pod));
        injected.warnings.extend(check::endless_job(&injected.pod, request.workload));
        postprocess::preserve_order(&mut injected.pod, request.pod);
        Ok(Assembled { injected, flaws })
    }

    /// Merges with an earlier injection, and notes what the templates give by themselves.
    fn merge_previous(
        &self,
        injected: &mut Injected,
        request: Request<'_>,
        stripped: &Stripped,
        status: &Status,
    ) -> Result<(), InjectError> {
        let was_noted = stripped.previous.as_ref().is_some_and(|previous| previous.fields.is_some());
        if self.options.note_fields || was_noted {
            let fields = InjectedFields::of(&injected.pod, status).to_json();
            if let Some(annotations) = list::metadata_mut(&mut injected.pod, "annotations") {
                annotations.insert(keys::INJECTED_FIELDS.to_owned(), json!(fields));
            }
        }
        if let Some(previous) = &stripped.previous {
            merge_existing::merge_existing(injected, request.pod, previous, status)?;
            merge_existing::keep_volumes(&mut injected.pod, request.pod, &previous.status);
            injected.warnings.extend(previous.foreign_additions(request.pod, &injected.pod, status));
        }
        Ok(())
    }

    fn notes_forms(&self) -> bool {
        self.flag("/sidecarInjectorWebhook/uninjectAnnotation")
    }

    /// Notes it, if the values enable that: Istio's injector has no such annotation.
    fn note_forms(&self, injected: &mut Injected, forms: &OriginalForms) {
        let Some(text) = forms.to_json(&injected.pod).filter(|_| self.notes_forms()) else { return };
        if text.len() > original_forms::MOST_BYTES {
            injected.warnings.push(format!(
                "annotation {}: {} bytes would be written, at most {} are: uninject cannot restore what templates change",
                keys::UNINJECT,
                text.len(),
                original_forms::MOST_BYTES
            ));
        } else if let Some(annotations) = list::metadata_mut(&mut injected.pod, "annotations") {
            annotations.insert(keys::UNINJECT.to_owned(), json!(text));
        }
    }

    fn stripped(&self, request: &Request<'_>) -> Result<Stripped, AnnotationError> {
        strip(request.pod, self.status_port(request), self.merges_metrics(request.pod))
    }

    /// The agent's port in this pod.
    fn status_port(&self, request: &Request<'_>) -> i64 {
        let own_mesh = self.own_mesh(request, &mut Vec::new());
        own_mesh.map_or_else(|_| self.settings.mesh.status_port(), |own_mesh| own_mesh.status_port())
    }

    /// The mesh config with the proxy config of ProxyConfig resources and of the pod, in Istio's order: root
    /// namespace, namespace, annotation, workload.
    fn own_mesh(
        &self,
        request: &Request<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Cow<'_, Mesh>, Vec<AnnotationError>> {
        let [of_root, of_namespace, of_workload] = self.layers(request);
        let below = over(over(Cow::Borrowed(&self.settings.mesh), of_root), of_namespace);
        let Some(text) = annotation(request.pod, keys::PROXY_CONFIG) else {
            return Ok(over(below, of_workload));
        };
        let key = keys::PROXY_CONFIG;
        let value =
            misspelt::proxy_config(text).map_err(|error| vec![AnnotationError::Yaml { key, error }])?;
        warnings.extend(misspelt::unknown_fields(&value));
        let mesh = below.with_proxy_config(&value);
        let bad = |error| AnnotationError::Field { key, error };
        mesh.map(|mesh| over(Cow::Owned(mesh), of_workload))
            .map_err(|errors| errors.into_iter().map(bad).collect())
    }

    fn layers<'a>(&self, request: &Request<'a>) -> Layers<'a> {
        let root =
            self.settings.mesh.config().get("rootNamespace").and_then(Value::as_str).unwrap_or_default();
        let labels = list::metadata(request.pod, "labels");
        request.context.proxy_configs.layers(root, &request.workload.namespace, labels)
    }

    fn render(
        &self,
        request: &Request<'_>,
        stripped: &Stripped,
        own_mesh: &Mesh,
        names: &[String],
        native: bool,
    ) -> Result<Vec<render::Overlay>, InjectError> {
        let settings = &self.settings;
        let image = |which| image::choose(&stripped.pod, &settings.values, own_mesh.proxy(), which);
        let empty = Map::new();
        let data = Data {
            pod: &stripped.pod,
            workload: request.workload,
            mesh: &settings.mesh,
            own_mesh,
            mesh_json: self.mesh_json.as_object().unwrap_or(&empty),
            values: &settings.values,
            revision: &self.options.revision,
            native_sidecars: native,
            proxy_image: &image(Which::Proxy),
            init_image: &image(Which::Init),
            ids: request.context.ids,
            compliance_policy: &self.options.compliance_policy,
        };
        let rendered = names.iter().map(|name| {
            self.overlays.overlay(name, &data, || render::render(name, &settings.injector, &data))
        });
        let checked = rendered.map(|one| {
            let overlay = one.map_err(|error| error.with_values_from(&settings.values_from))?;
            let changed = preserve::identity(&stripped.pod, &request.workload.namespace, &overlay.patch);
            if changed.is_empty() {
                return Ok(overlay);
            }
            Err(InjectError::TemplateChangesIdentity { template: overlay.name, changed })
        });
        checked.collect()
    }
}

/// Whether the proxy is a native sidecar: as the pod's annotation says, else `default`.
fn wants_native_sidecar(pod: &Value, default: bool) -> bool {
    match annotation(pod, keys::NATIVE_SIDECAR) {
        Some("true") => true,
        Some("false") => false,
        _ => default,
    }
}

fn over<'a>(mesh: Cow<'a, Mesh>, layer: Option<&Map<String, Value>>) -> Cow<'a, Mesh> {
    match layer {
        Some(layer) => Cow::Owned(mesh.over(layer.clone())),
        None => mesh,
    }
}
