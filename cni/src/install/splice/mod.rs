//! The text of a network configuration list, and edits of it that leave all other bytes as they are.

mod object;

use std::fmt;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::go_json::without_lone_surrogates;
use crate::netconf::{OWN_KEYS, POD_ANNOTATIONS};
use crate::version::Version;

use object::{Object, require_fields};

/// The type under which the plugin is in a list: the name of its program.
pub const TYPE: &str = "istio-cni";

/// A list has no plugins.
pub(super) const NO_PLUGINS: &str = "missing plugins";

/// A list has no other plugins.
const ONLY_OURS: &str = "plugins: istio-cni is the only one";

/// Why a text is not a configuration that libcni loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    problem: String,
    /// Why the runtime may use the file nevertheless.
    may_be_used: Option<&'static str>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Invalid {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), may_be_used: None }
    }

    /// A file that the runtime may use.
    pub(super) fn used(problem: impl Into<String>, why: &'static str) -> Self {
        Self { problem: problem.into(), may_be_used: Some(why) }
    }

    /// Why the runtime may use the file nevertheless, with what to do.
    pub(super) const fn may_be_used(&self) -> Option<&'static str> {
        self.may_be_used
    }
}

/// Whose an object is, by what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Written by this program, in any version: it requests the pod's annotations or has a key of ours.
    /// Istio's entry never does.
    Ours,
    /// Of our type, but not ours: Istio's own plugin has the same.
    Istio {
        /// Whether it is in ambient mode.
        ambient: bool,
    },
    /// Another plugin's.
    Other,
}

/// One object of `plugins`, with its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plugin {
    span: Range<usize>,
    kind: String,
    owner: Owner,
}

/// A network configuration list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<'a> {
    text: &'a str,
    name: String,
    inlined_only: bool,
    /// Where the white space before the first plugin begins; `None`: all plugins are in drop-in files.
    opened: Option<usize>,
    plugins: Vec<Plugin>,
}

impl<'a> List<'a> {
    /// Reads a list by the rules of libcni.
    ///
    /// # Errors
    /// What libcni would not load.
    pub fn parse(text: &'a str) -> Result<Self, Invalid> {
        let read = without_lone_surrogates(text);
        let keys = Object::of_file(&read)?;
        let name = keys.string("name")?.ok_or_else(|| Invalid::new("missing name"))?;
        keys.string("cniVersion")?;
        keys.versions()?;
        keys.flag("disableCheck")?;
        keys.flag("disableGC")?;
        let inlined_only = keys.flag("loadOnlyInlinedPlugins")?;
        let Some(array) = keys.get("plugins") else {
            let list = Self { text, name, inlined_only, opened: None, plugins: Vec::new() };
            return if inlined_only { Err(Invalid::new(NO_PLUGINS)) } else { Ok(list) };
        };
        let elements: Vec<&RawValue> =
            serde_json::from_str(array.get()).map_err(|_| Invalid::new("plugins: not a list"))?;
        if elements.is_empty() {
            return Err(Invalid::new("plugins: empty"));
        }
        let plugin = |(index, element): (usize, &&RawValue)| {
            let owner = Object::parse(element.get()).and_then(|object| owner(&object.as_map()));
            let (kind, owner) = owner.map_err(|error| Invalid::new(format!("plugins[{index}]: {error}")))?;
            Ok(Plugin { span: span(&read, element.get()), kind, owner })
        };
        let plugins = elements.iter().enumerate().map(plugin).collect::<Result<_, Invalid>>()?;
        Ok(Self { text, name, inlined_only, opened: Some(span(&read, array.get()).start + 1), plugins })
    }

    /// The name of the network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether libcni ignores the network's drop-in directory.
    #[must_use]
    pub const fn inlined_only(&self) -> bool {
        self.inlined_only
    }

    /// Whether all plugins are in drop-in files, which libcni loads from 1.3 on; to earlier ones the list is
    /// invalid.
    #[must_use]
    pub const fn is_of_drop_ins(&self) -> bool {
        self.opened.is_none()
    }

    /// Refuses a list without a plugin before ours: it would get no `prevResult`, and ADD would fail.
    ///
    /// # Errors
    /// There is no other plugin.
    pub fn require_others(&self) -> Result<(), Invalid> {
        let has_others = self.plugins.is_empty() || self.owners().any(|owner| owner == Owner::Other);
        if has_others { Ok(()) } else { Err(Invalid::new(ONLY_OURS)) }
    }

    /// Whether one of the plugins is ours.
    #[must_use]
    pub fn has_entry(&self) -> bool {
        self.entry().is_some()
    }

    /// The text of our plugin.
    #[must_use]
    pub fn entry(&self) -> Option<&'a str> {
        self.plugins.iter().find(|plugin| plugin.owner == Owner::Ours).map(|plugin| self.slice(&plugin.span))
    }

    /// Whose the plugins are.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.plugins.iter().map(|plugin| plugin.owner)
    }

    /// The types of the plugins.
    #[must_use]
    pub fn types(&self) -> Vec<&str> {
        self.plugins.iter().map(|plugin| plugin.kind.as_str()).collect()
    }

    /// The texts of the plugins that are not ours.
    #[must_use]
    pub fn others(&self) -> Vec<&'a str> {
        let others = self.plugins.iter().filter(|plugin| plugin.owner != Owner::Ours);
        others.map(|plugin| self.slice(&plugin.span)).collect()
    }

    /// The text with `entry`, a JSON object, as the only plugin of our type: in place of the one that is
    /// there, Istio's too, or else last. Last, too, in place of the first one, which gets no `prevResult`:
    /// ADD would fail. `None` if it has this entry, or no plugins of its own.
    #[must_use]
    pub fn with_entry(&self, entry: &str) -> Option<String> {
        let is_first = self.plugins.first().is_some_and(Plugin::is_of_type);
        if is_first && let Ok(Some(others)) = self.without_entry(true) {
            return List::parse(&others).ok()?.with_entry(entry);
        }
        let same: Vec<&Plugin> = self.plugins.iter().filter(|plugin| plugin.is_of_type()).collect();
        match same.as_slice() {
            [] => Some(self.append(self.opened?, entry)),
            [one] if is_equal(self.slice(&one.span), entry) => None,
            [first, more @ ..] => {
                let kept = |plugin: &Plugin| !plugin.is_of_type() || plugin == *first;
                let removed = more.iter().map(|plugin| (self.removal(plugin, kept), ""));
                let edits: Vec<_> = [(first.span.clone(), entry)].into_iter().chain(removed).collect();
                Some(self.edit(&edits))
            }
        }
    }

    /// The text without our plugins, or without all of our type, Istio's too. `None` if it has none.
    ///
    /// # Errors
    /// There is no other plugin: libcni loads no empty list.
    pub fn without_entry(&self, istio: bool) -> Result<Option<String>, Invalid> {
        let is_removed = |plugin: &Plugin| plugin.owner == Owner::Ours || istio && plugin.is_of_type();
        let removed: Vec<&Plugin> = self.plugins.iter().filter(|plugin| is_removed(plugin)).collect();
        if removed.is_empty() {
            return Ok(None);
        }
        if removed.len() == self.plugins.len() {
            return Err(Invalid::new(ONLY_OURS));
        }
        let edits: Vec<_> =
            removed.iter().map(|plugin| (self.removal(plugin, |one| !is_removed(one)), "")).collect();
        Ok(Some(self.edit(&edits)))
    }

    fn slice(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// Behind the last plugin, with the white space that is before the first one.
    fn append(&self, opened: usize, entry: &str) -> String {
        let first = self.plugins.first().map_or(opened, |plugin| plugin.span.start);
        let end = self.plugins.last().map_or(opened, |plugin| plugin.span.end);
        let inserted = format!(",{}{entry}", self.slice(&(opened..first)));
        self.edit(&[(end..end, &inserted)])
    }

    /// The text to remove with a plugin: the comma and white space before it or, if no kept plugin is before
    /// it, after it.
    fn removal(&self, plugin: &Plugin, is_kept: impl Fn(&Plugin) -> bool) -> Range<usize> {
        let before = self.plugins.iter().take_while(|one| one.span.start < plugin.span.start);
        let is_leading = !before.clone().any(is_kept);
        match before.last() {
            Some(previous) if !is_leading => previous.span.end..plugin.span.end,
            Some(_) | None => {
                let next = self.plugins.iter().find(|one| one.span.start > plugin.span.start);
                plugin.span.start..next.map_or(plugin.span.end, |next| next.span.start)
            }
        }
    }

    /// Replaces disjoint spans, in the order of the text.
    fn edit(&self, edits: &[(Range<usize>, &str)]) -> String {
        let mut text = String::with_capacity(self.text.len() + 512);
        let mut at = 0;
        for (span, replacement) in edits {
            text.push_str(self.slice(&(at..span.start)));
            text.push_str(replacement);
            at = span.end;
        }
        text.push_str(self.slice(&(at..self.text.len())));
        text
    }
}

impl Plugin {
    fn is_of_type(&self) -> bool {
        self.owner != Owner::Other
    }
}

/// A network configuration of a single plugin, which is what `.conf` and `.json` files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single<'a> {
    text: &'a str,
    name: Option<String>,
    version: Option<String>,
    kind: String,
    owner: Owner,
}

impl<'a> Single<'a> {
    /// Reads one by the rules of libcni.
    ///
    /// # Errors
    /// What libcni would not load.
    pub fn parse(text: &'a str) -> Result<Self, Invalid> {
        let read = without_lone_surrogates(text);
        let object = Object::of_file(&read)?;
        require_fields(&object)?;
        // The list that is made of it has its keys as a map.
        let (kind, owner) = owner(&object.as_map())?;
        let (name, version) = (object.text("name")?, object.text("cniVersion")?);
        Ok(Self { text: text.trim(), name, version, kind, owner })
    }

    /// The type of the plugin.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// [`require_version`] for a single configuration, whose keys may have any case.
    ///
    /// # Errors
    /// It has none of ours.
    pub fn require_version(&self) -> Result<(), Invalid> {
        let version = self.version.as_ref().filter(|version| !version.is_empty());
        require_one_of(version.map(std::slice::from_ref).unwrap_or_default())
    }

    /// The name of the network, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whose it is.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// The list that libcni would make of it, and `entry` as the second plugin.
    ///
    /// # Errors
    /// It has no name: the list would have none.
    pub fn to_list(&self, entry: &str) -> Result<String, Invalid> {
        let name = self.name.as_deref().ok_or_else(|| Invalid::new("missing name"))?;
        let version = self.version.as_ref();
        let version = version
            .map(|text| format!("  \"cniVersion\": {},\n", Value::from(text.as_str())))
            .unwrap_or_default();
        let name = Value::from(name);
        let text = self.text;
        Ok(format!("{{\n{version}  \"name\": {name},\n  \"plugins\": [\n{text},\n{entry}\n  ]\n}}\n"))
    }

    /// Whether a list is this configuration, with or without our entry.
    #[must_use]
    pub fn is_source_of(&self, list: &List<'_>) -> bool {
        let [other] = list.others()[..] else { return false };
        (self.text == other || is_equal(self.text, other)) && self.name.as_deref() == Some(list.name())
    }
}

/// Refuses a list of a version that the plugin does not have: every ADD on the node would fail, of pods that
/// are not captured, too. Without `cniVersion`, libcni takes the newest of `cniVersions` that it knows.
///
/// # Errors
/// It has none of ours.
pub fn require_version(text: &str) -> Result<(), Invalid> {
    let read = without_lone_surrogates(text);
    let keys = Object::parse(&read)?;
    let own = keys.string("cniVersion")?.filter(|version| !version.is_empty());
    let listed = keys.versions()?;
    require_one_of(&own.map_or(listed, |own| vec![own]))
}

fn require_one_of(versions: &[String]) -> Result<(), Invalid> {
    if versions.iter().any(|version| Version::by_name(version).is_some()) {
        return Ok(());
    }
    let given =
        if versions.is_empty() { "missing".to_owned() } else { format!("{versions:?} is not accepted") };
    let accepted = Version::ALL.map(Version::name).join(", ");
    Err(Invalid::new(format!("cniVersion: {given}, expected one of {accepted}")))
}

/// The type of a plugin, and whose it is.
fn owner(plugin: &Object<'_>) -> Result<(String, Owner), Invalid> {
    require_fields(plugin)?;
    let kind = plugin.text("type")?.filter(|kind| !kind.is_empty());
    let kind = kind.ok_or_else(|| Invalid::new("missing type"))?;
    let owner = match kind.as_str() {
        TYPE if OWN_KEYS.iter().any(|key| plugin.get(key).is_some())
            || plugin
                .values("capabilities", "")?
                .iter()
                .any(|one: &Value| one.get(POD_ANNOTATIONS).is_some()) =>
        {
            Owner::Ours
        }
        TYPE => {
            let ambient: Vec<Box<RawValue>> = plugin.values("ambient_enabled", "")?;
            Owner::Istio { ambient: ambient.iter().any(|value| value.get() != "false") }
        }
        _ => Owner::Other,
    };
    Ok((kind, owner))
}

/// Where a part of a text is.
fn span(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + part.len()
}

/// Whether two texts have the same value. What is nested too deep is equal to nothing.
fn is_equal(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<Value>(&without_lone_surrogates(text)).ok();
    value(one).is_some_and(|one| value(other) == Some(one))
}

#[cfg(test)]
mod tests;
