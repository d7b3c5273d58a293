//! The image of the proxy and the init container.

use serde_json::{Map, Value};

use super::list::annotation;
use crate::annotations::keys;
use crate::path::at;

/// The default proxy image, where the values name none.
const DEFAULT_IMAGE: &str = "proxyv2";

/// Chooses the image of the proxy (`global.proxy.image`) or of the init container
/// (`global.proxy_init.image`).
///
/// A value with a slash is a whole image name. Otherwise hub, name, tag and variant are put together; the
/// variant is the `sidecar.istio.io/proxyImageType` annotation, else (for the proxy) the proxy config's
/// `image.imageType`, else `global.variant`; `default` means none, and a tag that ends in a variant has it
/// replaced.
pub(crate) fn choose(pod: &Value, values: &Value, proxy_config: &Map<String, Value>, which: Which) -> String {
    let global = |key: &str| values.get("global").and_then(|global| global.get(key)).map(text);
    let name = at(values, which.pointer())
        .map(text)
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| DEFAULT_IMAGE.to_owned());
    if name.contains('/') {
        return name;
    }
    let image_type = annotation(pod, keys::PROXY_IMAGE_TYPE)
        .map(str::to_owned)
        .or_else(|| {
            proxy_config
                .get("image")
                .and_then(|image| image.get("imageType"))
                .filter(|_| which == Which::Proxy)
                .map(text)
        })
        .filter(|kind| !kind.is_empty());
    let hub = global("hub").unwrap_or_default();
    let tag = tagged(&global("tag").unwrap_or_default(), &global("variant").unwrap_or_default(), image_type);
    let hub = if hub.is_empty() { hub } else { format!("{hub}/") };
    format!("{hub}{name}:{tag}")
}

/// Which of the two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The init container's.
    Init,
    /// The proxy's.
    Proxy,
}

impl Which {
    const fn pointer(self) -> &'static str {
        match self {
            Self::Init => "/global/proxy_init/image",
            Self::Proxy => "/global/proxy/image",
        }
    }
}

const KNOWN: [&str; 2] = ["-debug", "-distroless"];

fn tagged(tag: &str, variant: &str, image_type: Option<String>) -> String {
    let wanted = image_type.unwrap_or_else(|| variant.to_owned());
    if wanted.is_empty() {
        return tag.to_owned();
    }
    let base = KNOWN.iter().find_map(|suffix| tag.strip_suffix(suffix)).unwrap_or(tag);
    match wanted.as_str() {
        "default" => base.to_owned(),
        _ if tag.ends_with(&format!("-{wanted}")) => tag.to_owned(),
        _ => format!("{base}-{wanted}"),
    }
}

/// A value as a template would print it: `tag: 1.12` is read as a number.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(annotations: &Value, values: &Value, proxy_config: &Value) -> String {
        let pod = json!({"metadata": {"annotations": annotations}});
        choose(&pod, values, proxy_config.as_object().unwrap(), Which::Proxy)
    }

    #[test]
    fn the_parts_are_put_together() {
        let values = json!({"global": {"hub": "h", "tag": "1.12", "proxy": {"image": "proxyv2"}}});
        assert_eq!(image(&json!({}), &values, &json!({})), "h/proxyv2:1.12");
        let debug = json!({"image": {"imageType": "debug"}});
        assert_eq!(image(&json!({}), &values, &debug), "h/proxyv2:1.12-debug");
        let annotated = json!({"sidecar.istio.io/proxyImageType": "default"});
        assert_eq!(image(&annotated, &values, &debug), "h/proxyv2:1.12");
    }

    #[test]
    fn variant_in_the_tag_is_replaced_not_repeated() {
        let values =
            |tag: &str, variant: &str| json!({"global": {"hub": "h", "tag": tag, "variant": variant}});
        assert_eq!(image(&json!({}), &values("1-debug", "distroless"), &json!({})), "h/proxyv2:1-distroless");
        assert_eq!(image(&json!({}), &values("1-debug", "debug"), &json!({})), "h/proxyv2:1-debug");
        assert_eq!(image(&json!({}), &values("1-debug", ""), &json!({})), "h/proxyv2:1-debug");
        let number = json!({"global": {"hub": "h", "tag": 1.12}});
        assert_eq!(image(&json!({}), &number, &json!({})), "h/proxyv2:1.12");
    }

    #[test]
    fn whole_name_is_kept() {
        let values = json!({"global": {"hub": "h", "tag": "t", "proxy": {"image": "my.example/proxy:7"}}});
        assert_eq!(image(&json!({}), &values, &json!({})), "my.example/proxy:7");
    }
}
