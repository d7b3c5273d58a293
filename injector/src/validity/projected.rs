//! Rules of projected volumes: several sources in one directory.

use std::collections::HashSet;

use serde_json::Value;

use super::relations::list;
use super::{ABSENT, EnforcedBy, Scope};
use crate::path::Lookup as _;

/// Items of projected sources have different paths.
pub(super) fn paths(scope: &mut Scope<'_, '_, '_>) {
    const KINDS: [&str; 3] = ["configMap", "secret", "downwardAPI"];
    let items = |source: &Value| -> Vec<String> {
        let lists = KINDS.into_iter().filter_map(|kind| source.lookup(kind)?.lookup("items")?.as_array());
        lists.flatten().filter_map(|item| item.lookup("path")?.as_str().map(str::to_owned)).collect()
    };
    let mut seen = HashSet::new();
    let twice = list(scope.object, "sources").iter().flat_map(items).find(|path| !seen.insert(path.clone()));
    if let Some(twice) = twice {
        scope.report("sources", format!("path {twice:?} twice"), "another path for each file", &[]);
    }
}

/// A source has one kind; the API server accepts one that has none, which projects nothing.
pub(super) fn source(scope: &mut Scope<'_, '_, '_>) {
    const KINDS: [&str; 6] =
        ["clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"];
    let given: Vec<&str> = KINDS.into_iter().filter(|kind| scope.get(kind).is_some()).collect();
    let accepted = format!("one of {}", KINDS.join(", "));
    if given.len() > 1 {
        scope.report("", given.join(" and "), accepted, &given);
    } else if given.is_empty() {
        scope.report("", "none is set", accepted, &[]);
        scope.enforced_by(None, "projects no file");
    }
}

/// A certificate is written to some file.
pub(super) fn certificate(scope: &mut Scope<'_, '_, '_>) {
    const PATHS: [&str; 3] = ["certificateChainPath", "credentialBundlePath", "keyPath"];
    if PATHS.iter().all(|key| scope.text(key).is_empty()) {
        scope.report("", "none is set", format!("one of {}", PATHS.join(", ")), &[]);
        scope.enforced_by(Some(EnforcedBy::ApiServer), ABSENT);
    }
}
