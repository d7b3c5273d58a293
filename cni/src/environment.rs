//! The command and its parameters, from the `CNI_*` variables.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::{CniError, Code, shortened};

/// Maximum length of a value in messages.
const SHOWN: usize = 80;

/// A command, with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sets up a pod.
    Add(Attachment),
    /// Compares a pod's rules.
    Check(Attachment),
    /// Forgets a pod. Parameters that are invalid name no state of ours.
    Del(Option<AttachmentId>),
    /// Forgets pods that are not there any more.
    Gc,
    /// Says whether ADD can succeed.
    Status,
    /// Prints the supported versions.
    Version,
}

impl Request {
    /// The name of the command, as in `CNI_COMMAND`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "ADD",
            Self::Check(_) => "CHECK",
            Self::Del(_) => "DEL",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }
}

/// Container and interface: what names an attachment within a network. Both are safe in file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId {
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_IFNAME`.
    pub interface: String,
}

/// An attachment that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the attachment.
    pub id: AttachmentId,
    /// `CNI_NETNS`.
    pub netns: PathBuf,
    /// The pod; `None` if it is not one of Kubernetes.
    pub pod: Option<PodName>,
    /// The file name of the namespace, if the agent calls ADD in the place of the runtime.
    pub late_netns: Option<String>,
}

/// The variable of `Attachment::late_netns`.
pub(crate) const LATE_NETNS: &str = "CNI_LATE_NETNS";

/// A pod, as `CNI_ARGS` name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`; empty if the runtime does not say.
    pub uid: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The longest interface name of the kernel: `IFNAMSIZ - 1`.
const LONGEST_INTERFACE: usize = 15;
/// The longest container ID: names of files have 255 bytes, of which a temporary state file has 6 besides the
/// two names.
pub const LONGEST_CONTAINER: usize = 255 - LONGEST_INTERFACE - "..".len() - ".tmp".len();

impl AttachmentId {
    /// A container ID as the specification has it, and an interface name as the kernel has it.
    ///
    /// # Errors
    /// The problem.
    pub fn new(container: &str, interface: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let mut first = container.chars();
        if !first.next().is_some_and(|c| c.is_ascii_alphanumeric()) || !first.all(is_plain) {
            return Err(format!(
                "CNI_CONTAINERID: {container:?} is not accepted, expected letters, digits, `_`, `.` and `-`, the first one \
                 a letter or digit"
            ));
        }
        if container.len() > LONGEST_CONTAINER {
            let container = shortened(container, SHOWN);
            return Err(format!(
                "CNI_CONTAINERID: {container:?} is not accepted, expected at most {LONGEST_CONTAINER} characters"
            ));
        }
        let fits = (1..=LONGEST_INTERFACE).contains(&interface.len());
        let is_forbidden = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
        if !fits || matches!(interface, "." | "..") || interface.chars().any(is_forbidden) {
            return Err(format!(
                "CNI_IFNAME: {interface:?} is not accepted, expected the name of a network interface, 1 to \
                 {LONGEST_INTERFACE} bytes"
            ));
        }
        Ok(Self { container: container.to_owned(), interface: interface.to_owned() })
    }
}

/// The variables that are read.
struct Variables(HashMap<String, Option<String>>);

impl Variables {
    /// The value; an empty one counts as missing.
    fn value(&self, name: &'static str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Some(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(None) => Err(format!("{name}: not valid UTF-8")),
        }
    }

    fn required(&self, names: &[&'static str]) -> Result<(), String> {
        let mut missing = Vec::new();
        for name in names {
            if self.value(name)?.is_none() {
                missing.push(*name);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("missing variables: {}", missing.join(", "))) }
    }

    fn text(&self, name: &'static str) -> Result<&str, String> {
        Ok(self.value(name)?.unwrap_or_default())
    }

    fn id(&self) -> Result<AttachmentId, String> {
        self.required(&["CNI_CONTAINERID", "CNI_IFNAME"])?;
        AttachmentId::new(self.text("CNI_CONTAINERID")?, self.text("CNI_IFNAME")?)
    }

    fn attachment(&self) -> Result<Attachment, String> {
        self.required(&["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"])?;
        let netns = PathBuf::from(self.text("CNI_NETNS")?);
        if !netns.is_absolute() {
            return Err(format!(
                "CNI_NETNS: {:?} is not accepted, expected an absolute path",
                netns.display()
            ));
        }
        let late_netns = self.value(LATE_NETNS)?.map(str::to_owned);
        Ok(Attachment { id: self.id()?, netns, pod: pod(self.text("CNI_ARGS")?)?, late_netns })
    }
}

/// Reads the request.
///
/// # Errors
/// Code 4: no command, one that does not exist, or variables that are missing or invalid. DEL has no error.
pub fn request(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Request, CniError> {
    let cni = variables.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with("CNI_").then(|| (name, value.into_string().ok()))
    });
    let variables = Variables(cni.collect());
    read(&variables).map_err(|problem| CniError::new(Code::InvalidEnvironment, problem))
}

fn read(variables: &Variables) -> Result<Request, String> {
    match variables.value("CNI_COMMAND")? {
        Some("ADD") => variables.attachment().map(Request::Add),
        Some("CHECK") => variables.attachment().map(Request::Check),
        Some("DEL") => Ok(Request::Del(variables.id().ok())),
        Some("GC") => Ok(Request::Gc),
        Some("STATUS") => Ok(Request::Status),
        Some("VERSION") => Ok(Request::Version),
        Some(other) => Err(format!(
            "CNI_COMMAND: {other:?} is not accepted, expected ADD, CHECK, DEL, GC, STATUS or VERSION"
        )),
        None => {
            Err("missing variables: CNI_COMMAND; this is a CNI plugin, run by the container runtime"
                .to_owned())
        }
    }
}

/// What names a pod. In another form they are no other plugin's: the pod may have to be captured.
const POD_ARGS: [&str; 4] =
    ["K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID"];

/// The pod that `CNI_ARGS` name: `K8S_POD_NAME=x;K8S_POD_NAMESPACE=y`. Arguments for other plugins are
/// ignored.
fn pod(args: &str) -> Result<Option<PodName>, String> {
    let mut pod = PodName { namespace: String::new(), name: String::new(), uid: String::new() };
    let mut of_kubernetes = None;
    for pair in args.split(';').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!(
                "CNI_ARGS: {pair:?} is not accepted, expected KEY=VALUE pairs, separated by `;`"
            ));
        };
        let is_meant = |name: &&str| *name != key && name.eq_ignore_ascii_case(key.trim());
        if let Some(meant) = POD_ARGS.into_iter().find(is_meant) {
            return Err(format!("CNI_ARGS: {key:?} is not accepted, expected {meant}"));
        }
        match key {
            // podman gives each container's name as that of a pod, and nothing else about pods.
            "K8S_POD_NAME" => {
                value.clone_into(&mut pod.name);
                continue;
            }
            "K8S_POD_NAMESPACE" => value.clone_into(&mut pod.namespace),
            "K8S_POD_UID" => value.clone_into(&mut pod.uid),
            "K8S_POD_INFRA_CONTAINER_ID" => {}
            _ => continue,
        }
        if !value.is_empty() {
            of_kubernetes = Some(key);
        }
    }
    match of_kubernetes {
        _ if !pod.name.is_empty() && !pod.namespace.is_empty() => Ok(Some(pod)),
        None => Ok(None),
        // It may have to be captured.
        Some(key) => {
            Err(format!("CNI_ARGS: {key} is set: expected K8S_POD_NAMESPACE and K8S_POD_NAME with it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Request, String> {
        let pairs = variables.iter().map(|(name, value)| (name.into(), value.into()));
        request(pairs).map_err(|error| {
            assert_eq!(error.code, Code::InvalidEnvironment);
            error.msg
        })
    }

    const GOOD: [(&str, &str); 5] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "abc-1"),
        ("CNI_NETNS", "/proc/1/ns/net"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=u;X=y=z"),
    ];

    /// The good ones, with another value for one.
    fn with(name: &str, value: &str) -> Result<Request, String> {
        of(&GOOD.map(|(key, old)| (key, if key == name { value } else { old })))
    }

    #[test]
    fn variables_become_a_request() {
        let id = AttachmentId { container: "abc-1".to_owned(), interface: "eth0".to_owned() };
        let pod = PodName { namespace: "a".to_owned(), name: "b".to_owned(), uid: "u".to_owned() };
        let attachment =
            Attachment { id: id.clone(), netns: "/proc/1/ns/net".into(), pod: Some(pod), late_netns: None };
        assert_eq!(of(&GOOD), Ok(Request::Add(attachment.clone())));
        assert_eq!(with("CNI_COMMAND", "CHECK"), Ok(Request::Check(attachment.clone())));
        assert_eq!(with("CNI_COMMAND", "DEL"), Ok(Request::Del(Some(id))));
        for (command, request) in [
            ("GC", Request::Gc),
            ("STATUS", Request::Status),
            ("VERSION", Request::Version),
            ("DEL", Request::Del(None)),
        ] {
            assert_eq!(of(&[("CNI_COMMAND", command)]), Ok(request));
        }
        for args in
            ["", "K8S_POD_NAME=b", "k8s_pod=a; K8S_POD_X=a", "K8S_POD_NAMESPACE=;K8S_POD_NAME=;K8S_POD_UID="]
        {
            assert_eq!(
                with("CNI_ARGS", args),
                Ok(Request::Add(Attachment { pod: None, ..attachment.clone() }))
            );
        }
    }

    #[test]
    fn missing_and_invalid_variables_are_reported() {
        assert!(of(&[]).unwrap_err().starts_with("missing variables: CNI_COMMAND"));
        let missing = of(&[("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "")]).unwrap_err();
        assert_eq!(missing, "missing variables: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME");
        for (name, values) in [
            ("CNI_COMMAND", &["add", "X"][..]),
            ("CNI_CONTAINERID", &["../x", "a/b", ".a", "a b", "ü", &"c".repeat(300)]),
            ("CNI_NETNS", &["proc/1/ns/net", "x"]),
            ("CNI_IFNAME", &["a/b", "..", ".", "a b", "a:b", "sixteen-bytes-xx"]),
            ("CNI_ARGS", &["K8S_POD_NAME", "a=b;c"]),
            (
                "CNI_ARGS",
                &["K8S_POD_NAMESPACE=a;K8S_POD_NAME=", "K8S_POD_NAMESPACE=a", "K8S_POD_NAME=b;K8S_POD_UID=u"],
            ),
            ("CNI_ARGS", &["K8S_POD_INFRA_CONTAINER_ID=c"]),
            ("CNI_ARGS", &[" K8S_POD_NAMESPACE=a; K8S_POD_NAME=b", "k8s_pod_namespace=a;k8s_pod_name=b"]),
            ("CNI_ARGS", &["K8S_POD_NAMESPACE=a;K8S_POD_NAME=b; K8S_POD_UID=u"]),
        ] {
            for value in values {
                let error = with(name, value).unwrap_err();
                assert!(
                    error.starts_with(&format!("{name}: ")) && error.contains("expected"),
                    "{value}: {error}"
                );
            }
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = OsString::from_vec(vec![0xff]);
        let error = request([("CNI_COMMAND".into(), "ADD".into()), ("CNI_IFNAME".into(), bad)]).unwrap_err();
        assert_eq!(
            (error.code, error.msg.as_str()),
            (Code::InvalidEnvironment, "CNI_IFNAME: not valid UTF-8")
        );
    }
}
