//! Versions and version constraints.

use super::{STR, text};
use crate::template::funcs::Functions;

pub(super) fn register(f: &mut Functions) {
    f.add("semver", &[STR], None, |_, args| {
        Err(format!("not available yet: {}", text(args, 0)?.as_str()))
    });
    f.add("semverCompare", &[STR, STR], None, |_, args| {
        Err(format!("not available yet: {}", text(args, 0)?.as_str()))
    });
}
