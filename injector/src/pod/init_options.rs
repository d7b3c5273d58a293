//! Arguments and environment of the init container, parsed by the init binary's own parser.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use istio_iptables::cli::{self, Key, Origin, Outcome, RawOptions, UsageError};
use istio_iptables::config::{self, ConfigError, GivenOption, Resolved};
use istio_iptables::facts::Files;
use serde_json::Value;

use super::list::{self, List, containers};
use super::{INIT, PROXY, VALIDATION};
use crate::path::Lookup as _;

/// The init container's view of a pod's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitOptions {
    /// The container.
    pub container: &'static str,
    /// What it does; `None` if it cannot be followed to the end.
    pub resolved: Option<Resolved>,
    /// Values that it refuses.
    pub refused: Vec<ConfigError>,
    /// Errors before values are parsed.
    pub unreadable: Vec<UsageError>,
    /// What it refuses, and one of another version may take: flags and words, and backends that are not
    /// available here.
    pub foreign: Vec<String>,
    /// What depends on the container's own files.
    pub elsewhere: Vec<Elsewhere>,
}

/// Maximum number of group names: each is searched for among all groups.
const MOST_NAMES: u32 = 100;

/// A value that is a matter of a file in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The source of the value.
    pub origin: Origin,
    /// The value.
    pub given: String,
    /// What about it is not known here.
    pub unknown: &'static str,
}

/// Options with which the init container captures nothing, and what it does instead.
const OFF: [(Key, &str); 5] = [
    (Key::CleanupOnly, "only removes rules"),
    (Key::DryRun, "only prints its actions"),
    (Key::NetworkNamespace, "applies its rules in another network namespace"),
    (Key::Pid, "applies its rules in another network namespace"),
    (Key::SkipRuleApply, "applies no rules"),
];

/// The container that has traffic go to the proxy, or checks that it does, in a pod where no proxy can run:
/// what is captured has no destination.
pub(crate) fn without_proxy(pod: &Value) -> Option<&'static str> {
    let has_image = |container: &Value| {
        container.lookup("image").and_then(Value::as_str).is_some_and(|image| !image.is_empty())
    };
    if list::all_containers(pod).any(|container| list::name(container) == PROXY && has_image(container)) {
        return None;
    }
    let init = containers(pod, List::InitContainers);
    [INIT, VALIDATION].into_iter().find(|wanted| list::find(init, wanted).is_some())
}

impl InitOptions {
    /// Reads a pod's init container, if it has one that runs the init binary.
    #[must_use]
    pub fn of(pod: &Value) -> Option<Self> {
        let (name, container) = init_container(pod)?;
        Some(Self::of_container(name, arguments(container)?, environment(container)))
    }

    fn of_container<'a>(
        container: &'static str,
        arguments: impl IntoIterator<Item = &'a str>,
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self { container, ..Self::of_arguments(arguments, environment) }
    }

    /// Reads arguments and environment.
    pub(crate) fn of_arguments<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut reading = Self {
            container: INIT,
            resolved: None,
            refused: Vec::new(),
            unreadable: Vec::new(),
            foreign: Vec::new(),
            elsewhere: Vec::new(),
        };
        let Some(raw) = reading.parse(arguments, environment) else {
            return reading;
        };
        let files = reading.files(&raw);
        match config::resolve(&raw, &files) {
            Ok(resolved) => reading.resolved = Some(resolved),
            Err(errors) => {
                // Kubernetes expands the variable.
                let open = |error: &ConfigError| matches!(error, ConfigError::Value { given, .. } if given.contains("$("));
                let foreign = |error: &ConfigError| {
                    matches!(error, ConfigError::Unavailable { origin: Origin::Flag(_), .. })
                };
                let known = errors.into_iter().filter(|error| !open(error));
                let (foreign, refused): (Vec<_>, Vec<_>) = known.partition(foreign);
                reading.foreign.extend(foreign.iter().map(ToString::to_string));
                reading.refused = refused;
            }
        }
        reading
    }

    fn parse<'a>(
        &mut self,
        arguments: impl IntoIterator<Item = &'a str>,
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<RawOptions> {
        let all = std::iter::once("istio-iptables").chain(arguments).map(OsString::from);
        let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into()));
        let no_file = |_: &std::path::Path| Err(std::io::ErrorKind::Unsupported.into());
        match cli::parse(all, environment, &mut std::io::empty(), &no_file) {
            Ok(Outcome::Run(raw)) => Some(raw),
            Ok(Outcome::Print(_)) => {
                self.unreadable.push(UsageError::Other("the arguments only request help".to_owned()));
                None
            }
            Err(failure) => {
                for error in failure.errors {
                    if matches!(error, UsageError::UnknownFlag { .. } | UsageError::ExtraWord { .. }) {
                        self.foreign.push(error.to_string());
                    } else if matches!(&error, UsageError::Document { source, .. } if source != "standard input")
                    {
                        let given = failure.raw.given(Key::Config);
                        self.elsewhere.extend(given.map(|given| Elsewhere {
                            origin: given.origin.clone(),
                            given: given.text.clone(),
                            unknown: "the file is in the container, and its content is not checked",
                        }));
                    } else {
                        self.unreadable.push(error);
                    }
                }
                Some(failure.raw)
            }
        }
    }

    /// The container's files are not known here: name servers are not checked, and every word that can be
    /// the name of a group is one.
    fn files(&mut self, raw: &RawOptions) -> Files {
        let mut group = String::new();
        for key in [Key::OutboundOwnerGroups, Key::OutboundOwnerGroupsExclude] {
            let Some(given) = raw.given(key) else { continue };
            let names = given.text.split(',').map(str::trim).filter(|item| is_name(item));
            for (name, gid) in names.zip(1..=MOST_NAMES) {
                // Writing to a string does not fail.
                let _ = writeln!(group, "{name}:x:{gid}:");
                self.elsewhere.push(Elsewhere {
                    origin: given.origin.clone(),
                    given: name.to_owned(),
                    unknown: "the init container does not start unless its /etc/group has this group",
                });
            }
        }
        Files { passwd: String::new(), group, resolv_conf: Ok(String::new()) }
    }

    /// Whether anything cannot be read, is refused, or depends on the container.
    const fn has_problems(&self) -> bool {
        !(self.refused.is_empty()
            && self.unreadable.is_empty()
            && self.foreign.is_empty()
            && self.elsewhere.is_empty())
    }

    /// Whether it refuses anything.
    pub(crate) fn is_refused(&self) -> bool {
        !self.refused.is_empty() || !self.unreadable.is_empty()
    }

    /// The options that switch capture off, each with what is done instead.
    pub fn off(&self) -> impl Iterator<Item = (&GivenOption, &'static str)> {
        // With a CNI plugin the rules are made elsewhere.
        let resolved = self.resolved.as_ref().filter(|_| self.container == INIT);
        let given = resolved.map_or(&[][..], |resolved| &resolved.given);
        given.iter().filter_map(|given| {
            let (_, instead) = OFF.iter().find(|(key, _)| *key == given.key)?;
            Some((given, *instead))
        })
    }
}

/// The options of recent init containers: those of most pods have the same arguments and variables, and
/// parsing them takes a tenth of an injection.
#[derive(Debug, Default)]
pub(crate) struct InitOptionsCache(Mutex<HashMap<Vec<u8>, Arc<InitOptions>>>);

impl InitOptionsCache {
    /// When there are so many, all are dropped.
    const MOST: usize = 64;
    /// Longer arguments and variables are parsed each time, and so are those with a problem: of each item of
    /// a list there may be a message.
    const MOST_BYTES: usize = 2 << 10;

    /// What [`InitOptions::of`] returns.
    pub(crate) fn of(&self, pod: &Value) -> Option<Arc<InitOptions>> {
        let (name, container) = init_container(pod)?;
        let arguments: Vec<&str> = arguments(container)?.collect();
        let environment: Vec<(&str, &str)> = environment(container).collect();
        let key = key(name, &arguments, &environment);
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key) {
            return Some(Arc::clone(found));
        }
        let parsed = Arc::new(InitOptions::of_container(name, arguments, environment));
        if key.len() <= Self::MOST_BYTES && !parsed.has_problems() {
            let mut known = known();
            if known.len() >= Self::MOST {
                known.clear();
            }
            known.insert(key, Arc::clone(&parsed));
        }
        Some(parsed)
    }
}

/// All that options depend on. Each text follows its length, so that no two containers have the same bytes.
fn key(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1024);
    let variables = environment.iter().flat_map(|(name, value)| [*name, *value]);
    key.extend(arguments.len().to_le_bytes());
    for text in std::iter::once(name).chain(arguments.iter().copied()).chain(variables) {
        key.extend(text.len().to_le_bytes());
        key.extend(text.as_bytes());
    }
    key
}

/// Whether there may be a group of this name.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte))
}

/// The init container, with its name.
fn init_container(pod: &Value) -> Option<(&'static str, &Value)> {
    let init = containers(pod, List::InitContainers);
    [INIT, VALIDATION].into_iter().find_map(|name| Some((name, list::find(init, name)?)))
}

/// The arguments, unless another program is called.
fn arguments(container: &Value) -> Option<impl Iterator<Item = &str>> {
    let words = |key: &str| {
        let words = container.lookup(key).and_then(Value::as_array);
        words.into_iter().flatten().filter_map(Value::as_str)
    };
    if let Some(program) = words("command").next() {
        let called = program.rsplit('/').next();
        matches!(called, Some("istio-iptables" | "pilot-agent")).then_some(())?;
    }
    let command: Vec<&str> = words("command").skip(1).collect();
    Some(command.into_iter().chain(words("args")))
}

/// The variables with a literal value. The last one of a name counts.
fn environment(container: &Value) -> impl Iterator<Item = (&str, &str)> {
    let variables = container.lookup("env").and_then(Value::as_array);
    let literal = |variable: &&Value| variable.lookup("valueFrom").is_none_or(Value::is_null);
    variables.into_iter().flatten().filter(literal).map(|variable| {
        (list::name(variable), variable.lookup("value").and_then(Value::as_str).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(container: &Value) -> Option<InitOptions> {
        let mut container = container.clone();
        container["name"] = json!("istio-init");
        InitOptions::of(&json!({"spec": {"initContainers": [container]}}))
    }

    fn refused(container: &Value) -> Vec<String> {
        reading(container).unwrap().refused.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arguments_and_environment_are_read_together() {
        let of = |name: &str, value: &str| {
            let env = json!([{"name": name, "value": value}]);
            refused(&json!({"args": ["istio-iptables", "-b", "*"], "env": env}))
        };
        assert_eq!(of("ISTIO_DUAL_STACK", "true"), [""; 0]);
        assert_eq!(of("NOT_ITS_OWN", "bogus"), [""; 0]);
        assert_eq!(of("ISTIO_INBOUND_PORTS", "bogus"), [""; 0], "the flag wins");
        assert!(of("ISTIO_DUAL_STACK", "maybe")[0].starts_with("variable ISTIO_DUAL_STACK: \"maybe\""));
    }

    #[test]
    fn references_are_not_resolved() {
        let from = json!([{"name": "DRY_RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
        assert_eq!(refused(&json!({"env": from})), [""; 0]);
        assert_eq!(refused(&json!({"args": ["-u", "$(UID)"]})), [""; 0]);
        let file = reading(&json!({"env": [{"name": "ISTIO_IPTABLES_CONFIG", "value": "/x"}]})).unwrap();
        let origin = Origin::Variable("ISTIO_IPTABLES_CONFIG".to_owned());
        assert_eq!((file.is_refused(), &file.elsewhere[0].origin), (false, &origin));
        let variable = "ISTIO_OUTBOUND_OWNER_GROUPS";
        let groups = |text: &str| json!({"env": [{"name": variable, "value": text}]});
        let named = reading(&groups("java, 202,adm")).unwrap();
        let names: Vec<&str> = named.elsewhere.iter().map(|item| item.given.as_str()).collect();
        assert_eq!((named.is_refused(), names), (false, vec!["java", "adm"]));
        assert_eq!(refused(&groups("java,a b,-1")).len(), 2);
        assert!(
            !refused(&groups(&(0..1000).map(|n| format!("g{n}")).collect::<Vec<_>>().join(","))).is_empty()
        );
    }

    #[test]
    fn unknown_flags_are_not_refused() {
        for arguments in [json!(["--brand-new"]), json!(["a-word"])] {
            let reading = reading(&json!({ "args": arguments })).unwrap();
            assert!(!reading.is_refused() && reading.foreign.len() == 1, "{reading:?}");
        }
        let variable = json!({"env": [{"name": "ISTIO_IPTABLES_BACKEND", "value": "nft"}]});
        assert_eq!(refused(&variable).len(), 1);
        assert!(reading(&json!({"args": ["-b"]})).unwrap().is_refused());
    }

    #[test]
    fn what_is_captured_goes_somewhere() {
        let pod = |init: &Value, app: &Value| json!({"spec": {"initContainers": init, "containers": app}});
        let proxy = json!({"name": "istio-proxy", "image": "x"});
        for name in ["istio-init", "istio-validation"] {
            let init = json!({ "name": name });
            assert_eq!(without_proxy(&pod(&json!([init]), &json!([{"name": "app"}]))), Some(name));
            assert_eq!(without_proxy(&pod(&json!([init]), &json!([{"name": "istio-proxy"}]))), Some(name));
            assert_eq!(without_proxy(&pod(&json!([init]), &json!([proxy]))), None);
            assert_eq!(without_proxy(&pod(&json!([init, proxy]), &json!([]))), None);
        }
        assert_eq!(without_proxy(&pod(&json!([]), &json!([{"name": "app"}]))), None);
    }

    #[test]
    fn cached_options_are_those_of_the_container() {
        let cache = InitOptionsCache::default();
        let pod = |name: &str, args: &[&str], env: &[(&str, &str)]| {
            let env: Vec<Value> =
                env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            json!({"spec": {"initContainers": [{"name": name, "args": args, "env": env}]}})
        };
        let long = "x".repeat(InitOptionsCache::MOST_BYTES);
        let mut pods = vec![
            pod("istio-init", &["-b", "*"], &[]),
            pod("istio-validation", &["-b", "*"], &[]),
            pod("istio-init", &["-b", "80"], &[]),
            pod("istio-init", &["-b", "*", "DRY_RUN", "true"], &[]),
            pod("istio-init", &["-b", "*"], &[("DRY_RUN", "true")]),
            pod("istio-init", &["-b", "*\0-d"], &[]),
            pod("istio-init", &["-b", &long], &[]),
            json!({"spec": {"initContainers": [{"name": "istio-init", "command": ["sh"]}]}}),
            json!({}),
        ];
        let uids =
            (0..2 * InitOptionsCache::MOST).map(|uid| pod("istio-init", &["-u", &uid.to_string()], &[]));
        pods.extend(uids);
        for pod in pods.iter().chain(pods.iter().rev()) {
            let found = cache.of(pod);
            assert_eq!(found.as_deref(), InitOptions::of(pod).as_ref(), "{pod}");
            assert!(cache.0.lock().unwrap().len() <= InitOptionsCache::MOST);
        }
        let (first, second) = (cache.of(&pods[0]).unwrap(), cache.of(&pods[0]).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        for not_kept in [&pods[5], &pods[6]] {
            let (first, second) = (cache.of(not_kept).unwrap(), cache.of(not_kept).unwrap());
            assert!(!Arc::ptr_eq(&first, &second), "neither a problem nor a long text takes memory");
        }
    }

    #[test]
    fn another_program_is_not_read() {
        assert_eq!(reading(&json!({"command": ["sh", "-c"], "args": ["-b", "x"]})), None);
        let command = json!(["/usr/local/bin/pilot-agent", "istio-iptables", "-b", "x"]);
        assert_eq!(refused(&json!({ "command": command })).len(), 1);
    }
}
