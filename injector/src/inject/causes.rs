//! What a fault of an injected pod depends on: found by injections that each lack one part, of the pod or of
//! its templates. A fault that is gone with a part is that part's, however the value has come where it is.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::findings::Finding;
use super::render::{self, Overlay};
use super::{Injector, Plan, Request};
use crate::annotations::{self, Syntax, keys};
use crate::pod::list::{self, List, annotation, metadata, name};
use crate::pod::strip::Stripped;

/// The most parts of one sort that are tried.
const MOST: usize = 50;

/// What one finding depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cause {
    /// A pod with nothing of its own has it, too.
    pub(super) by_config: bool,
    /// Each of these annotations of the pod.
    pub(super) annotations: Vec<String>,
    /// The pod's own version of a container that the templates provide.
    pub(super) container: Option<String>,
    /// Each of these templates, in their order.
    pub(super) templates: Vec<String>,
}

/// By identity: a pod may have many thousand findings.
type Found = HashSet<String>;

/// The findings of injections that lack one part, by that part.
pub(super) struct Causes {
    /// None: those that are to be explained.
    complete: Option<Found>,
    bare: Found,
    annotations: Vec<(String, Found)>,
    containers: Vec<(String, Found)>,
    templates: Vec<(String, Found)>,
}

impl Causes {
    /// Injects the pod without its earlier injection once for each part that may be a cause of one of
    /// `findings`.
    #[cold]
    pub(super) fn of(
        injector: &Injector,
        plan: Plan<'_>,
        stripped: &Stripped,
        overlays: &[Overlay],
        findings: &[Finding],
    ) -> Self {
        let pod = &stripped.pod;
        let inject = |pod: &Value, without: Option<&str>| {
            injector.found(Plan { request: Request { pod, ..plan.request }, without, ..plan })
        };
        let all: Vec<String> = findings.iter().map(Finding::identity).collect();
        // Others may have added to the pod since an earlier injection.
        let complete = stripped.previous.as_ref().and_then(|_| inject(pod, None));
        let bare = inject(&bare(pod), None).unwrap_or_default();
        let names: Vec<String> = overlays.iter().map(|overlay| overlay.name.clone()).collect();
        let mut causes =
            Self { complete, bare, annotations: Vec::new(), containers: Vec::new(), templates: Vec::new() };
        if names.len() > 1 {
            causes.templates = each(names.clone(), &|name| inject(pod, Some(name)));
        }
        if all.iter().all(|one| causes.bare.contains(one)) {
            return causes;
        }
        let keys = injector.read_annotations(pod, &names);
        let none = inject(&lacking_annotations(pod, &keys), None);
        if none.is_none_or(|none| all.iter().any(|one| !none.contains(one))) {
            causes.annotations =
                each(keys, &|key| inject(&lacking_annotations(pod, std::slice::from_ref(key)), None));
        }
        let own = |container: &&str| render::provides(overlays, container);
        let containers = list::all_containers(pod).map(name).filter(own).map(str::to_owned).collect();
        causes.containers = each(containers, &|container| inject(&lacking_container(pod, container), None));
        causes
    }

    /// The parts without which this is not found.
    pub(super) fn of_finding(&self, finding: &Finding) -> Cause {
        let identity = finding.identity();
        let has = |found: &Found| found.contains(&identity);
        if self.complete.as_ref().is_some_and(|complete| !has(complete)) {
            return Cause::default();
        }
        let gone = |parts: &[(String, Found)]| -> Vec<String> {
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

/// What is found without each of these parts.
fn each(parts: Vec<String>, without: &dyn Fn(&String) -> Option<Found>) -> Vec<(String, Found)> {
    parts.into_iter().take(MOST).filter_map(|part| without(&part).map(|found| (part, found))).collect()
}

/// A pod of one container that chooses the same templates as `pod`.
pub(super) fn bare(pod: &Value) -> Value {
    let chosen = annotation(pod, keys::TEMPLATES).map(|names| (keys::TEMPLATES.to_owned(), json!(names)));
    let annotations: Map<String, Value> = chosen.into_iter().collect();
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    })
}

fn lacking_annotations(pod: &Value, keys: &[String]) -> Value {
    let mut pod = pod.clone();
    for key in keys {
        list::remove_annotation(&mut pod, key);
    }
    pod
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
    /// The findings of an injection. Without a part that it needs, a pod may not be injected at all: that
    /// part is no cause.
    #[inline(never)]
    fn found(&self, plan: Plan<'_>) -> Option<Found> {
        let found = self.findings(plan).ok()?;
        Some(found.iter().map(Finding::identity).collect())
    }

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
