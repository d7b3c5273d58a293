//! Why a pod cannot be injected.

use std::fmt;

use crate::overlay::MergeError;
use crate::pod::annotations::AnnotationError;
use crate::quantity::QuantityError;
use crate::schema::check::Malformed;
use crate::yaml::YamlError;

/// Why a pod cannot be injected.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectError {
    /// Annotations that cannot be followed, at least one, sorted by key.
    Annotations(Vec<AnnotationError>),
    /// A container still has the placeholder for the template's image.
    AutoImage {
        /// The container.
        container: String,
        /// The templates that were applied.
        templates: Vec<String>,
    },
    /// The init container would refuse what it is given.
    Capture {
        /// Everything that it refuses, one sentence each.
        problems: Vec<String>,
        /// Whether the config alone is to blame: a pod that asks for nothing gets the same.
        by_config: bool,
    },
    /// Containers of the injected pod have the same name, though those of the pod did not.
    Clash {
        /// The name.
        container: String,
        /// Where they are in the injected pod.
        paths: Vec<String>,
    },
    /// Containers of the pod have the same name.
    Duplicate {
        /// The name.
        container: String,
        /// Where they are.
        paths: Vec<String>,
    },
    /// A value of the pod would be read as more than one value of the rendered template.
    Escapes {
        /// The template.
        template: String,
        /// Where the value comes from.
        origin: String,
    },
    /// A template would take away what the pod has.
    Loses {
        /// The template.
        template: String,
        /// What, like `spec.containers app`.
        lost: Vec<String>,
    },
    /// The pod is not of the shape that Kubernetes gives it, in at least one place.
    Malformed(Vec<Malformed>),
    /// A template's output cannot be merged with the pod.
    Merge {
        /// The template, or the user's container.
        what: String,
        /// Why.
        error: Box<MergeError>,
    },
    /// App containers have the proxy's user.
    ProxyUid {
        /// Those.
        containers: Vec<String>,
        /// The user.
        uid: i64,
    },
    /// Something is no quantity.
    Quantity(Box<QuantityError>),
    /// A template cannot be rendered.
    Render(Box<gotemplate::Error>),
    /// There is no such template.
    UnknownTemplate {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A template's output is no pod.
    Yaml {
        /// The template.
        template: String,
        /// Why.
        error: Box<YamlError>,
        /// The line at fault.
        line: String,
    },
}

impl InjectError {
    /// Whether both say the same of the same template: the line or the list in which it shows may differ with what the
    /// template was rendered for.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Yaml { template, error, .. }, Self::Yaml { template: same, error: other, .. }) => {
                template == same && error.problem == other.problem
            }
            (Self::Merge { what, error }, Self::Merge { what: same, error: other }) => {
                what == same && error.problem == other.problem
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for InjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotations(all) => {
                f.write_str(&all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
            Self::AutoImage { container, templates } => write!(
                f,
                "container {container}: image \"auto\" means the image of a template, and none of the applied ones ({}) has \
                 this container; expected an image, or another annotation inject.istio.io/templates",
                templates.join(", ")
            ),
            Self::Capture { problems, .. } => f.write_str(&problems.join("\n")),
            Self::Clash { container, paths } => write!(
                f,
                "container {container}: a template adds a container of this name, which the pod uses for its own ({}); a \
                 container name must be unique in a pod: expected another name for the pod's own",
                paths.join(" and ")
            ),
            Self::Duplicate { container, paths } => write!(
                f,
                "{}: they are all named {container}; a container name must be unique in a pod: expected another name",
                paths.join(", ")
            ),
            Self::Escapes { template, origin } => write!(
                f,
                "{origin}: the value would change the structure of template {template}; expected text without quotes, line \
                 breaks and YAML's own marks"
            ),
            Self::Loses { template, lost } => write!(
                f,
                "template {template}: its output would take {} out of the pod; expected lists of what it adds, or $patch: \
                 delete for what is to go",
                lost.join(", ")
            ),
            Self::Malformed(all) => {
                f.write_str(&all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
            Self::Merge { what, error } => write!(f, "{what}: {error}"),
            Self::ProxyUid { containers, uid } => write!(
                f,
                "container {} runs as user {uid}, the proxy's own: its outbound traffic is not captured; expected another \
                 runAsUser",
                containers.join(", ")
            ),
            Self::Quantity(error) => error.fmt(f),
            Self::Render(error) => error.fmt(f),
            Self::UnknownTemplate { name, known } => write!(
                f,
                "annotation inject.istio.io/templates: there is no template {name:?}; expected {}",
                known.join(", ")
            ),
            Self::Yaml { template, error, line } => {
                write!(f, "template {template}: its output is no pod: {error}")?;
                if line.is_empty() { Ok(()) } else { write!(f, "; the line is {line:?}") }
            }
        }
    }
}

impl std::error::Error for InjectError {}
