//! Environment variables into [`RawOptions`].

use std::collections::HashMap;
use std::ffi::OsString;

use super::error::UsageError;
use super::options::Key;
use super::raw::{Given, Origin, RawOptions};

/// Lists for which "nothing" is dangerous or meaningless, so that an empty value is looked at instead of skipped.
const EMPTY_COUNTS: [Key; 2] = [Key::OutboundOwnerGroups, Key::OutboundIpv4LoopbackCidr];

/// Adds what the environment says; what is there already stays.
pub(super) fn read(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    raw: &mut RawOptions,
    errors: &mut Vec<UsageError>,
) {
    let mut variables: HashMap<OsString, OsString> = environment.into_iter().collect();
    for &key in Key::ALL {
        for name in key.spec().variable_names() {
            let Some(value) = variables.remove(&OsString::from(&name)) else {
                continue;
            };
            let origin = Origin::Variable(name);
            match value.into_string() {
                Ok(text) if text.is_empty() && !EMPTY_COUNTS.contains(&key) => {}
                Ok(text) => raw.offer(key, Given { text, origin }),
                Err(value) => errors.push(UsageError::NotUtf8 {
                    origin,
                    shown: value.to_string_lossy().into_owned(),
                }),
            }
        }
    }
}
