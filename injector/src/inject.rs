//! From pod to injected pod.

mod adopt;
mod capture;
mod combine;
mod error;
mod finish;
mod keep;
mod moved;
mod native;
mod render;
mod reverse;

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::annotations;
use crate::config::{Mesh, Settings};
use crate::data::Data;
use crate::malformed;
use crate::pod::exempt::Exempt;
use crate::pod::ids::Ids;
use crate::pod::image::{self, Which};
use crate::pod::init::{Reading, without_proxy};
use crate::pod::list::{self, annotation};
use crate::pod::overrides;
use crate::pod::status::Status;
use crate::pod::undo::{Undone, undo};
use crate::pod::workload::Workload;
use crate::template::Functions;
use crate::yaml;

pub use error::InjectError;
pub use reverse::Uninjected;

/// What is the same for every pod.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The revision, as templates see it: `default` for the default one; empty counts as that in what is written.
    pub revision: String,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// Whether an app container with the proxy's user denies the pod, or only gives a warning.
    pub reject_proxy_uid: bool,
}

/// Where a pod is to run: what its cluster, network and namespace prescribe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// What the namespace prescribes.
    pub ids: Ids,
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// More environment of the proxy, such as the cluster and the network it is in.
    pub environment: Vec<(String, String)>,
}

/// Config and options: everything but the pod.
#[derive(Debug)]
pub struct Injector {
    /// What was read from files.
    pub settings: Settings,
    /// What was asked for.
    pub options: Options,
    mesh_json: Value,
}

/// One pod, or pod template, to be injected.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object with `metadata` and `spec`.
    pub pod: &'a Value,
    /// Its workload.
    pub workload: &'a Workload,
    /// Where it is to run.
    pub place: &'a Place,
}

impl Request<'_> {
    fn well_formed(&self) -> Result<(), InjectError> {
        let malformed = malformed::of_pod(self.pod, "/metadata", "/spec");
        if malformed.is_empty() { Ok(()) } else { Err(InjectError::Malformed(malformed)) }
    }
}

/// An injected pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The pod.
    pub pod: Value,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// The functions that templates may call.
#[must_use]
pub fn functions(environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Functions {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    functions.add_istio(environment);
    functions
}

impl Injector {
    /// Puts the parts together.
    #[must_use]
    pub fn new(settings: Settings, options: Options) -> Self {
        let mesh_json = settings.mesh.to_json();
        Self { settings, options, mesh_json }
    }

    /// Injects a pod; one that is injected already is injected afresh.
    ///
    /// # Errors
    ///
    /// Why the pod cannot be injected, in words for whoever wrote it.
    pub fn inject(&self, request: Request<'_>) -> Result<Injected, InjectError> {
        let native = native::wanted(request.pod, request.place.native_sidecars);
        let mut injected = self.put_together(request, native)?;
        let init = Reading::of(&injected.pod);
        if let Some(init) = &init {
            injected.warnings.extend(self.judge_capture(init, request)?);
        }
        self.judge_users(&mut injected, init.as_ref(), request.place.ids)?;
        Ok(injected)
    }

    /// The injected pod, before anybody asks what its init container makes of it.
    fn put_together(&self, request: Request<'_>, native: bool) -> Result<Injected, InjectError> {
        request.well_formed()?;
        let checked = annotations::check(request.pod);
        let mut warnings = checked.warnings;
        let mut problems: Vec<String> = checked.errors.iter().map(ToString::to_string).collect();
        let own_mesh = self.own_mesh(request.pod, &mut warnings);
        problems.extend(own_mesh.as_ref().err().cloned());
        let undone = self.undone(request.pod);
        problems.extend(undone.as_ref().err().cloned());
        let (Ok(own_mesh), Ok(mut undone), true) = (own_mesh, undone, problems.is_empty()) else {
            problems.sort();
            return Err(InjectError::Annotations(problems));
        };
        for container in list::duplicates(&undone.pod) {
            let paths = list::places(request.pod, container);
            if paths.len() > 1 {
                return Err(InjectError::Duplicate { container: container.to_owned(), paths });
            }
        }
        if undone.previous.is_none() && annotation(request.pod, overrides::ANNOTATION).is_some() {
            warnings.push(format!(
                "annotation {}: only injection writes it; what it says of containers of Istio's counts as if the pod had \
                 them, the rest is dropped; expected such containers in the pod instead",
                overrides::ANNOTATION
            ));
        }
        let names = render::select(&undone.pod, &self.settings.injector)?;
        let templates = names.iter().filter_map(|name| self.settings.injector.templates.get(name));
        let texts: Vec<&str> = templates.map(|one| one.template.text()).collect();
        warnings.extend(annotations::unread(&undone.pod, &texts));
        let overlays = self.render(&request, &undone, &own_mesh, &names, native)?;
        let adopted = self.moved(&request, &mut undone, &overlays, native);
        let combined = combine::combine(&undone, &overlays, &adopted)?;
        let status = Status::of_templates(&combined.templates, &self.options.revision);
        let mut injected = Injected { pod: combined.pod, warnings };
        self.finish(&mut injected, request.place, &combined.asked, &own_mesh, &status);
        if let Some(previous) = &undone.previous {
            adopt::keep_additions(&mut injected, previous, &status)?;
            injected.warnings.extend(previous.strangers(request.pod, &injected.pod, &status));
        }
        judge(&mut injected, &names)?;
        injected.warnings.extend(windows(&injected.pod));
        finish::keep_order(&mut injected.pod, request.pod);
        Ok(injected)
    }

    fn undone(&self, pod: &Value) -> Result<Undone, String> {
        undo(pod, self.settings.mesh.status_port(), self.merges_metrics(pod))
    }

    /// The mesh config with the pod's own proxy config.
    fn own_mesh(&self, pod: &Value, warnings: &mut Vec<String>) -> Result<Mesh, String> {
        const KEY: &str = "proxy.istio.io/config";
        // Every pod may bring one.
        const MOST_NODES: usize = 10_000;
        let Some(text) = annotation(pod, KEY) else {
            return Ok(self.settings.mesh.clone());
        };
        let bad = |problem: String| format!("annotation {KEY}: {problem}");
        let value = yaml::read_at_most(MOST_NODES, text).map_err(|error| bad(error.to_string()))?;
        let unknown = Mesh::unknown_proxy_fields(&value);
        warnings.extend(unknown.into_iter().map(|field| bad(format!("{field}: not known, ignored"))));
        self.settings.mesh.with_proxy_config(&value).map_err(bad)
    }

    fn render(
        &self,
        request: &Request<'_>,
        undone: &Undone,
        own_mesh: &Mesh,
        names: &[String],
        native: bool,
    ) -> Result<Vec<render::Overlay>, InjectError> {
        let settings = &self.settings;
        let proxy_config = Value::Object(own_mesh.proxy().clone());
        let image = |which| image::choose(&undone.pod, &settings.values, &proxy_config, which);
        let empty = serde_json::Map::new();
        let data = Data {
            pod: &undone.pod,
            workload: request.workload,
            mesh: &settings.mesh,
            own_mesh,
            mesh_json: self.mesh_json.as_object().unwrap_or(&empty),
            values: &settings.values,
            revision: &self.options.revision,
            native_sidecars: native,
            proxy_image: &image(Which::Proxy),
            init_image: &image(Which::Init),
            ids: request.place.ids,
            compliance_policy: &self.options.compliance_policy,
        };
        names.iter().map(|name| render::render(name, &settings.injector, &data)).collect()
    }

    /// Apps that escape capture because they pass for the proxy.
    fn judge_users(
        &self,
        injected: &mut Injected,
        init: Option<&Reading>,
        ids: Ids,
    ) -> Result<(), InjectError> {
        if list::proxy(&injected.pod).is_none() {
            return Ok(());
        }
        let exempt = Exempt::of(&injected.pod, init, ids);
        let by_user = exempt.by_user(&injected.pod);
        if let Some(&(_, uid)) = by_user.first() {
            let containers = by_user.iter().filter(|(_, other)| *other == uid);
            let containers = containers.map(|(name, _)| name.clone()).collect();
            let error = InjectError::ProxyUid { containers, uid };
            if self.options.reject_proxy_uid {
                return Err(error);
            }
            injected.warnings.push(error.to_string());
        }
        let by_group = exempt
            .by_group(&injected.pod)
            .into_iter()
            .filter(|(name, _)| !by_user.iter().any(|(other, _)| name == other));
        injected.warnings.extend(by_group.map(|(name, gid)| {
            format!(
                "container {name} runs as group {gid}, the proxy's own: its outbound traffic is not captured; expected \
                 another runAsGroup"
            )
        }));
        Ok(())
    }
}

/// What is wrong, or odd, about the result.
fn judge(injected: &mut Injected, names: &[String]) -> Result<(), InjectError> {
    // Templates that disagree on where the proxy runs get a warning below, as they are not the pod's fault.
    if let Some(container) =
        list::duplicates(&injected.pod).into_iter().find(|name| *name != crate::pod::PROXY)
    {
        let paths = list::places(&injected.pod, container);
        return Err(InjectError::Clash { container: container.to_owned(), paths });
    }
    for list in list::List::BOTH {
        for container in list::containers(&injected.pod, list) {
            match container.get("image").and_then(Value::as_str) {
                Some(crate::pod::AUTO_IMAGE) => {
                    return Err(InjectError::AutoImage {
                        container: list::name(container).to_owned(),
                        templates: names.to_vec(),
                    });
                }
                None | Some("") if list::name(container) == crate::pod::PROXY => {
                    injected.warnings.push(format!(
                        "spec.{} has a container istio-proxy without an image: one of the templates {} names it there, \
                         another one elsewhere",
                        list.key(),
                        names.join(", ")
                    ));
                }
                _ => {}
            }
        }
    }
    if let Some(container) = without_proxy(&injected.pod) {
        injected.warnings.push(format!(
            "spec.initContainers has {container}, and no container of the pod is istio-proxy with an image: what is captured \
             has nowhere to go; expected one in the templates {}",
            names.join(", ")
        ));
    }
    Ok(())
}

/// A pod for Windows is injected where it asks for it, as by Istio, and cannot run.
fn windows(pod: &Value) -> Option<String> {
    let system = pod.pointer("/spec/os/name").and_then(Value::as_str);
    (system == Some("windows")).then(|| {
        "spec.os.name is windows: the injected containers are for Linux, and Kubernetes refuses such a pod; expected label \
         sidecar.istio.io/inject: \"false\""
            .to_owned()
    })
}
