//! Why a pod cannot be injected.

use crate::config::ValuesFrom;
use crate::pod::annotations::AnnotationError;
use crate::quantity::QuantityError;
use crate::schema::check::Malformed;
use crate::strategic_merge::MergeError;
use crate::yaml::{self, YamlError};

/// Why a pod cannot be injected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum InjectError {
    /// Annotations that cannot be followed, at least one, sorted by key.
    #[error("{}", lines(.0))]
    Annotations(Vec<AnnotationError>),
    /// A container still has the placeholder for the template's image.
    #[error(
        "container {container}: image \"auto\" means the image of a template, and none of the applied ones ({}) has this \
         container in spec.{list}; expected an image, or another annotation inject.istio.io/templates",
        templates.join(", ")
    )]
    AutoImage { container: String, list: &'static str, templates: Vec<String> },
    /// The init container would refuse its options; `by_config`: also those of a pod without annotations.
    #[error("{}", problems.join("\n"))]
    Capture { problems: Vec<String>, by_config: bool },
    /// Containers of the injected pod have the same name, though those of the pod did not.
    #[error(
        "container {container}: a template adds a container of this name, which the pod uses for its own ({}); a container name \
         must be unique in a pod: expected another name for the pod's own",
        paths.join(" and ")
    )]
    ContainerNameConflict { container: String, paths: Vec<String> },
    /// Templates define a container in both lists.
    #[error(
        "container {container}: the templates {} add it in both lists ({}); a container name must be unique in a pod: expected \
         it in one of them",
        templates.join(", "),
        paths.join(" and ")
    )]
    ContainerInBothLists { container: String, paths: Vec<String>, templates: Vec<String> },
    /// Containers of the pod have the same name.
    #[error(
        "{}: they are all named {container}; a container name must be unique in a pod: expected another name",
        paths.join(", ")
    )]
    DuplicateContainer { container: String, paths: Vec<String> },
    /// A value of the pod would be read as more than one value of the rendered template.
    #[error(
        "{origin}: the value would change the structure of template {template}; expected text without quotes, line breaks and \
         YAML's own marks"
    )]
    ValueChangesStructure { template: String, origin: String },
    /// A template would make another object of the pod, such as `metadata.name: other`.
    #[error(
        "template {template}: its output would change {}, which the API server does not accept, or gives to every pod; expected \
         a template without it",
        changed.join(", ")
    )]
    TemplateChangesIdentity { template: String, changed: Vec<String> },
    /// A template would remove something from the pod, such as `spec.containers app`.
    #[error(
        "template {template}: its output would remove {} from the pod; expected lists with additions only, or $patch: delete for \
         removals",
        lost.join(", ")
    )]
    TemplateRemovesFields { template: String, lost: Vec<String> },
    /// The pod is not of the shape that Kubernetes gives it, in at least one place.
    #[error("{}", lines(.0))]
    Malformed(Vec<Malformed>),
    /// The output of a template, or a user's container, cannot be merged with the pod.
    #[error("{what}: {error}")]
    Merge { what: String, error: Box<MergeError> },
    /// App containers have the proxy's user.
    #[error(
        "container {} runs as user {uid}, the proxy's own: its outbound traffic is not captured; expected another runAsUser",
        containers.join(", ")
    )]
    ProxyUid { containers: Vec<String>, uid: i64 },
    /// Something is not a quantity.
    #[error("{0}")]
    Quantity(Box<QuantityError>),
    /// A template cannot be rendered.
    #[error("{0}")]
    Render(Box<gotemplate::Error>),
    /// Two volumes are mounted at one path; by an annotation, if it may be the cause.
    #[error(
        "container {container}: volumes {volumes} are both mounted at {path}; a mount path must be unique in a container: expected \
         another mountPath{}",
        in_annotation(.annotation, .templates)
    )]
    DuplicateMountPath {
        container: String,
        path: String,
        volumes: String,
        annotation: Option<&'static str>,
        templates: Vec<String>,
    },
    /// Two volumes have one name; by an annotation, if it may be the cause.
    #[error(
        "two volumes of the injected pod are named {volume}; a volume name must be unique in a pod: expected another name{}",
        in_annotation(.annotation, .templates)
    )]
    DuplicateVolume { volume: String, annotation: Option<&'static str>, templates: Vec<String> },
    /// There is no such template.
    #[error("annotation inject.istio.io/templates: there is no template {name:?}; expected {}", known.join(", "))]
    UnknownTemplate { name: String, known: Vec<String> },
    /// A volume of the pod has the name of a template's, and another source.
    #[error(
        "volume {volume}: the pod has its own, and template {} adds one of this name: together they have {}, and Kubernetes accepts one \
         source of a volume; expected another name for the pod's own",
        templates.join(", "),
        sources.join(" and ")
    )]
    VolumeNameConflict { volume: String, sources: Vec<String>, templates: Vec<String> },
    /// A template's output is not a pod.
    #[error("template {template}: its output is not a pod: {error}{values}{}", at_line(.line))]
    Yaml { template: String, error: Box<YamlError>, line: String, values: String },
}

impl InjectError {
    /// Names the values, where a template cannot be rendered because of one.
    pub(super) fn with_values_from(mut self, values: &ValuesFrom) -> Self {
        if let Self::Render(error) = &mut self
            && let Some(source) = values.of_expression(&error.expression)
        {
            error.message = format!("{}; the values are those of {source}", error.message);
        }
        if let Self::Yaml { error, values: set, .. } = &mut self
            && let yaml::Problem::Type(wrong) = &error.problem
            && let Some(path) = values.set_path_of(wrong.value.trim_matches('"'))
        {
            *set = format!("; --set {path} has this value");
        }
        self
    }

    /// Whether both say the same of the same template: the line or the list in which it shows may differ with
    /// what the template was rendered for.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
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

fn lines(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Where another one belongs; nothing, if in the pod itself.
fn in_annotation(key: &Option<&str>, templates: &[String]) -> String {
    let key = key.map(|key| format!("annotation {key}"));
    let templates = (!templates.is_empty()).then(|| format!("the templates {}", templates.join(", ")));
    let places: Vec<String> = key.into_iter().chain(templates).collect();
    if places.is_empty() { String::new() } else { format!(" in {}", places.join(" or ")) }
}

fn at_line(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("; the line is {line:?}") }
}
