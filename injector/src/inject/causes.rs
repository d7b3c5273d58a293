//! What a fault of an injected pod depends on: found by injections that each lack one part, of the pod or of
//! its templates. A fault that is gone with a part is that part's, however the value has come where it is.

use serde_json::{Value, json};

use super::faults::Finding;
use super::render::{self, Overlay};
use super::{Injector, Plan, Request};
use crate::annotations::{self, Syntax, keys};
use crate::pod::list::{self, List, annotation, metadata, name};

/// The most parts of one sort that are tried.
const MOST: usize = 50;

/// What one finding depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cause {
    /// A pod with nothing of its own has it, too.
    pub(super) by_config: bool,
    /// Each of these annotations of the pod.
    pub(super) annotations: Vec<String>,
    /// The pod's own version of a container of the templates.
    pub(super) container: Option<String>,
    /// Each of these templates, in their order.
    pub(super) templates: Vec<String>,
}

/// The findings of injections that lack one part, by that part.
pub(super) struct Causes {
    complete: Vec<Finding>,
    bare: Vec<Finding>,
    annotations: Vec<(String, Vec<Finding>)>,
    containers: Vec<(String, Vec<Finding>)>,
    templates: Vec<(String, Vec<Finding>)>,
}

impl Causes {
    /// Injects `pod`, which is without an earlier injection, once for each part.
    pub(super) fn of(injector: &Injector, plan: Plan<'_>, pod: &Value, overlays: &[Overlay]) -> Self {
        // With a part that it needs, a pod may not be injected at all: that part is no cause.
        let findings = |pod: &Value, without: Option<&str>| {
            let request = Request { pod, ..plan.request };
            injector.findings(Plan { request, without, ..plan }).ok()
        };
        let complete = findings(pod, None).unwrap_or_default();
        let all = |parts: Vec<String>, lacking: &dyn Fn(&str) -> Option<Vec<Finding>>| {
            let tried = parts.into_iter().take(MOST);
            tried.filter_map(|part| lacking(&part).map(|found| (part, found))).collect()
        };
        let names: Vec<String> = overlays.iter().map(|overlay| overlay.name.clone()).collect();
        let own = |container: &&str| render::defines(overlays, container);
        let containers = list::all_containers(pod).map(name).filter(own).map(str::to_owned).collect();
        Self {
            bare: findings(&bare(pod), None).unwrap_or_default(),
            annotations: all(injector.read_annotations(pod, &names), &|key| {
                let mut pod = pod.clone();
                list::remove_annotation(&mut pod, key);
                findings(&pod, None)
            }),
            containers: all(containers, &|container| findings(&lacking_container(pod, container), None)),
            templates: if names.len() > 1 {
                all(names, &|name| findings(pod, Some(name)))
            } else {
                Vec::new()
            },
            complete,
        }
    }

    /// The parts without which this is not found.
    pub(super) fn of_finding(&self, finding: &Finding) -> Cause {
        let has = |found: &[Finding]| found.iter().any(|other| other.is_like(finding));
        // Others have added to the pod since its first injection.
        if !has(&self.complete) {
            return Cause::default();
        }
        let gone = |parts: &[(String, Vec<Finding>)]| -> Vec<String> {
            parts.iter().filter(|(_, found)| !has(found)).map(|(part, _)| part.clone()).collect()
        };
        Cause {
            by_config: has(&self.bare),
            annotations: gone(&self.annotations),
            container: gone(&self.containers).into_iter().next(),
            templates: gone(&self.templates),
        }
    }
}

/// A pod of one container that chooses the same templates as `pod`.
pub(super) fn bare(pod: &Value) -> Value {
    let chosen = annotation(pod, keys::TEMPLATES).map(|names| (keys::TEMPLATES.to_owned(), json!(names)));
    let annotations: serde_json::Map<String, Value> = chosen.into_iter().collect();
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    })
}

fn lacking_container(pod: &Value, container: &str) -> Value {
    let mut pod = pod.clone();
    for list in List::BOTH {
        let mut items = list::take(&mut pod, list);
        items.retain(|item| name(item) != container);
        list::put(&mut pod, list, items);
    }
    pod
}

/// Whether a template branches on an annotation rather than printing it: then the template is at fault.
pub(super) fn is_switch(key: &str) -> bool {
    annotations::row(key)
        .is_some_and(|row| matches!(row.syntax, Syntax::Boolean | Syntax::Word(_) | Syntax::WordOrIgnored(_)))
}

impl Injector {
    /// The annotations of a pod that injection with these templates reads, but for those that choose
    /// templates or that injection writes.
    fn read_annotations(&self, pod: &Value, templates: &[String]) -> Vec<String> {
        let all = &self.settings.injector.templates;
        let texts: Vec<&str> =
            templates.iter().filter_map(|name| all.get(name)).map(|one| one.template.text()).collect();
        let is_read = |key: &&String| match annotations::row(key) {
            Some(row) => row.syntax != Syntax::SetByInjection && key.as_str() != keys::TEMPLATES,
            None => texts.iter().any(|text| text.contains(key.as_str())),
        };
        metadata(pod, "annotations")
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(is_read)
            .cloned()
            .collect()
    }
}
