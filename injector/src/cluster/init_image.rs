//! The init container's image that the installed webhook has as an argument (`--init-image`).

use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::path::text;
use apiclient::{RequestFailed, get};

const FLAG: &str = "--init-image";

/// The value of `--init-image` in the injector's Deployment; none if it does not have it, or if there is no
/// Deployment.
///
/// # Errors
///
/// The Deployment cannot be read.
pub async fn init_image(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, String> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    match get(client, &kind, Some(namespace), name).await {
        Ok(deployment) => Ok(of_deployment(&deployment)),
        Err(RequestFailed { code: 404, .. }) => Ok(None),
        Err(failed) => Err(format!("Deployment {namespace}/{name} cannot be read: {}", failed.problem)),
    }
}

fn of_deployment(deployment: &Value) -> Option<String> {
    list(deployment, "/spec/template/spec/containers").iter().find_map(|container| {
        let words = ["/command", "/args"].into_iter().flat_map(|key| list(container, key));
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        let joined = words.iter().filter_map(|word| word.strip_prefix(FLAG)?.strip_prefix('='));
        let separate = words.iter().skip_while(|word| **word != FLAG).nth(1).copied();
        joined.chain(separate).next().map(|value| with_variables(value, container))
    })
}

/// A value with the container's variables in it: `$(NAME)`.
fn with_variables(value: &str, container: &Value) -> String {
    list(container, "/env").iter().fold(value.to_owned(), |value, variable| {
        value.replace(&format!("$({})", text(variable, "/name")), text(variable, "/value"))
    })
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
